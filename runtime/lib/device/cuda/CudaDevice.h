// NVIDIA GPUs. The driver and cuBLASLt are loaded at run time. Queues are streams (StreamQueues.h).
#pragma once

#include "zorse/runtime/Device.h"
#include "zorse/runtime/Drivers.h"

#include <memory>
#include <string>
#include <vector>

namespace zorse::runtime {

/// \param ordinal  index in cudaUnits; several devices may share a GPU
Result<std::unique_ptr<QueuedDevice>> makeCudaDevice(const std::string &name, int ordinal);

/// The GPUs that CUDA_VISIBLE_DEVICES makes visible to this process, ordered by PCI bus unless
/// CUDA_DEVICE_ORDER is set otherwise. Empty if there is no driver.
std::vector<HardwareUnit> cudaUnits();

/// The CUDA version of the driver, "13.0"; empty if there is no driver.
std::string cudaDriver();

/// Identifies the libraries that determine the bits of matmul results.
Result<std::string> cudaNumerics();

} // namespace zorse::runtime
