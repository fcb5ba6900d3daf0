#include "Fence.h"

#include "zorse/runtime/Checkpoint.h"

#include <cerrno>
#include <functional>
#include <random>

using namespace zorse::runtime;

namespace {

constexpr size_t kLargestToken = 128;

std::string tokenPath(const std::string &directory) { return directory + "/generation"; }

std::string textOf(const FencingToken &token) {
  return std::to_string(token.generation) + " " + token.ownerId + "\n";
}

std::string superseded(const std::string &directory, uint64_t by, uint64_t mine) {
  return directory + ": superseded by generation " + std::to_string(by) +
         " (this run is generation " + std::to_string(mine) +
         "): a newer run of the job writes there; this run ends";
}

std::string randomOwnerId() {
  std::random_device device;
  char text[20];
  std::snprintf(text, sizeof text, "%08x%08x", unsigned(device()), unsigned(device()));
  return text;
}

} // namespace

Result<std::optional<FencingToken>> zorse::runtime::readToken(CheckpointStorage &storage,
                                                              const std::string &directory) {
  std::string path = tokenPath(directory), text;
  int cause = readWhole(storage, path, kLargestToken, text);
  if (cause == ENOENT || cause == ENOTDIR)
    return std::optional<FencingToken>();
  if (cause)
    return userError(cannot(path, "read", cause));
  FencingToken token;
  size_t at = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9' && at < 19; ++at)
    token.generation = token.generation * 10 + uint64_t(text[at] - '0');
  bool good = at > 0 && at < text.size() && (text[at] == ' ' || text[at] == '\n');
  if (good && text[at] == ' ')
    for (++at; at < text.size() &&
               ((text[at] >= '0' && text[at] <= '9') || (text[at] >= 'a' && text[at] <= 'f'));
         ++at)
      token.ownerId += text[at];
  if (!good || at + 1 != text.size() || text[at] != '\n')
    return userError(path + ": expects the number of a generation, got something else; if no run "
                            "writes here, remove the file");
  return std::optional<FencingToken>(token);
}

/// Writes a draft and renames it; `ready` is called before the rename. The draft's name is random,
/// because several ranks may write the same token.
static Status putToken(CheckpointStorage &storage, const std::string &directory,
                       const FencingToken &token, const std::function<Status()> &ready) {
  std::string draft = tokenPath(directory) + ".writing." + randomOwnerId(), text = textOf(token);
  int handle = -1;
  if (int cause = storage.create(draft, handle))
    return userError(cannot(draft, "written", cause));
  int cause = storage.write(handle, reinterpret_cast<const std::byte *>(text.data()), text.size());
  if (!cause)
    cause = storage.sync(handle);
  if (int closing = storage.close(handle); !cause)
    cause = closing;
  Status status = cause ? Status(userError(cannot(draft, "written", cause))) : ready();
  if (status.succeeded())
    if (int renaming = storage.rename(draft, tokenPath(directory)))
      status = userError(cannot(tokenPath(directory), "written", renaming));
  if (status.succeeded())
    if (int syncing = storage.syncDirectory(directory))
      status = userError(cannot(directory, "written", syncing));
  if (status.failed())
    storage.remove(draft);
  return status;
}

Result<FencingToken> zorse::runtime::takeOwnership(CheckpointStorage &storage,
                                                   const std::string &directory,
                                                   uint64_t generation) {
  if (int cause = storage.makeDirectory(directory))
    return userError(cannot(directory, "made", cause));
  auto claimed = [&]() -> Status {
    Result<std::optional<FencingToken>> there = readToken(storage, directory);
    if (there.failed())
      return there.error();
    if (*there && (*there)->generation >= generation)
      return userError(directory + ": generation " + std::to_string((*there)->generation) +
                       " writes there, this run is generation " + std::to_string(generation) +
                       ": a newer run has taken over, or one of the same number; stop one of them");
    return Status::success();
  };
  FencingToken mine = {generation, randomOwnerId()};
  if (Status status = claimed(); status.failed())
    return status;
  if (Status status = putToken(storage, directory, mine, claimed); status.failed())
    return status;
  return mine;
}

std::optional<CheckpointError> Fence::check() const {
  Result<std::optional<FencingToken>> there = readToken(storage_, directory_);
  if (there.failed())
    return CheckpointError{there.message()};
  if (!*there)
    return CheckpointError{tokenPath(directory_) + ": is gone"};
  if ((*there)->generation == mine_.generation && (*there)->ownerId == mine_.ownerId)
    return std::nullopt;
  if ((*there)->generation < mine_.generation) {
    if (Status status = putToken(storage_, directory_, mine_, Status::success); status.failed())
      return CheckpointError{status.message()};
    return std::nullopt;
  }
  return CheckpointError{superseded(directory_, (*there)->generation, mine_.generation), true,
                         (*there)->generation > mine_.generation};
}

Result<uint64_t> zorse::runtime::newestGeneration(const std::string &directory) {
  CheckpointStorage storage;
  Result<std::optional<FencingToken>> token = readToken(storage, directory);
  if (token.failed())
    return token.error();
  return *token ? (*token)->generation : uint64_t(0);
}

Status zorse::runtime::checkFence(const std::string &directory, uint64_t generation) {
  Result<uint64_t> newest = newestGeneration(directory);
  // A directory that cannot be read, because its disk fails or it is gone, gives no evidence of a
  // newer generation. It must not cost the files on other disks.
  if (!newest.failed() && *newest > generation)
    return userError(superseded(directory, *newest, generation));
  return Status::success();
}
