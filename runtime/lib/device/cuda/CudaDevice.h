// A GPU of NVIDIA. The driver and cuBLASLt are loaded at run time. Queues are streams (StreamQueues.h).
#pragma once

#include "zorse/runtime/Device.h"
#include "zorse/runtime/Drivers.h"

#include <memory>
#include <string>
#include <vector>

namespace zorse::runtime {

/// \param ordinal  which of cudaUnits; several devices may share one.
Result<std::unique_ptr<QueuedDevice>> makeCudaDevice(const std::string &name, int ordinal);

/// The GPUs that CUDA_VISIBLE_DEVICES leaves to this process, by their place on the bus unless CUDA_DEVICE_ORDER says otherwise. None where there is
/// no driver.
std::vector<HardwareUnit> cudaUnits();

/// The CUDA version of the driver, "13.0"; "" where there is none.
std::string cudaDriver();

/// What the bits of products depend on.
Result<std::string> cudaNumerics();

} // namespace zorse::runtime
