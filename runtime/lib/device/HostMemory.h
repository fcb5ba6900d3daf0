// Memory functions for drivers whose devices use host memory for every memory kind.
#pragma once

#include "zorse/runtime/Device.h"

namespace zorse::runtime {

/// Implements Device::allocate. DEVICE, HOST and PINNED_HOST are the same memory.
Result<std::unique_ptr<DeviceMemory>> allocateOnHost(const std::string &device,
                                                     bundle::MemoryKind kind, size_t bytes,
                                                     const AllocationOptions &options);

Status moveOnHost(void *to, const void *from, size_t bytes);
Status fillOnHost(DeviceAddress to, std::byte value, size_t bytes);

/// Implements Device::expose. The address is exposed only to transports of `kind`.
Result<void *> exposeOnHost(const std::string &device, const char *kind, DeviceAddress address,
                            const std::string &transport);

} // namespace zorse::runtime
