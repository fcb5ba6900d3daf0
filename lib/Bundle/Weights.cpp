#include "Weights.h"

#include "BundleFile.h"

#include <algorithm>

namespace zorse::bundle {

namespace {

/// Returns "F32" for "f32": the names differ only in case, and for booleans.
std::string safetensorsType(std::string type) {
  if (type == "i1")
    return "BOOL";
  for (char &c : type)
    c = static_cast<char>(toupper(c));
  return type;
}

std::string littleEndian(uint64_t value) {
  std::string bytes(8, 0);
  for (int i = 0; i < 8; ++i)
    bytes[i] = static_cast<char>(value >> (8 * i));
  return bytes;
}

/// Alignment in bytes of every tensor of the file, so that it can be mapped.
constexpr uint64_t kAlignment = 64;
uint64_t aligned(uint64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

} // namespace

Result<nlohmann::ordered_json> writeWeights(const std::vector<WeightData> &weights,
                                            const HubModel &hub, WeightMode mode,
                                            const std::string &directory,
                                            std::map<std::string, std::string> &files) {
  const std::string name = mode == WeightMode::Copy ? "weights.safetensors"
                                                    : "constants.safetensors";

  // Compute the layout first: safetensors requires the header before the data, and no gaps, so
  // padding is stored as byte tensors.
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::vector<uint64_t> starts(weights.size());
  std::vector<uint64_t> gaps(weights.size());
  uint64_t end = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const WeightData &w = weights[i];
    if (mode == WeightMode::Reference && !w.file.empty())
      continue;
    uint64_t bytes = w.file.empty() ? w.bytes.size() : w.size;
    starts[i] = aligned(end);
    gaps[i] = starts[i] - end;
    if (gaps[i])
      header["__padding_" + std::to_string(i)] = {
          {"dtype", "U8"}, {"shape", {gaps[i]}}, {"data_offsets", {end, starts[i]}}};
    end = starts[i] + bytes;
    header[w.name] = {
        {"dtype", safetensorsType(w.type)}, {"shape", w.shape}, {"data_offsets", {starts[i], end}}};
  }
  std::string text = header.dump();
  text.resize(aligned(8 + text.size()) - 8, ' ');

  if (end > 0) {
    BundleFile file;
    file.open(directory + "/" + name);
    file.write(littleEndian(text.size()));
    file.write(text);
    for (size_t i = 0; i < weights.size(); ++i) {
      const WeightData &w = weights[i];
      if (mode == WeightMode::Reference && !w.file.empty())
        continue;
      file.write(std::string(gaps[i], 0));
      if (w.file.empty())
        file.write(w.bytes);
      else
        file.append(w.file, w.offset, w.size);
    }
    Result<std::string> hash = file.close();
    if (hash.failed())
      return hash.error();
    files[name] = std::move(*hash);
  }

  // Whether any of them is outside the bundle. Readers refuse files outside the bundle if this is
  // false.
  const bool references = mode == WeightMode::Reference &&
                          std::any_of(weights.begin(), weights.end(),
                                      [](const WeightData &w) { return !w.file.empty(); });
  nlohmann::ordered_json json = {{"references", references}};
  if (!hub.empty())
    json["hub"] = toJson(hub);
  json["parameters"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < weights.size(); ++i) {
    const WeightData &w = weights[i];
    bool referenced = mode == WeightMode::Reference && !w.file.empty();
    nlohmann::ordered_json entry = {{"name", w.name},
                                    {"file", referenced ? w.file : name},
                                    {"offset", referenced ? w.offset : 8 + text.size() + starts[i]},
                                    {"bytes", w.file.empty() ? w.bytes.size() : w.size},
                                    {"type", w.type},
                                    {"shape", w.shape}};
    if (!w.permutation.empty())
      entry["permutation"] = w.permutation;
    if (!w.hub.empty())
      entry["hub"] = toJson(w.hub);
    json["parameters"].push_back(std::move(entry));
  }
  return json;
}

} // namespace zorse::bundle
