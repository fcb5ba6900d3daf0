#include "PtxBody.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::emulator;

static size_t sizeOf(const bundle::FunctionArgument &argument, int64_t rows) {
  return size_t(argument.bytes().fixed() + argument.bytes().per_row() * rows);
}

/// Whether the argument may have gaps: workspaces and packed blocks do.
static bool isPacked(const bundle::FunctionArgument &argument) {
  return argument.kind() == bundle::WORKSPACE || argument.kind() == bundle::SAVED ||
         argument.kind() == bundle::SAVED_FOR_WEIGHT_GRAD;
}

static bool isOverwritten(const bundle::FunctionArgument &argument, bool overwrite) {
  return argument.mode() == bundle::WRITE || (argument.mode() == bundle::ACCUMULATE && overwrite);
}

std::vector<std::string> ptx::runPtxBody(Program &program, runtime::CpuDevice &products,
                                         const bundle::CompiledFunction &function,
                                         const EmulatedCall &call, uint64_t seed) {
  Defined defined;
  for (int s = 0; s < function.arguments_size(); ++s) {
    const bundle::FunctionArgument &argument = function.arguments(s);
    const bool isUndefined = argument.kind() == bundle::WORKSPACE ||
                             isOverwritten(argument, call.overwrite[size_t(s)]);
    defined[reinterpret_cast<uintptr_t>(call.arguments[size_t(s)])].assign(
        sizeOf(argument, call.rows), !isUndefined);
  }
  uint64_t launches = 0;
  auto runKernel = [&](const bundle::KernelLaunch &kernel, const GridLaunch &grid) {
    return program.run(kernel.symbol(), grid, defined, seed + ++launches);
  };
  auto afterProduct = [&] { // the bytes that a product writes are not computed: all bytes count as
                            // defined
    for (auto &[begin, bytes] : defined)
      std::fill(bytes.begin(), bytes.end(), 1);
  };
  std::vector<std::string> findings =
      runFunction(runKernel, products, function, call, afterProduct);
  for (int s = 0; findings.empty() && s < function.arguments_size(); ++s) {
    const std::vector<uint8_t> &bytes =
        defined[reinterpret_cast<uintptr_t>(call.arguments[size_t(s)])];
    const auto hole = std::find(bytes.begin(), bytes.end(), 0);
    if (!isPacked(function.arguments(s)) &&
        isOverwritten(function.arguments(s), call.overwrite[size_t(s)]) && hole != bytes.end())
      findings.push_back("undefined: byte " + std::to_string(hole - bytes.begin()) +
                         " of argument " + std::to_string(s) + " is not written");
  }
  return findings;
}
