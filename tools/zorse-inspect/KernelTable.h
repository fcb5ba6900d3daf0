// What is known of the GPU kernels of one architecture.
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
  std::vector<std::pair<std::string, int>> bodies; ///< that launch it, and how often each does
  uint32_t threads = 0;
  int launchShared = 0; ///< bytes of shared memory that a launch gives a block
  PtxKernel code;
  std::optional<AssembledKernel> assembled;
  std::optional<Occupancy> occupancy;
  int64_t launches = 0; ///< in a step of the devices
  int64_t rows = 0;     ///< of the largest call; the amounts below are for this one
  double read = 0, written = 0;
  double moved = 0;            ///< the least that it has to move
  std::optional<double> flops; ///< at most
  double seconds = 0;          ///< that moving `moved` takes
  double stepSeconds = 0;      ///< of all launches of a step
};

struct KernelTable {
  const bundle::BodyLibrary *target = nullptr;
  std::vector<int> devices; ///< of the bundle, that run this code
  std::string gpu;          ///< type that is assumed
  double bandwidth = 0;     ///< bytes/s of its memory
  std::vector<KernelRow> rows;
  std::string withoutAssembler; ///< why nothing was assembled, and the remedy; empty: it was
};

/// The architectures that are asked for. Errors say what is wrong with the question or the bundle.
Result<std::vector<KernelTable>> findTargets(const Inspected &what, const KernelsAsked &asked);

/// Fills the rows, heaviest first.
Status fillTable(const Inspected &what, const KernelsAsked &asked, const std::string &assembler, KernelTable &table);

} // namespace zorse::inspect
