// The best of all rectangle tilings and task orders of a tiny problem, by branch and bound.
#pragma once

#include "zorse/Planning/Layout.h"

#include <functional>

namespace zorse::optimality {

struct TilingOptimum {
  bool feasible = false;
  step::Plan plan;
  double step = 0;
  uint64_t tilings = 0, assignments = 0, orders = 0, simulated = 0; ///< looked into
};

struct TilingOptions {
  bool prune = true;
  double known = 1e300; ///< a step time some feasible plan reaches
};

/// All tilings of units x samples by rectangles, all assignments of devices to cells, all orders of F and B on every device that can run, state in
/// equal shares or in proportion to samples; timed by the full expansion, memory checked.
///
/// Orders are enumerated as sequences in the order of start times on a relaxed clock: compute as it is, every transfer alone on its links, parameters
/// and gradients of a cell as if no other cells moved theirs. Whatever is not faster than the best so far on the relaxed clock is not on the full
/// one.
TilingOptimum bestTiling(const planning::Problem &problem, const TilingOptions &options = {});

/// Calls `act` with every tiling of units x samples; for tests.
void forEachTiling(int units, int64_t samples, const std::function<void(const std::vector<step::Cell> &)> &act);

} // namespace zorse::optimality
