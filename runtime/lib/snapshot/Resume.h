// Loads a snapshot into the devices of this process.
#pragma once

#include "Storage.h"

#include "zorse/runtime/SnapshotFiles.h"

#include <map>
#include <memory>
#include <string>

namespace zorse::runtime {

/// What one rank says of one snapshot.
struct ResumeVerdict {
  enum Kind : uint8_t { Good, Damaged, Refused } kind = Good;
  std::string text; ///< why not
  std::string note; ///< of a good one: what differs and was allowed
  uint64_t step = 0, samplesConsumed = 0;
};

/// Reads what this process's devices hold, verifies it and writes it into them. After anything but Good their state is unspecified.
/// \param frozenHashes  of frozen parameters that the devices hold, by index in the bundle
ResumeVerdict loadSnapshot(const std::string &path, std::shared_ptr<SnapshotStorage> storage, Executor &executor, const Bundle &bundle,
                           const RunIdentity &identity, const std::map<uint32_t, uint64_t> &frozenHashes, bool allowChange);

} // namespace zorse::runtime
