// The views of zorse-inspect. Each prints to standard output. Errors describe defects of the
// bundle.
#pragma once

#include "zorse/Bundle/BundleReader.h"
#include "zorse/Step/Plan.h"

#include <string>
#include <vector>

namespace zorse::inspect {

struct InspectedBundle {
  const bundle::BundleView &bundle;
  const step::Plan &plan;
  std::vector<bundle::Program> programs; ///< one per device
};

void printOverview(const InspectedBundle &what);

/// Prints the tiling as a diagram: units down, samples to the right, the device name in every cell.
///
///     samples      0           8          16
///     0 embedding  ┌───────────┬───────────┐
///     1 block 0    │     a     │     b     │
///     2 head       ├───────────┴───────────┤
///                  │           c           │
///                  └───────────────────────┘
void printPlan(const InspectedBundle &what);

/// Prints the schedule on the simulated clock, one line per device and queue.
void printTimeline(const InspectedBundle &what);

void printFunctions(const bundle::BundleView &bundle);

struct KernelQuery {
  std::string device, arch; ///< empty: all devices, all architectures
  std::string gpu; ///< GPU type with the memory bandwidth to assume; empty: type of the device, or
                   ///< the first of the architecture
  std::string assembler; ///< path of the assembler, see findAssembler
  int64_t rows = 0;      ///< batch size of calls of units; 0: as in the programs
};

/// Prints the resource use of the generated GPU kernels of each architecture, slowest first.
Status printKernels(const InspectedBundle &what, const KernelQuery &asked);

/// Prints which buffers occupy a device's memory in which part of the step. Writes SVG if `svg` is
/// a file name.
Status printMemory(const InspectedBundle &what, int device, const std::string &svg);

/// Returns one word for the action of an instruction: "F", "send", ...
std::string wordFor(const bundle::Instruction &instruction);

} // namespace zorse::inspect
