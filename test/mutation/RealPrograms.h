// Programs as the compiler makes them: a synthetic model, a plan, the step graph, exec IR, serialised.
#pragma once

#include "SyntheticModel.h"

#include "zorse/Verify/PlanView.h"

#include <optional>
#include <string>
#include <vector>

namespace zorse::step {
struct Plan;
}

namespace zorse::test {

struct RealCase {
  std::string name;
  SyntheticModel model;
  verify::PlanView plan;
  std::vector<bundle::Program> programs;
};

/// Expands and converts a plan.
bool makePrograms(RealCase &result, const step::Plan &plan, std::string &error);

/// Case `seed`: a random tiling of a random model, small enough to interpret.
std::optional<RealCase> realCase(uint32_t seed, std::string &error);

} // namespace zorse::test
