// What to rent: --compare-clusters and --shop.
#pragma once

#include "Inputs.h"

#include "zorse/Planning/Strategy.h"

namespace zorse::plan {

/// Searches a plan for every file of --compare-clusters, and prints speeds and prices.
/// \returns the exit code
int compareClusters(const Options &o);

/// Searches plans for selections of the cluster's nodes, each with a quarter of the budget, and
/// prints speeds and prices. \returns the exit code
int shop(const Options &o, const Inputs &inputs, const planning::Problem &problem,
         const planning::SearchOptions &search);

} // namespace zorse::plan
