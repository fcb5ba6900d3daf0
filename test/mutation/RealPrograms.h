// Makes programs as the compiler does: from a synthetic model and a plan through the step graph to
// serialized programs.
#pragma once

#include "SyntheticModel.h"

#include "zorse/Verify/PlanView.h"

#include <string>
#include <vector>

namespace zorse::step {
struct Plan;
class Costs;
} // namespace zorse::step

namespace zorse::test {

struct RealCase {
  std::string name, kind, schedule;
  SyntheticModel model;
  verify::PlanView plan;
  std::vector<bundle::Program> programs;
};

/// Expands a plan and converts it to programs. Writes the step time of the expansion to `stepTime`
/// if it is not null.
Status makePrograms(RealCase &result, const step::Plan &plan, const step::Costs *costs = nullptr,
                    double *stepTime = nullptr);

/// Case `seed` of RandomCases.h, small enough to interpret. `model` null: a random synthetic model.
Result<RealCase> realCase(uint32_t seed, const SyntheticModel *model);

/// The same with gradients that are summed by levels.
Result<RealCase> realLevelCase(uint32_t seed);

/// Reads the summary and functions of a bundle: a compiled model for random plans.
Result<SyntheticModel> modelOfBundle(const std::string &directory);

} // namespace zorse::test
