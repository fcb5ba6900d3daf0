// Finds the best of all layouts of a small problem by enumeration. Shares only makePlan, evaluate
// and the expansion with the planner.
#pragma once

#include "zorse/Planning/Strategy.h"

#include <cstdint>

namespace zorse::optimality {

struct ExhaustiveOptions {
  /// Skip layouts that proven lower bounds exclude. If false, every layout is simulated; tests
  /// compare both on small instances.
  bool prune = true;
  int pipelines = 2;
  double known = 1e300; ///< step time of a known feasible layout: bounds the search from the start
};

struct Optimum {
  bool feasible = false;
  planning::Strategy strategy;
  double step = 0;
  uint64_t families = 0; ///< assignments x cuts x splits of the batch x state rules that their
                         ///< bound did not exclude
  uint64_t simulated = 0;
};

/// Enumerates
/// - every assignment of a subset of the devices to one or two pipelines of ordered stages;
/// - every contiguous cut of the units;
/// - every split of the batch between pipelines;
/// - every integer share of at least one sample per member;
/// - one or two rows per micro-batch, separately for each stage;
/// - GPipe and 1F1B;
/// - state in equal shares or by free memory.
///
/// Layouts that differ only by a permutation of equal devices count once. The full expansion gives
/// the step time of a layout. The memory of a layout is checked if it would be the best one.
///
/// Pruning: a layout is not simulated if the following sum, for some device d of stage s, is not
/// less than the best step time so far:
///
///     max(forward latency of the stages before, gather of d's parameters) + compute of d
///     + max(backward latency of the stages before, reduction and norm)
///     + the longest update
///
/// Latencies use the fastest cells of each stage and the fastest links for one sample. A layout is
/// also pruned if a NIC has too many bytes to transfer in this time, including the work before its
/// first and after its last transfer, or if a device certainly has too little memory.
Optimum exhaustive(const planning::Problem &problem, const ExhaustiveOptions &options = {});

/// The lower bound used for pruning, for one layout. Tests check that no layout is faster.
double strategyBound(const planning::Problem &problem, const planning::Strategy &strategy);

} // namespace zorse::optimality
