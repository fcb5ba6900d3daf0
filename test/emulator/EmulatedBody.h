// A body of the architecture "emu" on the host: kernels on the emulator, products by a processor's device.
#pragma once

#include "HostCode.h"

#include "bundle.pb.h"
#include "zorse/runtime/CpuDevice.h"

#include <functional>

namespace zorse::emulator {

struct EmulatedCall {
  int64_t rows = 1, sampleBase = 0;
  uint64_t instanceBase = 0;
  std::vector<char *> slots;
  std::vector<uint8_t> overwrite;
};

/// Hears of every launch of a kernel.
using KernelObserver = std::function<void(const bundle::KernelLaunch &kernel, const Traffic &traffic)>;

/// Runs a launch of a kernel; returns findings.
using RunKernel = std::function<std::vector<std::string>(const bundle::KernelLaunch &kernel, const GridLaunch &grid)>;

/// Findings and errors; empty when all is well.
/// \param afterProduct  called behind everything that is no kernel; may be empty
std::vector<std::string> runBody(const RunKernel &runKernel, runtime::CpuDevice &products, const bundle::Body &body, const EmulatedCall &call,
                                 const std::function<void()> &afterProduct);

/// The same with compiled bitcode.
/// \param observe  gets what every kernel moves; null: nothing is counted
std::vector<std::string> runBody(const HostCode &code, runtime::CpuDevice &products, const bundle::Body &body, const EmulatedCall &call,
                                 const KernelObserver &observe = {});

} // namespace zorse::emulator
