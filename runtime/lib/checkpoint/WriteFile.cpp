#include "WriteFile.h"

#include "Directories.h"

#include "zorse/runtime/Elements.h"

#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

using namespace zorse::runtime;

namespace {

constexpr uint64_t kWrite = 16u << 20, kStartSync = 64u << 20;

static_assert(kWrite % kDirectAlignment == 0);

/// A draft file next to its final name. `commit` renames it; otherwise it is removed, unless the
/// folder may belong to another run.
class TemporaryFile {
public:
  TemporaryFile(const Fence &fence, const std::string &directory, const std::string &name)
      : fence_(fence), path_(directory + "/" + name),
        draft_(directory + "/" + name + kDraftSuffix) {}

  ~TemporaryFile() {
    if (handle_ >= 0)
      fence_.storage().close(handle_);
    if (!made_)
      return;
    if (auto error = fence_.check(); !error || error->newer)
      fence_.storage().remove(draft_);
  }

  std::optional<CheckpointError> open(uint64_t bytes, bool direct) {
    if (auto error = fence_.check())
      return error;
    if (int cause = fence_.storage().create(draft_, handle_, direct))
      return cannotWrite(cause);
    made_ = true;
    if (int cause = fence_.storage().reserve(handle_, bytes))
      return cannotWrite(cause);
    return std::nullopt;
  }

  std::optional<CheckpointError> write(const void *data, uint64_t bytes) {
    if (auto error = fence_.check())
      return error;
    if (int cause = fence_.storage().write(handle_, static_cast<const std::byte *>(data), bytes))
      return cannotWrite(cause);
    written_ += bytes;
    if (written_ - begun_ >= kStartSync) {
      fence_.storage().startSync(handle_, begun_, written_ - begun_);
      begun_ = written_;
    }
    return std::nullopt;
  }

  std::optional<CheckpointError> commit() {
    int cause = fence_.storage().sync(handle_);
    int handle = handle_;
    handle_ = -1;
    if (int closing = fence_.storage().close(handle); !cause)
      cause = closing;
    if (cause)
      return cannotWrite(cause);
    if (auto error = fence_.check())
      return error;
    if (int renaming = fence_.storage().rename(draft_, path_))
      return cannotWrite(renaming);
    made_ = false;
    return std::nullopt;
  }

private:
  CheckpointError cannotWrite(int cause) const { return {cannot(path_, "written", cause)}; }

  const Fence &fence_;
  std::string path_, draft_;
  int handle_ = -1;
  bool made_ = false;
  uint64_t written_ = 0, begun_ = 0;
};

} // namespace

std::optional<CheckpointError>
zorse::runtime::writeDeviceFile(const Fence &fence, const std::string &directory,
                                const DeviceLayout &layout, const std::byte *copy,
                                double optimizerStep, DeviceFileSums &sums) {
  for (const ShardLayout &laid : layout.slices)
    if (laid.slice.moment < 0 &&
        firstNotFinite(copy + laid.fileOffset, laid.slice.type, laid.slice.end - laid.slice.begin))
      return CheckpointError{directory + "/" + layout.name +
                             ": not written: the parameters hold numbers that are not finite"};
  std::unique_ptr<char, decltype(&std::free)> head(
      static_cast<char *>(
          std::aligned_alloc(kDirectAlignment, (layout.headerBytes() + kDirectAlignment - 1) /
                                                   kDirectAlignment * kDirectAlignment)),
      &std::free);
  if (!head)
    return CheckpointError{cannot(directory + "/" + layout.name, "written", ENOMEM)};
  std::memcpy(head.get(), layout.header.data(), layout.header.size());
  if (layout.optimizerStep)
    std::memcpy(head.get() + layout.header.size(), &optimizerStep, 8);
  sums.header = XXH64(head.get(), layout.headerBytes(), 0);
  sums.slices.resize(layout.slices.size());
  // Checksums and writing read the copy in parallel.
  std::thread hashing([&] {
    for (size_t s = 0; s < layout.slices.size(); ++s)
      sums.slices[s] = XXH64(copy + layout.slices[s].fileOffset, layout.slices[s].slice.bytes(), 0);
  });
  std::optional<CheckpointError> error;
  {
    TemporaryFile file(fence, directory, layout.name);
    error = file.open(layout.fileBytes, /*direct=*/true);
    if (!error)
      error = file.write(head.get(), layout.headerBytes());
    for (uint64_t at = 0; at < layout.stateBytes && !error; at += kWrite)
      error = file.write(copy + at, std::min(kWrite, layout.stateBytes - at));
    if (!error)
      error = file.commit();
  }
  hashing.join();
  return error;
}

std::optional<CheckpointError> zorse::runtime::writeIndexFile(const Fence &fence,
                                                              const std::string &directory,
                                                              const std::string &text) {
  TemporaryFile file(fence, directory, kIndexName);
  if (auto error = file.open(text.size(), /*direct=*/false))
    return error;
  if (auto error = file.write(text.data(), text.size()))
    return error;
  return file.commit();
}
