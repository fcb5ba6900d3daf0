// Functions that the stand-ins share.
#pragma once

#include "Streams.h"

namespace zorse::emulator {

/// Puts work on a stream. Ignores accesses outside of the emulated GPUs' memory and pinned memory.
/// \returns a CUDA result code.
__attribute__((visibility("default"))) int zorseStandInPut(Stream *stream, const std::string &what,
                                                           std::vector<Access> accesses,
                                                           std::function<std::string()> run);

/// The stream's work may wait for work of other streams: the stream gets a thread if it has none.
__attribute__((visibility("default"))) void zorseStandInApart(Stream *stream);

/// A library connects to a new peer, which takes memory and time.
__attribute__((visibility("default"))) void zorseStandInConnects();

/// A library loads a kernel onto the GPU. Waits for all work on the GPU's streams.
__attribute__((visibility("default"))) void zorseStandInLoads();

/// Whether work put on the stream now is skipped (ZORSE_EMULATOR_IDLE).
__attribute__((visibility("default"))) bool zorseStandInLeavesOut(const Stream *stream);

/// Whether kernels and products compute, or only take their time (ZORSE_EMULATOR_COMPUTE).
__attribute__((visibility("default"))) bool zorseStandInComputes();

/// workBegan and workLasts of Streams.h.
__attribute__((visibility("default"))) double zorseStandInBegan();
__attribute__((visibility("default"))) void zorseStandInLasts(double until);

/// Seconds per byte to or from a GPU (ZORSE_EMULATOR_LINK); 0: no time.
__attribute__((visibility("default"))) double zorseStandInLinkSeconds();

/// The current GPU of the calling thread; -1: none.
__attribute__((visibility("default"))) int zorseStandInUnit();

/// 10 * major + minor of the current GPU's capability; 0: none.
__attribute__((visibility("default"))) int zorseStandInCapability();

} // namespace zorse::emulator
