// Programs as the compiler makes them: a synthetic model, a plan, the step graph, serialised.
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

/// Expands and converts a plan. `stepTime`: the expansion's, if not null.
Status makePrograms(RealCase &result, const step::Plan &plan, const step::Costs *costs = nullptr, double *stepTime = nullptr);

/// Case `seed` of RandomCases.h, small enough to interpret, of `model`, or of a random synthetic model when that is null.
Result<RealCase> realCase(uint32_t seed, const SyntheticModel *model);

/// Summary and bodies of a bundle: a compiled model to draw plans for.
Result<SyntheticModel> modelOfBundle(const std::string &directory);

} // namespace zorse::test
