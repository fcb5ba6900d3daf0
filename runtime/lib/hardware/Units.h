// Memory and names of the hardware that devices use.
#pragma once

#include "zorse/runtime/Hardware.h"

namespace zorse::runtime {

/// Bytes of a device's arenas in memory of its own (`onDevice`), or of the host.
uint64_t plannedBytes(const Bundle &bundle, size_t device, bool onDevice);

/// "Tesla T4 at 0000:41:00.0": for messages.
std::string describe(const HardwareUnit &unit);

} // namespace zorse::runtime
