#include "Fence.h"

#include "zorse/runtime/Checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <random>
#include <vector>

using namespace zorse::runtime;

namespace {

constexpr size_t kLargestClaim = 128;
constexpr size_t kDigits = 19; ///< of the largest generation

std::string claimsPath(const std::string &directory) { return directory + "/claims"; }

std::string claimPath(const std::string &directory, uint64_t generation) {
  char name[32];
  std::snprintf(name, sizeof name, "/%08llu", (unsigned long long)generation);
  return claimsPath(directory) + name;
}

/// Parses decimal digits; 0 if the text is something else.
uint64_t numberOf(const std::string &text) {
  if (text.empty() || text.size() > kDigits ||
      text.find_first_not_of("0123456789") != std::string::npos)
    return 0;
  return std::stoull(text);
}

/// The generation in DIR/generation, which earlier versions replaced at every start; 0: none.
Result<uint64_t> earlierVersion(CheckpointStorage &storage, const std::string &directory) {
  const std::string path = directory + "/generation";
  std::string text;
  const int cause = readWhole(storage, path, kLargestClaim, text);
  if (cause == ENOENT || cause == ENOTDIR)
    return uint64_t(0);
  if (cause)
    return userError(cannot(path, "read", cause));
  const uint64_t generation = numberOf(text.substr(0, text.find_first_of(" \n")));
  if (generation == 0)
    return userError(path + ": expects the number of a generation, got something else; if no run "
                            "writes here, remove the file");
  return generation;
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

Error taken(const std::string &directory, uint64_t by, uint64_t mine) {
  return userError(directory + ": generation " + std::to_string(by) +
                   " writes there, this run is generation " + std::to_string(mine) +
                   ": a newer run has taken over, or one of the same number; stop one of them");
}

/// Creates a claim with its content. Returns an errno value, EEXIST if there is one.
int create(CheckpointStorage &storage, const std::string &path, const std::string &text) {
  int handle = -1;
  int cause = storage.createExclusive(path, handle);
  if (cause)
    return cause;
  cause = storage.write(handle, reinterpret_cast<const std::byte *>(text.data()), text.size());
  if (!cause)
    cause = storage.sync(handle);
  if (const int closing = storage.close(handle); !cause)
    cause = closing;
  if (cause)
    storage.remove(path);
  return cause;
}

/// All claims, ascending.
int listClaims(CheckpointStorage &storage, const std::string &directory,
               std::vector<uint64_t> &claims) {
  std::vector<std::string> names;
  const int cause = storage.list(claimsPath(directory), names);
  if (cause)
    return cause == ENOENT || cause == ENOTDIR ? 0 : cause;
  for (const std::string &name : names)
    if (const uint64_t generation = numberOf(name); generation > 0)
      claims.push_back(generation);
  std::sort(claims.begin(), claims.end());
  return 0;
}

} // namespace

Result<std::optional<Claim>> zorse::runtime::newestClaim(CheckpointStorage &storage,
                                                         const std::string &directory) {
  Result<uint64_t> earlier = earlierVersion(storage, directory);
  if (earlier.failed())
    return earlier.error();
  std::vector<uint64_t> claims;
  if (const int cause = listClaims(storage, directory, claims))
    return userError(cannot(claimsPath(directory), "read", cause));
  Claim newest;
  newest.generation = std::max(*earlier, claims.empty() ? 0 : claims.back());
  if (newest.generation == 0)
    return std::optional<Claim>();
  if (newest.generation > *earlier) {
    // Empty for a moment: its owner has created it and not written it yet.
    const std::string path = claimPath(directory, newest.generation);
    const int cause = readWhole(storage, path, kLargestClaim, newest.ownerId);
    if (cause && cause != ENOENT) // a newer claim may have removed it
      return userError(cannot(path, "read", cause));
    if (!newest.ownerId.empty() && newest.ownerId.back() == '\n')
      newest.ownerId.pop_back();
  }
  return std::optional<Claim>(newest);
}

Result<Claim> zorse::runtime::claimDirectory(CheckpointStorage &storage,
                                             const std::string &directory, uint64_t generation) {
  const std::string claims = claimsPath(directory), path = claimPath(directory, generation);
  if (const int cause = storage.makeDirectory(claims))
    return userError(cannot(directory, "made", cause));
  auto allBefore = [&](uint64_t bound) -> Status {
    Result<std::optional<Claim>> newest = newestClaim(storage, directory);
    if (newest.failed())
      return newest.error();
    return *newest && (*newest)->generation >= bound
               ? Status(taken(directory, (*newest)->generation, generation))
               : Status::success();
  };
  if (Status status = allBefore(generation); status.failed())
    return status.error();
  const Claim mine = {generation, randomOwnerId()};
  const int cause = create(storage, path, mine.ownerId + "\n");
  if (cause == EEXIST)
    return taken(directory, generation, generation);
  if (cause)
    return userError(cannot(path, "written", cause));
  if (const int syncing = storage.syncDirectory(claims))
    return userError(cannot(claims, "written", syncing));
  if (Status status = allBefore(generation + 1); status.failed()) { // another start has claimed it
    storage.remove(path);
    return status.error();
  }
  std::vector<uint64_t> all;
  (void)listClaims(storage, directory, all);
  for (const uint64_t older : all)
    if (older < generation)
      storage.remove(claimPath(directory, older));
  return mine;
}

std::optional<CheckpointError> Fence::check() const {
  Result<std::optional<Claim>> newest = newestClaim(storage_, directory_);
  if (newest.failed())
    return CheckpointError{newest.message()};
  if (!*newest || (*newest)->generation < mine_.generation)
    return CheckpointError{claimPath(directory_, mine_.generation) + ": is gone"};
  if ((*newest)->generation == mine_.generation && (*newest)->ownerId == mine_.ownerId)
    return std::nullopt;
  return CheckpointError{superseded(directory_, (*newest)->generation, mine_.generation), true,
                         (*newest)->generation > mine_.generation};
}

Result<uint64_t> zorse::runtime::newestGeneration(const std::string &directory) {
  CheckpointStorage storage;
  Result<std::optional<Claim>> newest = newestClaim(storage, directory);
  if (newest.failed())
    return newest.error();
  return *newest ? (*newest)->generation : uint64_t(0);
}

Status zorse::runtime::checkFence(const std::string &directory, uint64_t generation) {
  Result<uint64_t> newest = newestGeneration(directory);
  // A directory that cannot be read, because its disk fails or it is gone, gives no evidence of a
  // newer generation. It must not cost the files on other disks.
  if (!newest.failed() && *newest > generation)
    return userError(superseded(directory, *newest, generation));
  return Status::success();
}
