// Computation on the host's CPU for a bundle: counts of the loss, and updates of state that is kept
// in host memory.
#pragma once

#include "zorse/runtime/Bundle.h"
#include "zorse/runtime/Drivers.h"

#include <memory>
#include <set>

namespace zorse::runtime {

/// Returns the target of the bundle with code for the host's CPU. If there is none, returns the
/// first target; using it gives an error with the reason.
uint32_t hostTarget(const Bundle &bundle);

/// Creates CPU threads that run the given functions, identified by their numbers in the bundle.
Result<std::unique_ptr<QueuedDevice>> makeHostCpu(const Bundle &bundle, uint32_t target,
                                                  const std::set<uint32_t> &functions,
                                                  const DeviceRequest &request);

/// Creates the CPU device that computes concurrently with a device of this process, if its program
/// needs one: for updates of state in host memory and, if the device itself is the host's CPU, for
/// all queues that compute concurrently with the first. Null if the program needs none.
/// \param devicesHere  devices of this process, which share the CPU. \param share  fraction of the
///   device's speed
Result<std::unique_ptr<QueuedDevice>> makeCpuBeside(const Bundle &bundle, uint32_t device,
                                                    size_t devicesHere, double share);

/// Returns whether that CPU device executes an instruction.
bool runsBeside(const Bundle &bundle, uint32_t device, const bundle::Instruction &instruction);

} // namespace zorse::runtime
