// Finds the best of all rectangle tilings and task orders of a tiny problem by branch and bound.
#pragma once

#include "zorse/Planning/Strategy.h"

#include <functional>

namespace zorse::optimality {

struct TilingOptimum {
  bool feasible = false;
  step::Plan plan;
  double step = 0;
  uint64_t tilings = 0, assignments = 0, orders = 0, simulated = 0; ///< numbers visited
};

struct TilingOptions {
  bool prune = true;
  double known = 1e300; ///< step time of a known feasible plan
};

/// Enumerates all tilings of units x samples by rectangles, all assignments of devices to cells,
/// all orders of F and B on every device that do not deadlock, and state in equal shares or in
/// proportion to samples. The full expansion gives the step time and the memory.
///
/// Orders are enumerated as sequences sorted by start time in a relaxed simulation: compute times
/// are exact, every transfer has its links to itself, and parameters and gradients of a cell are
/// moved as if no other cell moved its own. An order that is not faster than the best one in the
/// relaxed simulation is not faster in the full one.
TilingOptimum bestTiling(const planning::Problem &problem, const TilingOptions &options = {});

/// Calls `act` with every tiling of units x samples; for tests.
void forEachTiling(int units, int64_t samples,
                   const std::function<void(const std::vector<step::Cell> &)> &act);

} // namespace zorse::optimality
