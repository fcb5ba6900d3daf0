// Memory use and descriptions of the hardware of devices.
#pragma once

#include "zorse/runtime/Hardware.h"

namespace zorse::runtime {

/// Bytes of a device's arenas in device memory (`onDevice`) or in host memory.
uint64_t plannedBytes(const Bundle &bundle, size_t device, bool onDevice);

/// "Tesla T4 at 0000:41:00.0", for messages.
std::string describe(const HardwareUnit &unit);

} // namespace zorse::runtime
