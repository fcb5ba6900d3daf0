// Runs a function of the architecture "emu" on the host: kernels on the emulator, products on a CPU
// device.
#pragma once

#include "HostCode.h"

#include "bundle.pb.h"
#include "zorse/runtime/CpuDevice.h"

#include <functional>

namespace zorse::emulator {

struct EmulatedCall {
  int64_t rows = 1, sampleBase = 0;
  uint64_t rngIdBase = 0;
  std::vector<char *> arguments;
  std::vector<uint8_t> overwrite;
};

/// Called after every kernel launch.
using KernelObserver =
    std::function<void(const bundle::KernelLaunch &kernel, const Traffic &traffic)>;

/// Runs one kernel launch. Returns findings.
using RunKernel = std::function<std::vector<std::string>(const bundle::KernelLaunch &kernel,
                                                         const GridLaunch &grid)>;

/// Runs a function. Returns findings and errors; empty on success.
/// \param afterProduct  called after every launch that is not a kernel; may be empty
std::vector<std::string> runFunction(const RunKernel &runKernel, runtime::CpuDevice &products,
                                     const bundle::CompiledFunction &function,
                                     const EmulatedCall &call,
                                     const std::function<void()> &afterProduct);

/// Runs a function with compiled bitcode.
/// \param observe  receives the traffic of every kernel; null: traffic is not counted
std::vector<std::string> runFunction(const HostCode &code, runtime::CpuDevice &products,
                                     const bundle::CompiledFunction &function,
                                     const EmulatedCall &call, const KernelObserver &observe = {});

} // namespace zorse::emulator
