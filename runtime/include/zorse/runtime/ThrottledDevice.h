// A device that is slowed down, to emulate clusters of unequal devices on one machine if the kernel
// offers no quotas.
#pragma once

#include "zorse/runtime/Device.h"

namespace zorse::runtime {

/// Makes every function take 1/share of the CPU time that its calling thread spends on it, by
/// sleeping after it. Only functions are slowed down; copies and transfers run at full speed. A
/// function that other programs have already delayed by that time is not delayed further. \p share
/// in (0, 1].
std::unique_ptr<Device> makeThrottledDevice(std::unique_ptr<Device> device, double share);

} // namespace zorse::runtime
