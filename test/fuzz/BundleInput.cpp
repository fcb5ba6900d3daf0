#include "BundleInput.h"

#include "Fuzz.h"

#include "zorse/Bundle/Manifest.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::fuzz;

bool zorse::fuzz::bundleFiles(std::string_view bytes, std::map<std::string, std::string> &files) {
  BundleParts input;
  if (!input.ParseFromArray(bytes.data(), int(bytes.size())))
    return false;
  std::string given = std::move(*input.mutable_manifest());
  files["plan.json"] = std::move(*input.mutable_plan());
  files["cluster.yaml"] = std::move(*input.mutable_cluster());
  files["weights.json"] = std::move(*input.mutable_weights());
  files["summary.pb"] = std::move(*input.mutable_summary());
  files["functions.pb"] = std::move(*input.mutable_functions());
  for (int i = 0; i < input.programs_size(); ++i)
    files["programs/" + std::to_string(i) + ".pb"] = std::move(*input.mutable_programs(i));
  for (auto &file : *input.mutable_files())
    files[file.name()] = std::move(*file.mutable_contents());

  std::string manifest;
  std::string_view rest = given;
  for (size_t at; (at = rest.find("\"@")) != rest.npos;) {
    size_t end = rest.find('"', at + 2);
    auto file = end == rest.npos ? files.end()
                                 : files.find(std::string(rest.substr(at + 2, end - at - 2)));
    manifest += rest.substr(0, at + 1);
    rest.remove_prefix(at + 1);
    if (file == files.end())
      continue;
    manifest += bundle::sha256(file->second);
    rest.remove_prefix(end - at - 1);
  }
  manifest += rest;
  files[bundle::kDigestFile] = bundle::sha256(manifest) + "  manifest.json\n";
  files["manifest.json"] = std::move(manifest);
  return true;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize,
                                          unsigned seed) {
  Random random(seed);
  BundleParts input;
  unsigned kind = random() % 10;
  // Mutates texts in their own formats and everything else as messages.
  if (kind >= 3 || !input.ParseFromArray(data, int(size)))
    return mutateMessage(BundleInput(), data, size, maxSize, seed);
  std::string *text = kind == 0   ? input.mutable_manifest()
                      : kind == 1 ? input.mutable_weights()
                                  : input.mutable_plan();
  if (text->empty())
    text = input.mutable_plan();
  *text = mutateJson(*text, random);
  std::string bytes = input.SerializeAsString();
  return bytes.size() <= maxSize ? put(bytes, data, maxSize) : size;
}

extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t *one, size_t oneSize,
                                            const uint8_t *other, size_t otherSize, uint8_t *out,
                                            size_t outMaxSize, unsigned seed) {
  return crossMessages(BundleInput(), one, oneSize, other, otherSize, out, outMaxSize, seed);
}
