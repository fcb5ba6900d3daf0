// A GPU of NVIDIA. The driver and cuBLASLt are loaded at run time. Queues are streams (StreamQueues.h).
#pragma once

#include "zorse/runtime/Device.h"

#include <memory>
#include <string>

namespace zorse::runtime {

/// \param ordinal  which of the machine's GPUs; modulo their number, so that several devices of a cluster may share one.
Result<std::unique_ptr<QueuedDevice>> makeCudaDevice(const std::string &name, int ordinal);

/// "sm_80" of the machine's first GPU; "emu" of the emulator; "none" where there is no GPU.
std::string cudaArchitecture();

/// Where the GPU that `ordinal` means is on this machine, as the driver names it ("0000:41:00.0"): two ordinals may mean one GPU. "": unknown.
std::string cudaUnit(int ordinal);

/// The CUDA version of the driver, "13.0"; "" where there is none.
std::string cudaDriver();

/// What the bits of products depend on.
Result<std::string> cudaNumerics();

} // namespace zorse::runtime
