// Lower bound of the step time, and the factors by which a plan misses it.
#pragma once

#include "zorse/Planning/Strategy.h"

namespace zorse::planning {

/// Factors of η = T_LB / T. Each is the ratio of two successive times of the same plan and at most
/// 1, to rounding. Their product is η.
///
///     T0  the linear program: every device runs the units that suit it, at its best
///         micro-batch size, and nothing else
///     T1  the same over the devices that have work               idle       T0 / T1
///     T2  with the micro-batch sizes of the plan                 kernel     T1 / T2
///     T3  the busiest device, without recomputation              balance    T2 / T3
///     T4  with recomputation                                     recompute  T3 / T4
///     T5  simulated with free links and free updates             bubble     T4 / T5
///     T6  the complete simulation: T                             exposed    T5 / T6
struct Efficiency {
  double bound = 0, step = 0; ///< T0 and T6, seconds
  double bytes = 0;           ///< byteBound, seconds
  double eta = 0;
  double idle = 1, kernel = 1, balance = 1, recompute = 1, bubble = 1, exposed = 1;
};

/// Returns a lower bound of the step time in seconds on these devices, or on all of the cluster if
/// `devices` is empty. It is the optimum of the linear program alone, over all micro-batch sizes up
/// to `maxRows`.
double lowerBound(const Problem &problem, const std::vector<uint32_t> &devices = {},
                  int64_t maxRows = 64);

/// Returns a second lower bound, in seconds, for clusters whose nodes or sites are slow to reach;
/// never less than lowerBound. What a node computes for some but not all samples, with m samples at
/// most, has parameters that enter and gradients that leave; and unless it computes all units,
/// activations of m samples, and their gradients, cross its border. A node therefore computes no
/// more in T seconds than its card carries bytes for, and a site no more than its uplink
/// (docs/internals/cost-models.md).
double byteBound(const Problem &problem, int64_t maxRows = 64);

Result<Efficiency> efficiency(const Problem &problem, const step::Plan &plan);

} // namespace zorse::planning
