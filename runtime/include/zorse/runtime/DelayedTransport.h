// A transport for tests that sleeps for a random time before and after every call, so that
// operations of different devices and threads meet in unusual orders. It adds no buffering and does
// not change results. It fills the memory of announced receives with NaNs immediately.
#pragma once

#include "zorse/runtime/Transport.h"

namespace zorse::runtime {

/// Each sleep lasts at most `maxMilliseconds`. The seed, the instruction and the step determine its
/// length.
std::unique_ptr<Transport> makeDelayedTransport(std::unique_ptr<Transport> transport, uint64_t seed,
                                                double maxMilliseconds);

} // namespace zorse::runtime
