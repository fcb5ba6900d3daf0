// Finds the best order of the tasks of a small plan by branch and bound. Tests compare schedules
// with it.
#pragma once

#include "zorse/Step/Costs.h"
#include "zorse/Step/Plan.h"

#include "bundle.pb.h"

#include <cstdint>
#include <optional>

namespace zorse::planning {

/// Minimum simulated step time over the orders of a plan's tasks (F, B and, if it splits its
/// backward, W), independent of its schedule and of memory limits.
///
/// Orders are enumerated without contention: a transfer takes the time that it takes alone. All
/// active orders are tried, in which no task can start earlier without delaying another; they
/// include a best one. The full simulation gives the time of each order. The result is therefore
/// the minimum if transfers do not overlap. If they do, it is the time of some order, and an order
/// that is not active may be better.
///
/// \returns nullopt for an invalid plan, or if more than `maxNodes` partial orders are needed.
std::optional<double> bestOrder(const bundle::ModelSummary &summary, const step::Plan &plan,
                                const step::Costs &costs, uint64_t maxNodes = 2000000);

} // namespace zorse::planning
