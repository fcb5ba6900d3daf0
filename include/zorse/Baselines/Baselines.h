// Reimplementations of the planners of other systems, for comparisons. docs/internals/baselines.md
// describes each, and where it differs from the original. Each searches its own plans by its own
// cost model; the chosen plan is then evaluated like any other (evaluate).
#pragma once

#include "zorse/Planning/Strategy.h"

#include <string>
#include <vector>

namespace zorse::planning {

// A planner lists its plans by its own predicted time; the first that fits in memory is the result,
// as users go on to the next configuration when one runs out of memory. An error if none of the
// first 24 that could fit does.

/// Min-k-cut (SPLIT with Stoer-Wagner cuts) of the bandwidth graph for every k, layers in
/// proportion to the groups' rates, micro-batch sizes, ministages.
Result<Strategy> zorsePaper(const Problem &problem);
/// Graph partition into pipelines, single devices as stages in an order along fast links, layers in
/// proportion to memory.
Result<Strategy> hexiscale(const Problem &problem);
/// A uniform grid: equal layers, equal devices per stage, equal samples; interleaved or not.
Result<Strategy> megatron(const Problem &problem);
/// Stages of equally many layers, each with the same number of replicas with equal samples; zones
/// together.
Result<Strategy> sailor(const Problem &problem);
/// Stages of one type each, cuts inside blocks, 1F1B with launch counts that follow link delays.
Result<Strategy> harp(const Problem &problem);

struct Baseline {
  const char *name; ///< for --planner
  const char *title;
  Result<Strategy> (*plan)(const Problem &problem);
};
const std::vector<Baseline> &baselines();
/// nullptr if there is none of that name.
const Baseline *findBaseline(const std::string &name);

} // namespace zorse::planning
