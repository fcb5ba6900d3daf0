// The best order of tasks of one small plan, by branch and bound: what schedules are certified against.
#pragma once

#include "zorse/Step/Costs.h"
#include "zorse/Step/Plan.h"

#include "bundle.pb.h"

#include <cstdint>
#include <optional>

namespace zorse::planning {

/// Least simulated step time over the orders of a plan's tasks (F, B and, where it splits its backward, W), whatever its schedule says and memory
/// holds.
///
/// Orders are enumerated on links that are each other's equals: a transfer takes what it takes alone. Of these all active ones are tried (no task
/// could start earlier without delaying another), which include a best one; each is timed by the full simulation. So the result is the least where
/// transfers do not meet; where they do it is a time that some order reaches, and there may be a better one that is not active.
///
/// \returns nullopt for a plan that is not valid, or if `mostNodes` partial orders did not suffice.
std::optional<double> bestOrder(const bundle::ModelSummary &summary, const step::Plan &plan, const step::Costs &costs, uint64_t mostNodes = 2000000);

} // namespace zorse::planning
