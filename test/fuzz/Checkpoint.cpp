// Fuzzes snapshots: index and rank files in a storage in memory, the fencing token, and
// acknowledgements of ranks.
#include "Fuzz.h"
#include "fuzz.pb.h"

#include "checkpoint/Acknowledgement.h"
#include "checkpoint/Fence.h"
#include "checkpoint/Storage.h"
#include "zorse/runtime/CheckpointFiles.h"

#include <nlohmann/json.hpp>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <map>

using namespace zorse;
using namespace zorse::runtime;
using nlohmann::ordered_json;

namespace {

/// A storage with the input's snapshot under "s/".
class Memory : public CheckpointStorage {
public:
  std::map<std::string, std::string> files;

  int open(const std::string &path, int &handle) override {
    auto found = files.find(path);
    if (found == files.end())
      return ENOENT;
    opened_.push_back(&found->second);
    handle = int(opened_.size()) - 1;
    return 0;
  }
  int size(int handle, uint64_t &bytes) override { return bytes = opened_[handle]->size(), 0; }
  int read(int handle, uint64_t offset, std::byte *target, size_t bytes) override {
    const std::string &file = *opened_[handle];
    if (offset > file.size() || bytes > file.size() - offset)
      return ENODATA;
    std::memcpy(target, file.data() + offset, bytes);
    return 0;
  }
  int close(int) override { return 0; }
  int list(const std::string &, std::vector<std::string> &names) override {
    for (const auto &[name, contents] : files)
      names.push_back(name);
    return 0;
  }

private:
  std::vector<const std::string *> opened_;
};

std::string hash(std::string_view bytes) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx",
                (unsigned long long)XXH64(bytes.data(), bytes.size(), 0));
  return text;
}

/// Returns the index with correct checksums of the files, so that mutated files pass the checks.
std::string corrected(const std::string &index, const Memory &storage) {
  ordered_json root = ordered_json::parse(index, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object())
    return index;
  auto number = [](const ordered_json &from, const char *name) {
    return from.is_object() && from.contains(name) && from[name].is_number_unsigned()
               ? from[name].get<uint64_t>()
               : UINT64_MAX;
  };
  if (root.contains("files") && root["files"].is_array())
    for (ordered_json &file : root["files"]) {
      if (!file.is_object() || !file.contains("file") || !file["file"].is_string())
        continue;
      auto found = storage.files.find("s/" + file["file"].get<std::string>());
      if (found == storage.files.end())
        continue;
      std::string_view contents = found->second;
      uint64_t head = number(file, "header_bytes");
      if (head <= contents.size())
        file["header_xxh64"] = hash(contents.substr(0, head));
      if (file.contains("shards") && file["shards"].is_array())
        for (ordered_json &slice : file["shards"]) {
          uint64_t begin = number(slice, "begin"), end = number(slice, "end"),
                   offset = number(slice, "offset");
          uint64_t bytes = begin <= end && end - begin <= contents.size() ? (end - begin) * 4
                                                                          : UINT64_MAX;
          if (offset <= contents.size() && bytes <= contents.size() - offset)
            slice["xxh64"] = hash(contents.substr(offset, bytes));
        }
    }
  root.erase("checksum");
  std::string text = root.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  text.pop_back();
  return text + ",\n\"checksum\": \"" + hash(text) + "\"\n}\n";
}

} // namespace

bool fuzz::readOne(std::string_view bytes) {
  SnapshotInput input;
  if (!input.ParseFromArray(bytes.data(), int(bytes.size())))
    return false;
  auto storage = std::make_shared<Memory>();
  for (const SnapshotInput::File &file : input.files())
    storage->files["s/" + file.name()] = file.contents();
  std::string index = input.as_is() ? input.index() : corrected(input.index(), *storage);
  storage->files["s/index.json"] = index;
  storage->files["d/generation"] = input.token();

  (void)newestClaim(*storage, "d").failed();
  Acknowledgement acknowledgement = parseAcknowledgement(input.acknowledgement(), 1);
  if (!acknowledgement.error)
    ZORSE_FUZZ_EXPECT(!parseAcknowledgement(writeAcknowledgement(acknowledgement), 1).error);

  Result<CheckpointReader> reader = CheckpointReader::open("s", storage);
  if (isOneIn(8, bytes)) {
    ExactCopy exact(index);
    ZORSE_FUZZ_EXPECT(parseCheckpointIndex("i", exact.data(), exact.size()).failed() ==
                      reader.failed());
  }
  if (reader.failed()) {
    ZORSE_FUZZ_EXPECT(!reader.message().empty());
    return false;
  }
  // A written index is read back as the same index.
  if (isOneIn(4, bytes)) {
    std::string written = writeCheckpointIndex(reader->index());
    Result<CheckpointIndex> again = parseCheckpointIndex("again", written.data(), written.size());
    ZORSE_FUZZ_EXPECT(!again.failed() && writeCheckpointIndex(*again) == written);
  }

  if (reader->verify().failed())
    return false;
  for (uint32_t p = 0; p < reader->index().parameters.size(); ++p) {
    const CheckpointParameter &parameter = reader->index().parameters[p];
    ZORSE_FUZZ_EXPECT(parameter.storedShape().size() == parameter.shape.size());
    if (!parameter.trainable || parameter.elements() > 4096)
      continue;
    for (int32_t moment = -1; moment < int32_t(reader->index().parameters[p].states.size());
         ++moment) {
      std::vector<std::byte> tensor(uint64_t(parameter.elements()) * bytesOf(parameter.type));
      (void)reader->readTensor(p, moment, parameter.type, tensor.data()).failed();
    }
  }
  return true;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize,
                                          unsigned seed) {
  fuzz::Random random(seed);
  fuzz::SnapshotInput input;
  unsigned kind = random() % 8;
  if (kind > 4 || !input.ParseFromArray(data, int(size)))
    return fuzz::mutateMessage(fuzz::SnapshotInput(), data, size, maxSize, seed);
  std::string *text = kind < 4 ? input.mutable_index() : input.mutable_acknowledgement();
  *text = fuzz::mutateJson(*text, random);
  std::string bytes = input.SerializeAsString();
  return bytes.size() <= maxSize ? fuzz::put(bytes, data, maxSize) : size;
}
