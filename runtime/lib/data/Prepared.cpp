#include "Prepared.h"

#include "DataFile.h"

#include "zorse/runtime/Data.h"

#include <nlohmann/json.hpp>

using namespace zorse;
using namespace zorse::runtime;
using nlohmann::json;

namespace {

constexpr uint64_t kLargestManifest = 1 << 20;

/// "next" or "same" of settings.labels; empty if the folder does not contain it.
std::string labelsOf(const std::string &directory) {
  Result<DataFile> file = DataFile::open(directory + "data.json");
  if (file.failed() || file->size() > kLargestManifest)
    return {};
  std::string text(size_t(file->size()), '\0');
  if (file->read(0, text.data(), text.size()).failed())
    return {};
  auto shallow = [](int depth, json::parse_event_t, json &) { return depth <= 8; };
  json manifest = json::parse(text, shallow, /*allow_exceptions=*/false);
  if (!manifest.is_object() || !manifest.contains("fingerprint") ||
      !manifest.contains("settings") || !manifest["settings"].is_object() ||
      !manifest["settings"].contains("labels") || !manifest["settings"]["labels"].is_string())
    return {};
  return manifest["settings"]["labels"].get<std::string>();
}

} // namespace

Status zorse::runtime::checkPrepared(const bundle::GraphInput &input, const std::string &path) {
  if (inputRole(input) != "labels")
    return Status::success();
  const std::string directory = path.substr(
                        0, path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1),
                    labels = labelsOf(directory);
  const char *wanted = input.shifted_in_graph() ? "same" : "next";
  if ((labels != "same" && labels != "next") || labels == wanted)
    return Status::success();
  return userError(
      path + ": input '" + input.name() + "' expects labels that " +
      (input.shifted_in_graph() ? "are not shifted, as the model shifts them itself"
                                : "are the next tokens, as the model does not shift them") +
      "; found labels that " + (labels == "next" ? "are shifted already" : "are not shifted") +
      " (\"labels\": \"" + labels + "\" in " + directory +
      "data.json). Prepare the data again with python3 -m zorse.data --labels " + wanted);
}
