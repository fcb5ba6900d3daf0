#include "Directories.h"

#include <algorithm>
#include <cerrno>
#include <tuple>

using namespace zorse::runtime;

namespace {

constexpr const char *kProgressName = "memory-progress";

bool parseName(const std::string &name, CheckpointDirectory &out) {
  auto digits = [&](size_t &at, uint64_t &value, size_t max) {
    size_t begin = at;
    for (value = 0; at < name.size() && name[at] >= '0' && name[at] <= '9' && at - begin < max;
         ++at)
      value = value * 10 + uint64_t(name[at] - '0');
    return at > begin;
  };
  size_t at = 5;
  if (name.compare(0, 5, "step-") != 0 || !digits(at, out.step, 19) ||
      name.compare(at, 2, ".g") != 0)
    return false;
  at += 2;
  out.name = name;
  return digits(at, out.generation, 19) && at == name.size() &&
         name == directoryName(out.step, out.generation);
}

bool endsWith(const std::string &text, const std::string &end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

} // namespace

std::string zorse::runtime::directoryName(uint64_t step, uint64_t generation) {
  std::string digits = std::to_string(step);
  return "step-" + std::string(digits.size() < 8 ? 8 - digits.size() : 0, '0') + digits + ".g" +
         std::to_string(generation);
}

Result<std::vector<CheckpointDirectory>>
zorse::runtime::listCheckpoints(CheckpointStorage &storage, const std::string &directory) {
  std::vector<std::string> names;
  std::vector<CheckpointDirectory> out;
  int cause = storage.list(directory, names);
  if (cause == ENOENT)
    return out;
  if (cause)
    return userError(cannot(directory, "read", cause));
  for (const std::string &name : names) {
    CheckpointDirectory folder;
    if (!parseName(name, folder))
      continue;
    int handle = -1;
    int missing = storage.open(directory + "/" + name + "/" + kIndexName, handle);
    if (!missing)
      storage.close(handle);
    folder.complete = missing != ENOENT && missing != ENOTDIR; // a folder that cannot be opened
                                                               // counts as damaged
    out.push_back(std::move(folder));
  }
  std::sort(out.begin(), out.end(), [](const CheckpointDirectory &a, const CheckpointDirectory &b) {
    return std::tie(a.generation, a.step) > std::tie(b.generation, b.step);
  });
  return out;
}

Result<std::vector<CheckpointDirectory>>
zorse::runtime::listCheckpoints(const std::string &directory) {
  CheckpointStorage storage;
  return listCheckpoints(storage, directory);
}

void zorse::runtime::noteProgress(CheckpointStorage &storage, const std::string &directory,
                                  uint64_t generation, uint64_t step) {
  const std::string path = directory + "/" + kProgressName, draft = path + kDraftSuffix,
                    text = std::to_string(generation) + " " + std::to_string(step) + "\n";
  int handle = -1;
  if (storage.create(draft, handle))
    return; // a failing disk is reported by checkpoints
  const int cause =
      storage.write(handle, reinterpret_cast<const std::byte *>(text.data()), text.size());
  if (!storage.close(handle) && !cause)
    (void)storage.rename(draft, path);
}

std::string zorse::runtime::describeProgress(const std::string &directory) {
  const std::shared_ptr<CheckpointStorage> storage = makePosixStorage();
  std::string text;
  constexpr size_t kLargest = 4096;
  (void)readWhole(*storage, directory + "/" + kProgressName, kLargest, text);
  const Result<std::vector<CheckpointDirectory>> found = listCheckpoints(*storage, directory);
  if (!found.failed())
    for (const CheckpointDirectory &checkpoint : *found)
      if (checkpoint.complete)
        return text + checkpoint.name;
  return text;
}

std::optional<CheckpointError> zorse::runtime::removeCheckpoint(const Fence &fence,
                                                                const std::string &name) {
  CheckpointStorage &storage = fence.storage();
  std::string path = fence.directory() + "/" + name;
  std::vector<std::string> names;
  int cause = storage.list(path, names);
  if (cause == ENOENT)
    return std::nullopt;
  if (cause)
    return CheckpointError{cannot(path, "removed", cause)};
  std::stable_partition(names.begin(), names.end(),
                        [](const std::string &file) { return file == kIndexName; });
  for (const std::string &file : names) {
    if (file != kIndexName && !endsWith(file, ".safetensors") && !endsWith(file, kDraftSuffix))
      continue;
    if (auto error = fence.check())
      return error;
    if ((cause = storage.remove(path + "/" + file)) && cause != ENOENT)
      return CheckpointError{cannot(path + "/" + file, "removed", cause)};
  }
  if (auto error = fence.check())
    return error;
  cause = storage.removeDirectory(path);
  return cause == 0 || cause == ENOENT || cause == ENOTEMPTY || cause == EEXIST
             ? std::nullopt
             : std::optional(CheckpointError{cannot(path, "removed", cause)});
}

std::optional<CheckpointError>
zorse::runtime::removeOldCheckpoints(const Fence &fence, const std::string &newest, uint64_t keep,
                                     const std::set<std::string> &damaged) {
  Result<std::vector<CheckpointDirectory>> found =
      listCheckpoints(fence.storage(), fence.directory());
  if (found.failed())
    return CheckpointError{found.message()};
  uint64_t kept = 1, step = 0; // the newest counts
  for (const CheckpointDirectory &directory : *found)
    if (directory.name == newest)
      step = directory.step;
  std::optional<CheckpointError> first;
  for (const CheckpointDirectory &directory : *found) {
    // Incomplete folders of this generation that are later than the newest are being written by
    // other ranks, which are ahead.
    if (directory.name == newest || directory.generation > fence.generation() ||
        (directory.generation == fence.generation() && directory.step > step))
      continue;
    if (directory.complete && !damaged.count(directory.name) &&
        kept < std::max<uint64_t>(keep, 1)) {
      ++kept;
      continue;
    }
    if (auto error = removeCheckpoint(fence, directory.name)) {
      if (error->superseded)
        return error;
      if (!first)
        first = error;
    }
  }
  return first;
}
