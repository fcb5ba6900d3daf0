#include "PtxBody.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::emulator;

static size_t sizeOf(const bundle::FunctionArgument &slot, int64_t rows) { return size_t(slot.bytes().fixed() + slot.bytes().per_row() * rows); }

/// Whether the slot may have gaps: workspaces and packed blocks do.
static bool isPacked(const bundle::FunctionArgument &slot) {
  return slot.kind() == bundle::WORKSPACE || slot.kind() == bundle::SAVED || slot.kind() == bundle::SAVED_FOR_WEIGHT_GRAD;
}

static bool isOverwritten(const bundle::FunctionArgument &slot, bool overwrite) {
  return slot.mode() == bundle::WRITE || (slot.mode() == bundle::ACCUMULATE && overwrite);
}

std::vector<std::string> ptx::runPtxBody(Program &program, runtime::CpuDevice &products, const bundle::CompiledFunction &function,
                                         const EmulatedCall &call, uint64_t seed) {
  Defined defined;
  for (int s = 0; s < function.arguments_size(); ++s) {
    const bundle::FunctionArgument &slot = function.arguments(s);
    const bool isUndefined = slot.kind() == bundle::WORKSPACE || isOverwritten(slot, call.overwrite[size_t(s)]);
    defined[reinterpret_cast<uintptr_t>(call.slots[size_t(s)])].assign(sizeOf(slot, call.rows), !isUndefined);
  }
  uint64_t launches = 0;
  auto runKernel = [&](const bundle::KernelLaunch &kernel, const GridLaunch &grid) {
    return program.run(kernel.symbol(), grid, defined, seed + ++launches);
  };
  auto afterProduct = [&] { // the bytes that a product writes are not computed: all bytes count as defined
    for (auto &[begin, bytes] : defined)
      std::fill(bytes.begin(), bytes.end(), 1);
  };
  std::vector<std::string> findings = runFunction(runKernel, products, function, call, afterProduct);
  for (int s = 0; findings.empty() && s < function.arguments_size(); ++s) {
    const std::vector<uint8_t> &bytes = defined[reinterpret_cast<uintptr_t>(call.slots[size_t(s)])];
    const auto hole = std::find(bytes.begin(), bytes.end(), 0);
    if (!isPacked(function.arguments(s)) && isOverwritten(function.arguments(s), call.overwrite[size_t(s)]) && hole != bytes.end())
      findings.push_back("undefined: byte " + std::to_string(hole - bytes.begin()) + " of slot " + std::to_string(s) + " is not written");
  }
  return findings;
}
