// The views of zorse-inspect. Each prints to standard output; errors say what is wrong with the bundle.
#pragma once

#include "zorse/Bundle/BundleReader.h"
#include "zorse/Step/Plan.h"

#include <string>
#include <vector>

namespace zorse::inspect {

struct Inspected {
  const bundle::BundleView &bundle;
  const step::Plan &plan;
  std::vector<bundle::Program> programs; ///< one per device
};

void printOverview(const Inspected &what);

/// The tiling as a picture: units down, samples to the right, cells with the name of their device.
///
///     samples      0           8          16
///     0 embedding  ┌───────────┬───────────┐
///     1 block 0    │     a     │     b     │
///     2 head       ├───────────┴───────────┤
///                  │           c           │
///                  └───────────────────────┘
void printPlan(const Inspected &what);

/// Who runs what when, on the simulated clock: one line per device and queue.
void printTimeline(const Inspected &what);

void printBodies(const bundle::BundleView &bundle);

struct KernelsAsked {
  std::string device, arch; ///< empty: all architectures
  std::string gpu;          ///< type whose memory bandwidth is taken; empty: that of the device, or of the first of the architecture
  std::string assembler;    ///< as findAssembler takes it
  int64_t rows = 0;         ///< of calls of units; 0: as the programs call them
};

/// What the generated GPU kernels of each architecture ask for, heaviest first.
Status printKernels(const Inspected &what, const KernelsAsked &asked);

/// Which bytes of a device hold what in which part of the step; as SVG when `svg` names a file.
Status printMemory(const Inspected &what, int device, const std::string &svg);

/// One word for what an entry does: "F", "send", ...
std::string wordFor(const bundle::Entry &entry);

} // namespace zorse::inspect
