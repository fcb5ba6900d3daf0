// Gathers and reductions of state along the plan's nodes and sites, and exchanges of devices that
// divide a cell's units. Internal to lib/Step.
#pragma once

#include "PlanLowering.h"

namespace zorse::step {

/// Returns the cells of a rectangle that several devices compute together, exchanging values: in
/// the order of the plan, including `cell`.
std::vector<uint32_t> membersOf(const PlanLowering &x, uint32_t cell);

/// An exchange of the devices of a group, in a task of a cell.
struct TaskExchange {
  int32_t unit;
  UnitTask task;
  const bundle::UnitFunction::Exchange *exchange;
};
/// Returns the exchanges of a task, in the order of its calls.
std::vector<TaskExchange> exchangesOf(const PlanLowering &x, uint32_t cell, TaskKind kind);
/// Adds an exchange of the cells of a group: a gather of their parts, or a reduction and a gather
/// of the sum. \returns its first and last op
std::pair<uint32_t, uint32_t> addExchange(PlanLowering &x, const std::vector<uint32_t> &cells,
                                          TaskKind kind, const TaskExchange &exchange);

/// Adds the reduction of a group: exchanges along the tree of the plan's nodes and sites. If
/// readers have different elements, or partial sums would be rounded to a half type, one exchange.
CollectiveOps addReduction(PlanLowering &x, uint32_t group);
/// Adds the gather of a window: one if all its devices exchange directly, else exchanges along the
/// tree, from the owners down.
CollectiveOps addGather(PlanLowering &x, uint32_t window);

} // namespace zorse::step
