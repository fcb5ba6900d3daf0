#include "WriteFile.h"

#include "Folders.h"

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
class Draft {
public:
  Draft(const Fence &fence, const std::string &folder, const std::string &name)
      : fence_(fence), path_(folder + "/" + name), draft_(folder + "/" + name + kDraftSuffix) {}

  ~Draft() {
    if (handle_ >= 0)
      fence_.storage().close(handle_);
    if (!made_)
      return;
    if (auto trouble = fence_.check(); !trouble || trouble->newer)
      fence_.storage().remove(draft_);
  }

  std::optional<SnapshotTrouble> open(uint64_t bytes, bool direct) {
    if (auto trouble = fence_.check())
      return trouble;
    if (int cause = fence_.storage().create(draft_, handle_, direct))
      return cannotWrite(cause);
    made_ = true;
    if (int cause = fence_.storage().reserve(handle_, bytes))
      return cannotWrite(cause);
    return std::nullopt;
  }

  std::optional<SnapshotTrouble> write(const void *data, uint64_t bytes) {
    if (auto trouble = fence_.check())
      return trouble;
    if (int cause = fence_.storage().write(handle_, static_cast<const std::byte *>(data), bytes))
      return cannotWrite(cause);
    written_ += bytes;
    if (written_ - begun_ >= kStartSync) {
      fence_.storage().startSync(handle_, begun_, written_ - begun_);
      begun_ = written_;
    }
    return std::nullopt;
  }

  std::optional<SnapshotTrouble> commit() {
    int cause = fence_.storage().sync(handle_);
    int handle = handle_;
    handle_ = -1;
    if (int closing = fence_.storage().close(handle); !cause)
      cause = closing;
    if (cause)
      return cannotWrite(cause);
    if (auto trouble = fence_.check())
      return trouble;
    if (int renaming = fence_.storage().rename(draft_, path_))
      return cannotWrite(renaming);
    made_ = false;
    return std::nullopt;
  }

private:
  SnapshotTrouble cannotWrite(int cause) const { return {cannot(path_, "written", cause)}; }

  const Fence &fence_;
  std::string path_, draft_;
  int handle_ = -1;
  bool made_ = false;
  uint64_t written_ = 0, begun_ = 0;
};

} // namespace

std::optional<SnapshotTrouble> zorse::runtime::writeDeviceFile(const Fence &fence, const std::string &folder, const DeviceLayout &layout,
                                                               const std::byte *copy, double optimizerStep, DeviceFileSums &sums) {
  for (const LaidSlice &laid : layout.slices)
    if (laid.slice.moment < 0 && firstNotFinite(copy + laid.place, laid.slice.type, laid.slice.end - laid.slice.begin))
      return SnapshotTrouble{folder + "/" + layout.name + ": not written: the parameters hold numbers that are not finite"};
  std::unique_ptr<char, decltype(&std::free)> head(
      static_cast<char *>(std::aligned_alloc(kDirectAlignment, (layout.headBytes() + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment)),
      &std::free);
  if (!head)
    return SnapshotTrouble{cannot(folder + "/" + layout.name, "written", ENOMEM)};
  std::memcpy(head.get(), layout.header.data(), layout.header.size());
  if (layout.optimizerStep)
    std::memcpy(head.get() + layout.header.size(), &optimizerStep, 8);
  sums.head = XXH64(head.get(), layout.headBytes(), 0);
  sums.slices.resize(layout.slices.size());
  // Checksums and writing read the copy in parallel.
  std::thread hashing([&] {
    for (size_t s = 0; s < layout.slices.size(); ++s)
      sums.slices[s] = XXH64(copy + layout.slices[s].place, layout.slices[s].slice.bytes(), 0);
  });
  std::optional<SnapshotTrouble> trouble;
  {
    Draft draft(fence, folder, layout.name);
    trouble = draft.open(layout.fileBytes, /*direct=*/true);
    if (!trouble)
      trouble = draft.write(head.get(), layout.headBytes());
    for (uint64_t at = 0; at < layout.stateBytes && !trouble; at += kWrite)
      trouble = draft.write(copy + at, std::min(kWrite, layout.stateBytes - at));
    if (!trouble)
      trouble = draft.commit();
  }
  hashing.join();
  return trouble;
}

std::optional<SnapshotTrouble> zorse::runtime::writeIndexFile(const Fence &fence, const std::string &folder, const std::string &text) {
  Draft draft(fence, folder, kIndexName);
  if (auto trouble = draft.open(text.size(), /*direct=*/false))
    return trouble;
  if (auto trouble = draft.write(text.data(), text.size()))
    return trouble;
  return draft.commit();
}
