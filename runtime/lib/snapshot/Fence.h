// The fencing token DIR/generation: "GENERATION CLAIM", the claim being a random number that tells two runs of one generation apart.
#pragma once

#include "Storage.h"
#include "zorse/runtime/Status.h"

#include <optional>
#include <string>

namespace zorse::runtime {

struct FencingToken {
  uint64_t generation = 0;
  std::string claim;
};

/// nullopt when there is none.
Result<std::optional<FencingToken>> readToken(SnapshotStorage &storage, const std::string &directory);

/// Makes the directory and writes a token of `generation`, which must be newer than what is there.
Result<FencingToken> claimDirectory(SnapshotStorage &storage, const std::string &directory, uint64_t generation);

/// What kept something from being written.
struct SnapshotTrouble {
  std::string text;
  bool superseded = false; ///< another run has taken over: this run must end, and touch nothing.
  bool newer = false;      ///< and that run is of a newer generation, so that the folders of this generation have no other writer.
};

/// Asks before every write, rename and removal whether the directory is still this run's. A process that is stopped between the question and the
/// change makes the change late; whoever writes asks again afterwards, and takes it back.
class Fence {
public:
  Fence(SnapshotStorage &storage, std::string directory, FencingToken mine)
      : storage_(storage), directory_(std::move(directory)), mine_(std::move(mine)) {}

  /// nullopt: still ours. Otherwise superseded, or the token cannot be read. A token of an older generation, which an older run has put there late,
  /// is replaced.
  std::optional<SnapshotTrouble> check() const;

  const std::string &directory() const { return directory_; }
  uint64_t generation() const { return mine_.generation; }
  SnapshotStorage &storage() const { return storage_; }

private:
  SnapshotStorage &storage_;
  std::string directory_;
  FencingToken mine_;
};

} // namespace zorse::runtime
