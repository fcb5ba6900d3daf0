// The fingerprint of training data: identifies its content independently of file names.
#include "zorse/runtime/Data.h"

#include "Files.h"
#include "StreamData.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <vector>

using namespace zorse::runtime;

namespace {

constexpr size_t kEnds = 1 << 20, kSample = 4096,
                 kSamples = 256; // files up to 3 MiB are hashed whole

/// Hash of the beginning, the end and evenly spaced samples of a file.
Result<uint64_t> sampledHash(const DataFile &file) {
  struct Free {
    void operator()(XXH64_state_t *state) const { XXH64_freeState(state); }
  };
  std::unique_ptr<XXH64_state_t, Free> state(XXH64_createState());
  XXH64_reset(state.get(), 0);
  std::vector<std::byte> bytes(kEnds);
  auto add = [&](uint64_t offset, size_t size) {
    Status status = file.read(offset, bytes.data(), size);
    if (status.succeeded())
      XXH64_update(state.get(), bytes.data(), size);
    return status;
  };
  if (file.size() <= 2 * kEnds + kSample * kSamples) {
    for (uint64_t offset = 0; offset < file.size(); offset += kEnds)
      if (Status status = add(offset, size_t(std::min<uint64_t>(kEnds, file.size() - offset)));
          status.failed())
        return status.error();
    return uint64_t(XXH64_digest(state.get()));
  }
  if (Status status = add(0, kEnds); status.failed())
    return status.error();
  uint64_t step = (file.size() - 2 * kEnds - kSample) / kSamples;
  for (size_t i = 0; i < kSamples; ++i)
    if (Status status = add(kEnds + i * step, kSample); status.failed())
      return status.error();
  if (Status status = add(file.size() - kEnds, kEnds); status.failed())
    return status.error();
  return uint64_t(XXH64_digest(state.get()));
}

Result<std::string> describeFile(const std::string &name, const std::string &path,
                                 const TokenReading &reading) {
  std::string form;
  if (name.empty()) {
    Result<TokenFile> tokens = TokenFile::open(path, reading);
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
  Result<DataFile> file = DataFile::open(name.empty() ? withoutBytes(path) : path);
  if (file.failed())
    return file.error();
  Result<uint64_t> sampled = sampledHash(*file);
  if (sampled.failed())
    return sampled.error();
  char hash[20];
  std::snprintf(hash, sizeof hash, "%016llx", (unsigned long long)*sampled);
  return form + ", " + std::to_string(file->size()) + " bytes, " + hash;
}

} // namespace

Result<std::string> zorse::runtime::dataFingerprint(const std::string &specification,
                                                    const TokenReading &reading) {
  if (streamOf(specification))
    return std::string("a stream");
  std::map<std::string, std::vector<std::string>> shards; // by input; token files have the empty
                                                          // key
  for (size_t begin = 0; begin <= specification.size();) {
    size_t end = std::min(specification.find(',', begin), specification.size());
    std::string part = specification.substr(begin, end - begin);
    begin = end + 1;
    size_t equals = part.find('=');
    const std::string name = equals == std::string::npos ? "" : part.substr(0, equals);
    const std::string path = equals == std::string::npos ? withoutBytes(part)
                                                         : part.substr(equals + 1);
    const std::string prefix =
        equals == std::string::npos ? part.substr(0, part.size() - path.size()) : "";
    Result<std::vector<std::string>> files = filesOf(path);
    if (files.failed())
      return files.error();
    for (const std::string &file : *files) {
      Result<std::string> described = describeFile(name, prefix + file, reading);
      if (described.failed())
        return described.error();
      shards[name].push_back(*described);
    }
  }
  // The order of inputs does not matter, the order of an input's shards does.
  std::vector<std::string> parts;
  for (const auto &[name, list] : shards)
    for (size_t i = 0; i < list.size(); ++i)
      parts.push_back((list.size() > 1 ? "shard " + std::to_string(i) + ": " : "") + list[i]);
  std::sort(parts.begin(), parts.end());
  std::string text;
  for (const std::string &part : parts)
    text += (text.empty() ? "" : "; ") + part;
  return text;
}
