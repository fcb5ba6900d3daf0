// Functions shared by schedules. Internal to lib/Step.
#pragma once

#include "../PlanLowering.h"

namespace zorse::step {

/// Adds an edge from every task of a device to the next one in its order, and from each forward to
/// the loads of the second forward after it. Inputs are loaded one cell ahead instead of filling
/// memory from the start of the step.
void chainTasks(const PlanLowering &x, const std::vector<TaskId> &tasks, Order &order);

/// Gives W the lowest priority: it runs when its device would be idle otherwise.
void fillWithWeights(const PlanLowering &x, Order &order);

/// Orders tasks by their times in a steady state (SteadyState.cpp), with `inFlight`, `interleave`
/// and `maxWeightGradDelay` of \p schedule.
/// \param less  see ScheduleRule::order
void orderByTime(const PlanLowering &x, const Schedule &schedule, const std::vector<uint64_t> &less,
                 Order &order);

/// Limits the forwards of the first units in flight to `cells` in each pipeline, each counted with
/// the rows of the pipeline's largest cell.
void admitFrontCells(const PlanLowering &x, size_t cells, Admission &admission);

} // namespace zorse::step
