// Reads the planner's representation out of a plan. Internal to Planning.
#pragma once

#include "zorse/Planning/Strategy.h"

#include <string>

namespace zorse::planning {

/// A plan as pipelines of stages.
struct ReadStrategy {
  Strategy strategy;      ///< devices are indices in Plan::devices
  std::string difference; ///< what of the plan the strategy does not express; empty: nothing,
                          ///< except that state may have other owners
};

/// Reads a plan. A strategy with a difference covers all units and samples too, with the devices,
/// stages and numbers of samples of the plan.
/// \returns an error that says which part of the plan has no counterpart in strategies at all
Result<ReadStrategy> readStrategy(const bundle::ModelSummary &summary, const step::Plan &plan);

} // namespace zorse::planning
