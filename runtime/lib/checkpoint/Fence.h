// The fencing token DIR/generation: "GENERATION CLAIM". The claim is a random number that
// distinguishes two runs with the same generation.
#pragma once

#include "Storage.h"
#include "zorse/runtime/Status.h"

#include <optional>
#include <string>

namespace zorse::runtime {

struct FencingToken {
  uint64_t generation = 0;
  std::string ownerId;
};

/// Returns nullopt if there is no token.
Result<std::optional<FencingToken>> readToken(CheckpointStorage &storage,
                                              const std::string &directory);

/// Creates the directory and writes a token of `generation`, which must be newer than the existing
/// token.
Result<FencingToken> takeOwnership(CheckpointStorage &storage, const std::string &directory,
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
  Fence(CheckpointStorage &storage, std::string directory, FencingToken mine)
      : storage_(storage), directory_(std::move(directory)), mine_(std::move(mine)) {}

  /// Returns nullopt if the directory belongs to this run. Otherwise the run is superseded, or the
  /// token cannot be read. A token of an older generation, which an older run wrote late, is
  /// replaced.
  std::optional<CheckpointError> check() const;

  const std::string &directory() const { return directory_; }
  uint64_t generation() const { return mine_.generation; }
  CheckpointStorage &storage() const { return storage_; }

private:
  CheckpointStorage &storage_;
  std::string directory_;
  FencingToken mine_;
};

} // namespace zorse::runtime
