// Last uses of device memory. ExecutorOptions::spoil overwrites bytes after their last use, so that
// a program that reads them later gives wrong results.
#pragma once

#include "bundle.pb.h"

#include <cstdint>
#include <vector>

namespace zorse::runtime {

/// Bytes that are dead once an instruction of a training step is complete.
struct LastUse {
  std::vector<bundle::Region> regions;
  std::vector<uint32_t> after; ///< earlier instructions that must also be complete, because their
                               ///< queues may be later
};

/// Returns the dead bytes by instruction of the program. Bytes are dead after the last access
/// before they are overwritten, in this step or the next one. Persistent state is never dead.
std::vector<LastUse> lastUsesOf(const bundle::Program &program,
                                const bundle::FunctionLibrary &functions);

} // namespace zorse::runtime
