// Data about the GPU kernels of one architecture.
#pragma once

#include "Assembler.h"
#include "Inspect.h"
#include "Occupancy.h"
#include "PtxFile.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace zorse::inspect {

struct KernelRow {
  std::string symbol, origin;
  std::vector<std::pair<std::string, int>> functions; ///< functions that launch the kernel, and
                                                      ///< launches per call
  uint32_t threads = 0;
  int launchShared = 0; ///< bytes of dynamic shared memory per block
  PtxKernel code;
  std::optional<AssembledKernel> assembled;
  std::optional<Occupancy> occupancy;
  int64_t launches = 0; ///< launches per step on `devices`
  int64_t rows = 0;     ///< batch size of the largest call; the amounts below are for it
  double read = 0, written = 0;
  double moved = 0;            ///< minimum bytes that the kernel must move
  std::optional<double> flops; ///< upper bound
  double seconds = 0;          ///< time to move `moved` bytes
  double stepSeconds = 0;      ///< time of all launches of a step
};

struct KernelTable {
  const bundle::FunctionLibrary *target = nullptr;
  std::vector<int> devices; ///< indices of the bundle's devices that run this code
  std::string gpu;          ///< assumed GPU type
  double bandwidth = 0;     ///< memory bandwidth, bytes/s
  std::vector<KernelRow> rows;
  std::string withoutAssembler; ///< why nothing was assembled, and how to fix it; empty: assembled
};

/// Returns the requested architectures. Errors describe defects of the request or the bundle.
Result<std::vector<KernelTable>> findTargets(const InspectedBundle &what, const KernelQuery &asked);

/// Fills the rows, slowest first.
Status fillTable(const InspectedBundle &what, const KernelQuery &asked,
                 const std::string &assembler, KernelTable &table);

} // namespace zorse::inspect
