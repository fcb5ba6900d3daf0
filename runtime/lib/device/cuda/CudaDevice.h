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

/// What the bits of products depend on.
Result<std::string> cudaNumerics();

} // namespace zorse::runtime
