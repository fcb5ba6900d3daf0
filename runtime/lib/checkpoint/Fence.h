// Who may write into a checkpoint directory: the start of the job with the newest claim.
//
//   DIR/claims/00000007    the claim of generation 7; created once, and never changed. It contains
//                          a random number, by which ranks notice that they see other directories
//
// Creation is atomic, so of several starts with the same number one wins. An older start that was
// suspended cannot take the directory back: claims only grow.
#pragma once

#include "Storage.h"
#include "zorse/runtime/Status.h"

#include <optional>
#include <string>

namespace zorse::runtime {

struct Claim {
  uint64_t generation = 0;
  std::string ownerId;
};

/// Returns the newest claim; nullopt if there is none.
Result<std::optional<Claim>> newestClaim(CheckpointStorage &storage, const std::string &directory);

/// Creates the directory and claims it for `generation`, which must be newer than all claims.
/// Removes older claims.
Result<Claim> claimDirectory(CheckpointStorage &storage, const std::string &directory,
                             uint64_t generation);

/// Why something was not written.
struct CheckpointError {
  std::string text;
  bool superseded = false; ///< another run has taken over: this run must end and change no files
  bool newer = false; ///< that run has a newer generation, so the folders of this generation have
                      ///< no other writer
};

/// Checks before every write, rename and removal whether the directory still belongs to this run.
/// If the process is suspended between the check and the change, the change is late. Writers
/// therefore check again afterwards and undo the change.
class Fence {
public:
  Fence(CheckpointStorage &storage, std::string directory, Claim mine)
      : storage_(storage), directory_(std::move(directory)), mine_(std::move(mine)) {}

  /// Returns nullopt if the directory belongs to this run. Otherwise the run is superseded, or the
  /// claims cannot be read.
  std::optional<CheckpointError> check() const;

  const std::string &directory() const { return directory_; }
  uint64_t generation() const { return mine_.generation; }
  CheckpointStorage &storage() const { return storage_; }

private:
  CheckpointStorage &storage_;
  std::string directory_;
  Claim mine_;
};

} // namespace zorse::runtime
