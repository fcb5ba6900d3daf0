#include "EmulatedBody.h"

#include "zorse/runtime/abi/CudaAbi.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::emulator;

static int64_t at(const bundle::Extent &extent, int64_t rows) { return extent.fixed() + extent.per_row() * rows; }

/// The grid of a launch: its parameters, and the slots that its operands lie in.
static GridLaunch gridOf(const bundle::KernelLaunch &kernel, const bundle::Body &body, const EmulatedCall &call) {
  GridLaunch grid;
  const int64_t points = at(kernel.points(), call.rows), perBlock = int64_t(kernel.threads()) * std::max<int64_t>(1, kernel.per_thread());
  grid.threads = kernel.threads();
  grid.sharedBytes = kernel.shared_bytes();
  grid.blocks = uint32_t((points + perBlock - 1) / perBlock);
  uint64_t accumulate = 0;
  for (uint32_t operand : kernel.accumulates())
    accumulate |= uint64_t(!call.overwrite[kernel.operands(int(operand)).slot()]) << operand;
  grid.parameters = {uint64_t(call.rows), accumulate, uint64_t(call.sampleBase), call.instanceBase};
  for (const bundle::Pointer &pointer : kernel.operands()) {
    const bundle::Slot &slot = body.slots(int(pointer.slot()));
    const auto begin = reinterpret_cast<uintptr_t>(call.slots[pointer.slot()]);
    grid.parameters.push_back(begin + uint64_t(pointer.fixed() + pointer.per_row() * call.rows));
    grid.operands.push_back({begin, begin + uint64_t(at(slot.bytes(), call.rows)), slot.mode() != bundle::READ || slot.kind() == bundle::WORKSPACE});
  }
  return grid;
}

std::vector<std::string> emulator::runBody(const RunKernel &runKernel, runtime::CpuDevice &products, const bundle::Body &body,
                                           const EmulatedCall &call, const std::function<void()> &afterProduct) {
  for (const bundle::Launch &launch : body.launches()) {
    if (!launch.has_kernel()) {
      bundle::Body one = body;
      one.clear_launches();
      *one.add_launches() = launch;
      std::vector<runtime::DeviceAddress> slots;
      slots.reserve(call.slots.size());
      for (char *slot : call.slots)
        slots.push_back(runtime::DeviceAddress::ofHost(slot));
      runtime::Status status = products.runBody(one, {{call.rows, call.sampleBase, call.instanceBase}, slots.data(), call.overwrite.data()});
      if (status.failed())
        return {status.message()};
      if (afterProduct)
        afterProduct();
      continue;
    }
    const bundle::KernelLaunch &kernel = launch.kernel();
    std::vector<std::string> findings = runKernel(kernel, gridOf(kernel, body, call));
    if (!findings.empty()) {
      findings.front() = kernel.symbol() + ": " + findings.front();
      return findings;
    }
  }
  return {};
}

std::vector<std::string> emulator::runBody(const HostCode &code, runtime::CpuDevice &products, const bundle::Body &body, const EmulatedCall &call,
                                           const KernelObserver &observe) {
  auto runKernel = [&](const bundle::KernelLaunch &kernel, const GridLaunch &grid) -> std::vector<std::string> {
    const HostKernel *host = code.find(kernel.symbol());
    if (!host)
      return {"is not there"};
    Traffic traffic;
    std::vector<std::string> findings = runGrid(*host, grid, observe ? &traffic : nullptr);
    if (observe)
      observe(kernel, traffic);
    return findings;
  };
  return runBody(runKernel, products, body, call, {});
}
