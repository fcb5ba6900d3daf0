// Reads checkpoints. Their content may be arbitrary and is checked.
#include "Directories.h"
#include "Json.h"
#include "ShardSource.h"
#include "Storage.h"

#include "zorse/runtime/CheckpointFiles.h"

#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

using namespace zorse::runtime;

namespace {

std::string sliceText(const CheckpointIndex &index, const CheckpointShard &slice) {
  return "slice '" +
         std::string(slice.moment < 0 ? "" : "moment." + std::to_string(slice.moment) + "/") +
         index.parameters[slice.parameter].name + "@" + std::to_string(slice.begin) + ":" +
         std::to_string(slice.end) + "'";
}

/// A file open for reading.
class OpenFile {
public:
  OpenFile(CheckpointStorage &storage) : storage_(storage) {}
  ~OpenFile() {
    if (handle >= 0)
      storage_.close(handle);
  }
  int handle = -1;

private:
  CheckpointStorage &storage_;
};

/// The files in the directory of a checkpoint.
class FileSource final : public ShardSource {
public:
  FileSource(std::string path, std::shared_ptr<CheckpointStorage> storage)
      : path_(std::move(path)), storage_(std::move(storage)) {}

  Status
  read(const CheckpointIndex &index, const CheckpointFile &file, const std::vector<size_t> &wanted,
       const std::function<void(const CheckpointShard &, const std::byte *)> &take) const override {
    std::string path = path_ + "/" + file.name;
    OpenFile open(*storage_);
    if (int cause = storage_->open(path, open.handle))
      return userError(cannot(path, "read", cause));
    uint64_t bytes = 0;
    if (int cause = storage_->size(open.handle, bytes))
      return userError(cannot(path, "read", cause));
    if (bytes != file.bytes)
      return userError(path + ": has " + std::to_string(bytes) + " bytes, expected " +
                       std::to_string(file.bytes) + ": it is " +
                       (bytes < file.bytes ? "truncated" : "damaged"));

    std::vector<std::byte> buffer;
    auto verified = [&](uint64_t offset, uint64_t size, uint64_t expected,
                        const std::string &what) -> Status {
      if (buffer.size() < size)
        buffer.resize(size);
      if (int cause = storage_->read(open.handle, offset, buffer.data(), size))
        return userError(cannot(path, "read", cause) + " (" + what + ")");
      uint64_t found = XXH64(buffer.data(), size, 0);
      if (found != expected)
        return userError(path + ": " + what + ": its checksum is " + hexadecimal(found) +
                         ", expected " + hexadecimal(expected) + ": it is damaged");
      return Status::success();
    };
    if (Status status = verified(0, file.headerBytes, file.headerHash, "its header");
        status.failed())
      return status;
    for (size_t i : wanted) {
      const CheckpointShard &slice = file.shards[i];
      if (Status status =
              verified(slice.offset, slice.bytes(), slice.hash, sliceText(index, slice));
          status.failed())
        return status;
      take(slice, buffer.data());
    }
    return Status::success();
  }

private:
  std::string path_;
  std::shared_ptr<CheckpointStorage> storage_;
};

} // namespace

ShardSource::~ShardSource() = default;

Result<CheckpointReader> CheckpointReader::open(const std::string &path,
                                                std::shared_ptr<CheckpointStorage> storage) {
  if (!storage)
    storage = makePosixStorage();
  std::string name = path + "/" + kIndexName, text;
  if (int cause = readWhole(*storage, name, kLargestCheckpointIndex, text))
    return userError(cannot(name, "read", cause));
  Result<CheckpointIndex> index = parseCheckpointIndex(name, text.data(), text.size());
  if (index.failed())
    return index.error();
  return of(path, std::move(*index), std::make_shared<FileSource>(path, std::move(storage)));
}

CheckpointReader CheckpointReader::of(std::string path, CheckpointIndex index,
                                      std::shared_ptr<const ShardSource> source) {
  CheckpointReader reader;
  reader.path_ = std::move(path);
  reader.index_ = std::move(index);
  reader.source_ = std::move(source);
  return reader;
}

Status CheckpointReader::read(
    size_t number, const std::vector<size_t> &wanted,
    const std::function<void(const CheckpointShard &, const std::byte *)> &take) const {
  return source_->read(index_, index_.files[number], wanted, take);
}

Status CheckpointReader::readTensor(uint32_t parameter, int32_t moment, StoredType type,
                                    std::byte *target) const {
  for (size_t f = 0; f < index_.files.size(); ++f) {
    std::vector<size_t> wanted;
    for (size_t s = 0; s < index_.files[f].shards.size(); ++s)
      if (index_.files[f].shards[s].parameter == parameter &&
          index_.files[f].shards[s].moment == moment)
        wanted.push_back(s);
    if (wanted.empty())
      continue;
    auto take = [&](const CheckpointShard &slice, const std::byte *data) {
      convertElements(data, slice.type, target + uint64_t(slice.begin) * bytesOf(type), type,
                      slice.end - slice.begin);
    };
    if (Status status = read(f, wanted, take); status.failed())
      return status;
  }
  return Status::success();
}

Status CheckpointReader::verify() const {
  for (size_t f = 0; f < index_.files.size(); ++f) {
    std::vector<size_t> all(index_.files[f].shards.size());
    for (size_t s = 0; s < all.size(); ++s)
      all[s] = s;
    if (Status status = read(f, all, [](const CheckpointShard &, const std::byte *) {});
        status.failed())
      return status;
  }
  return Status::success();
}
