// Routines of the runtime's library that are kernels on GPUs: norms, sums of the loss, the decision, the scaling of seeds, casts.
#pragma once

#include "RunCase.h"

namespace zorse::conformance {

/// Lengths of shards, row counts and values by size; held against what the routines are said to compute, in f64.
Outcome runRoutines(Sizes &sizes, const std::string &type, Machine &machine);

} // namespace zorse::conformance
