// A device made slower, for clusters of unequal devices on one machine where the kernel offers no quotas.
#pragma once

#include "zorse/runtime/Device.h"

namespace zorse::runtime {

/// Every body takes 1/share of the processor time its calling thread spends on it: the rest is slept behind it. Only bodies are slowed down: copies
/// and transfers run at full speed. A body that other programs have already held up for so long is not held up further. \p share in (0, 1].
std::unique_ptr<Device> makeThrottledDevice(std::unique_ptr<Device> device, double share);

} // namespace zorse::runtime
