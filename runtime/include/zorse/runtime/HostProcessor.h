// What the host's own processors compute of a bundle: counts of the loss, and updates of state that is kept in its memory.
#pragma once

#include "zorse/runtime/Bundle.h"
#include "zorse/runtime/Drivers.h"

#include <memory>
#include <set>

namespace zorse::runtime {

/// The target of the bundle whose code the host's processors run; the first where none is, which then says why not.
uint32_t hostTarget(const Bundle &bundle);

/// Threads of the host's processors with the code of some bodies, which they run by their numbers in the bundle.
Result<std::unique_ptr<QueuedDevice>> makeHostProcessor(const Bundle &bundle, uint32_t target, const std::set<uint32_t> &bodies,
                                                        const DeviceRequest &request);

/// The one that computes beside a device of this process, where its program needs one: updates of what is in the host's memory and, of a device that
/// is a processor of the host itself, everything on queues that compute beside the first. Null where there is nothing of the kind.
/// \param devicesHere  of this process, which share the processors. \param share  of the device's speed
Result<std::unique_ptr<QueuedDevice>> makeProcessorBeside(const Bundle &bundle, uint32_t device, size_t devicesHere, double share);

/// Whether that processor does an entry.
bool runsBeside(const Bundle &bundle, uint32_t device, const bundle::Entry &entry);

} // namespace zorse::runtime
