// What several schedules do with an expansion. Internal to lib/Step.
#pragma once

#include "../Expansion.h"

namespace zorse::step {

/// Ties every task of a device to the next one of its order, and the loads of a forward to the forward two places before it: inputs arrive one cell
/// ahead instead of filling memory from the start of the step.
void chainTasks(const Expansion &x, const std::vector<TaskName> &tasks, Order &order);

/// W runs when its device would idle otherwise.
void fillWithWeights(const Expansion &x, Order &order);

/// Orders by the times at which tasks would run in a steady state (Timed.cpp), under `inFlight`, `interleave` and `weightDelay` of \p schedule.
/// \param less  as ScheduleRule::order has it
void orderByTime(const Expansion &x, const Schedule &schedule, const std::vector<uint64_t> &less, Order &order);

/// Lets `cells` forwards of the first units, of the largest cell's rows each, be under way at once.
void admitFrontCells(const Expansion &x, size_t cells, Admission &admission);

} // namespace zorse::step
