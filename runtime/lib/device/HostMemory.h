// For drivers whose memory, of every kind, is the host's.
#pragma once

#include "zorse/runtime/Device.h"

namespace zorse::runtime {

/// Device::allocate: DEVICE, HOST and PINNED_HOST are the same.
Result<std::unique_ptr<DeviceMemory>> allocateOnHost(const std::string &device, bundle::MemoryKind kind, size_t bytes,
                                                     const AllocationOptions &options);

Status moveOnHost(void *to, const void *from, size_t bytes);
Status fillOnHost(DeviceAddress to, std::byte value, size_t bytes);

/// Device::expose: to the transports of the kind.
Result<void *> exposeOnHost(const std::string &device, const char *kind, DeviceAddress address, const std::string &transport);

} // namespace zorse::runtime
