// Lists and removes the entries of a checkpoint directory.
#pragma once

#include "Fence.h"

#include "zorse/runtime/CheckpointFiles.h"

#include <set>
#include <string>

namespace zorse::runtime {

inline constexpr const char *kIndexName = "index.json", *kDraftSuffix = ".writing";

/// "step-00000120.g2"
std::string directoryName(uint64_t step, uint64_t generation);

Result<std::vector<CheckpointDirectory>> listCheckpoints(CheckpointStorage &storage,
                                                         const std::string &directory);

/// Removes a folder that this program created, the index first, so that it is no longer a
/// checkpoint. Other files are kept, and the folder with them.
std::optional<CheckpointError> removeCheckpoint(const Fence &fence, const std::string &name);

/// Called after `newest` has become complete. Removes complete checkpoints beyond `keep` and all
/// older incomplete ones. The ones in `damaged` do not count as complete.
std::optional<CheckpointError> removeOldCheckpoints(const Fence &fence, const std::string &newest,
                                                    uint64_t keep,
                                                    const std::set<std::string> &damaged);

/// Notes that this start of the job has progressed: its first checkpoint in memory is committed.
/// describeProgress reads it.
void noteProgress(CheckpointStorage &storage, const std::string &directory, uint64_t generation,
                  uint64_t step);

} // namespace zorse::runtime
