#include "WriteFile.h"

#include "Folders.h"

#include <xxhash.h>

#include <cstring>
#include <functional>

using namespace zorse::runtime;

namespace {

constexpr uint64_t kWrite = 16u << 20, kStartSync = 64u << 20;

/// A draft beside its place; `commit` puts it there, everything else removes it, unless the directory is another run's.
class Draft {
public:
  Draft(const Fence &fence, const std::string &folder, const std::string &name)
      : fence_(fence), path_(folder + "/" + name), draft_(folder + "/" + name + kDraftSuffix) {}

  ~Draft() {
    if (handle_ >= 0)
      fence_.storage().close(handle_);
    if (made_ && !fence_.check())
      fence_.storage().remove(draft_);
  }

  std::optional<SnapshotTrouble> open(uint64_t bytes) {
    if (auto trouble = fence_.check())
      return trouble;
    if (int cause = fence_.storage().create(draft_, handle_))
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

std::optional<SnapshotTrouble> zorse::runtime::writeDeviceFile(const Fence &fence, const std::string &folder, const DeviceLayout &layout, const std::byte *copy,
                                                               double optimizerStep, DeviceFileSums &sums) {
  std::string head = layout.header;
  if (layout.optimizerStep)
    head.append(reinterpret_cast<const char *>(&optimizerStep), 8);
  sums.head = XXH64(head.data(), head.size(), 0);
  sums.slices.clear();

  Draft draft(fence, folder, layout.name);
  if (auto trouble = draft.open(layout.fileBytes))
    return trouble;
  if (auto trouble = draft.write(head.data(), head.size()))
    return trouble;
  uint64_t begin = 0, end = 0; // hashed and not written yet
  for (const LaidSlice &laid : layout.slices) {
    sums.slices.push_back(XXH64(copy + laid.place, laid.slice.bytes(), 0));
    end = laid.place + laid.slice.bytes();
    if (end - begin < kWrite && &laid != &layout.slices.back())
      continue;
    if (auto trouble = draft.write(copy + begin, end - begin))
      return trouble;
    begin = end;
  }
  return draft.commit();
}

std::optional<SnapshotTrouble> zorse::runtime::writeIndexFile(const Fence &fence, const std::string &folder, const std::string &text) {
  Draft draft(fence, folder, kIndexName);
  if (auto trouble = draft.open(text.size()))
    return trouble;
  if (auto trouble = draft.write(text.data(), text.size()))
    return trouble;
  return draft.commit();
}
