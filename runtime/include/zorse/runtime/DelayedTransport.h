// For tests: a transport whose calls sleep at random before and after they run, so that operations of different devices and threads meet in orders
// that they would not meet in otherwise. Adds no buffering and changes no bits. Memory of announced receives is filled with NaNs at once.
#pragma once

#include "zorse/runtime/Transport.h"

namespace zorse::runtime {

/// Each sleep is at most `maxMilliseconds`; which ones are long follows from the seed, the entry and the step.
std::unique_ptr<Transport> makeDelayedTransport(std::unique_ptr<Transport> transport, uint64_t seed, double maxMilliseconds);

} // namespace zorse::runtime
