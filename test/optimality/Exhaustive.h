// The best of all layouts of a small problem, by enumeration. Shares makePlan, evaluate and the expansion with the planner, and nothing else.
#pragma once

#include "zorse/Planning/Layout.h"

#include <cstdint>

namespace zorse::optimality {

struct ExhaustiveOptions {
  /// Leave out what proven lower bounds exclude. Without it every layout is simulated: for instances small enough to compare the two.
  bool prune = true;
  int pipelines = 2;
  double known = 1e300; ///< a step time some feasible layout reaches: bounds the search from the start
};

struct Optimum {
  bool feasible = false;
  planning::Layout layout;
  double step = 0;
  uint64_t families = 0; ///< assignments x cuts x splits of the batch x state rules whose bound had to be looked into
  uint64_t simulated = 0;
};

/// All of: every assignment of a subset of the devices to one or two pipelines of ordered stages; every contiguous cut; every split of the batch
/// between pipelines; every integer share of at least one sample per member; one or two rows per micro-batch, stage by stage; GPipe and 1F1B; state
/// in equal shares or by free memory. What differs only by an exchange of equal devices counts once. Each layout is timed by the full expansion, and
/// the memory of all that would be best is checked.
///
/// Pruning: a layout is not simulated if it cannot be faster than the best so far, because for some device d of stage s
///
///     max(forward latency of the stages before, gather of d's parameters) + compute of d + max(backward latency of the stages before, reduction and
///     norm)
///     + the longest update
///
/// reaches it, where latencies are the fastest cells of each stage and the fastest links for one sample; or because some network card, with what is
/// in front of its first transfer and behind its last, must pass more bytes than it can; or because some device surely lacks memory.
Optimum exhaustive(const planning::Problem &problem, const ExhaustiveOptions &options = {});

/// The proven lower bound used above, of one layout: for tests that nothing is faster.
double layoutBound(const planning::Problem &problem, const planning::Layout &layout);

} // namespace zorse::optimality
