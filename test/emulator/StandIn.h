// What the stand-ins share.
#pragma once

#include "Streams.h"

namespace zorse::emulator {

/// Puts work on a stream; accesses outside of the emulated GPUs' memory and pinned memory are left out. \returns what calls of CUDA return.
__attribute__((visibility("default"))) int zorseStandInPut(Stream *stream, const std::string &what, std::vector<Access> accesses,
                                                           std::function<std::string()> run);

/// The stream's work may wait for work of other streams: it gets a thread, if it has none.
__attribute__((visibility("default"))) void zorseStandInApart(Stream *stream);

/// A library connects to a peer that it has not exchanged with so far: takes memory, and time.
__attribute__((visibility("default"))) void zorseStandInConnects();

/// A library loads a kernel onto the GPU: waits for everything that is on its streams.
__attribute__((visibility("default"))) void zorseStandInLoads();

/// Whether what is put on the stream now is left out (ZORSE_EMULATOR_IDLE).
__attribute__((visibility("default"))) bool zorseStandInLeavesOut(const Stream *stream);

/// Whether kernels and products compute (ZORSE_EMULATOR_COMPUTE), or take their time alone.
__attribute__((visibility("default"))) bool zorseStandInComputes();

/// workBegan and workLasts of Streams.h.
__attribute__((visibility("default"))) double zorseStandInBegan();
__attribute__((visibility("default"))) void zorseStandInLasts(double until);

/// Seconds that a byte takes to or from a GPU (ZORSE_EMULATOR_LINK); 0: no time.
__attribute__((visibility("default"))) double zorseStandInLinkSeconds();

/// Which GPU is current in the calling thread; -1: none.
__attribute__((visibility("default"))) int zorseStandInUnit();

/// 10 times the major and the minor number of the GPU that is current; 0: none.
__attribute__((visibility("default"))) int zorseStandInCapability();

} // namespace zorse::emulator
