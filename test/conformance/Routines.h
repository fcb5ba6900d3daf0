// Tests the routines of the runtime's library that are kernels on GPUs: norms, loss sums, the
// decision, scaling of seeds, casts.
#pragma once

#include "RunCase.h"

namespace zorse::conformance {

/// Runs the routines with shard lengths, row counts and values from `sizes`, and compares them with
/// their specification in f64.
Outcome runRoutines(Sizes &sizes, const std::string &type, Machine &machine);

} // namespace zorse::conformance
