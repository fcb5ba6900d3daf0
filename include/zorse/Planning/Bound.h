// How far a plan is from what no plan could beat, and why.
#pragma once

#include "zorse/Planning/Layout.h"

namespace zorse::planning {

/// Factors of η = T_LB / T: ratios of successive times of the same plan, each at most 1 (to rounding); their product is η.
///
///     T0  the linear programme: every device on the units that suit it, at its best row count, nothing else
///     T1  the same over the devices that have work                       idle     T0 / T1
///     T2  with the row counts the plan chose                             kernel   T1 / T2
///     T3  the busiest device, without recomputation                      balance  T2 / T3
///     T4  with recomputation                                             recompute T3 / T4
///     T5  simulated with free links and free updates                     bubble   T4 / T5
///     T6  simulated with all of it: T                                    exposed  T5 / T6
struct Efficiency {
  double bound = 0, step = 0; ///< T0 and T6, seconds
  double eta = 0;
  double idle = 1, kernel = 1, balance = 1, recompute = 1, bubble = 1, exposed = 1;
};

/// Least seconds of a step on these devices (all of the cluster if empty): the linear programme alone, over all row counts up to `mostRows`.
double lowerBound(const Problem &problem, const std::vector<uint32_t> &devices = {}, int64_t mostRows = 64);

Result<Efficiency> efficiency(const Problem &problem, const step::Plan &plan);

} // namespace zorse::planning
