// The entries of a directory of snapshots.
#pragma once

#include "Fence.h"

#include "zorse/runtime/SnapshotFiles.h"

#include <set>
#include <string>

namespace zorse::runtime {

inline constexpr const char *kIndexName = "index.json", *kDraftSuffix = ".writing";

/// "step-00000120.g2"
std::string folderName(uint64_t step, uint64_t generation);

Result<std::vector<SnapshotFolder>> listSnapshots(SnapshotStorage &storage, const std::string &directory);

/// Removes a folder that this class of files made: the index first, so that it is no snapshot any more. Files of others stay, and then the folder
/// too.
std::optional<SnapshotTrouble> removeSnapshot(const Fence &fence, const std::string &name);

/// After `newest` has become complete: removes complete ones beyond `keep` and all incomplete ones before it. Those in `damaged` do not
/// count as complete.
std::optional<SnapshotTrouble> removeOldSnapshots(const Fence &fence, const std::string &newest, uint64_t keep, const std::set<std::string> &damaged);

} // namespace zorse::runtime
