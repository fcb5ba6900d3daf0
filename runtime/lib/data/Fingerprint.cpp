// What training data is, whatever it is called.
#include "zorse/runtime/Data.h"

#include "Files.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdio>

using namespace zorse::runtime;

namespace {

constexpr size_t kEnds = 1 << 20, kSample = 4096, kSamples = 256; // files up to 3 MiB are read whole.

/// Beginning, end and evenly spaced samples.
uint64_t sampledHash(const MappedFile &file) {
  if (file.size() <= 2 * kEnds + kSample * kSamples)
    return XXH64(file.data(), file.size(), 0);
  XXH64_state_t *state = XXH64_createState();
  XXH64_reset(state, 0);
  XXH64_update(state, file.data(), kEnds);
  size_t step = (file.size() - 2 * kEnds - kSample) / kSamples;
  for (size_t i = 0; i < kSamples; ++i)
    XXH64_update(state, file.data() + kEnds + i * step, kSample);
  XXH64_update(state, file.data() + file.size() - kEnds, kEnds);
  uint64_t hash = XXH64_digest(state);
  XXH64_freeState(state);
  return hash;
}

Result<std::string> describeFile(const std::string &name, const std::string &path) {
  std::string form;
  if (name.empty()) {
    Result<TokenFile> tokens = TokenFile::open(path);
    if (tokens.failed())
      return tokens.error();
    form = tokens->format();
  } else {
    Result<ArrayFile> array = ArrayFile::open(path);
    if (array.failed())
      return array.error();
    form = name + " " + safetensorsName(array->type()) + " [";
    for (size_t d = 0; d < array->shape().size(); ++d)
      form += (d ? ", " : "") + std::to_string(array->shape()[d]);
    form += "]";
  }
  Result<MappedFile> file = MappedFile::open(path);
  if (file.failed())
    return file.error();
  char hash[20];
  std::snprintf(hash, sizeof hash, "%016llx", (unsigned long long)sampledHash(*file));
  return form + ", " + std::to_string(file->size()) + " bytes, " + hash;
}

} // namespace

Result<std::string> zorse::runtime::dataFingerprint(const std::string &specification) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= specification.size();) {
    size_t end = std::min(specification.find(',', begin), specification.size());
    std::string part = specification.substr(begin, end - begin);
    begin = end + 1;
    size_t equals = part.find('=');
    Result<std::string> described = equals == std::string::npos ? describeFile("", part) : describeFile(part.substr(0, equals), part.substr(equals + 1));
    if (described.failed())
      return described.error();
    parts.push_back(*described);
  }
  std::sort(parts.begin(), parts.end());
  std::string text;
  for (const std::string &part : parts)
    text += (text.empty() ? "" : "; ") + part;
  return text;
}
