// Loads a checkpoint into the devices of this process.
#pragma once

#include "Storage.h"

#include "zorse/runtime/CheckpointFiles.h"

#include <map>
#include <memory>
#include <string>

namespace zorse::runtime {

/// One rank's result for one checkpoint.
struct CheckpointStatus {
  enum Kind : uint8_t { Good, Damaged, Refused } kind = Good;
  std::string text; ///< reason if not Good
  std::string note; ///< differences that were allowed, if Good
  uint64_t step = 0, consumedSamples = 0;
};

/// Opens a checkpoint in storage. Its index must be that of the directory.
Result<CheckpointReader> openCheckpointDirectory(const std::string &path,
                                                 std::shared_ptr<CheckpointStorage> storage);

/// Reads the state of this process's devices, verifies it and writes it to the devices. If the
/// result is not Good, their state is unspecified.
/// \param checkpoint  an error means that it is damaged
/// \param frozenHashes  hashes of the devices' frozen parameters, by index in the bundle
CheckpointStatus loadCheckpoint(const Result<CheckpointReader> &checkpoint, Executor &executor,
                                const Bundle &bundle, const RunConfig &runConfig,
                                const std::map<uint32_t, uint64_t> &frozenHashes, bool allowChange);

} // namespace zorse::runtime
