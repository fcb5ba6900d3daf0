// The plan lists every device's tasks: {"order": {device: ["F0", "B0", ...]}}.

#include "../Messages.h"
#include "Ordering.h"
#include "Rules.h"

#include "zorse/Step/UnitTasks.h"

using namespace zorse::step;

namespace {

void checkOrder(const Plan &plan, const zorse::bundle::ModelSummary &summary, Messages &messages) {
  if (plan.order.size() != plan.devices.size()) {
    messages.add("the order lists " + std::to_string(plan.order.size()) + " devices, expected " +
                 std::to_string(plan.devices.size()));
    return;
  }
  std::vector<uint8_t> seen(plan.cells.size(), 0);
  for (uint32_t device = 0; device < plan.order.size(); ++device)
    for (TaskId task : plan.order[device]) {
      std::string what = "order of device " + plan.devices[device].name + ": " +
                         "FBW"[size_t(task.kind)] + std::to_string(numberInFile(plan, task.cell));
      if (task.cell >= plan.cells.size()) {
        messages.add(what + " names no cell: the plan has " + std::to_string(plan.cells.size()));
        continue;
      }
      if (plan.cells[task.cell].device != device)
        messages.add(what + " belongs to another device: " + describeCell(plan, task.cell));
      if (task.kind == TaskKind::Weights && !plan.schedule.splitBackward)
        messages.add(what + " is no task of this plan: add \"split_backward\": true, or remove it");
      uint8_t bit = static_cast<uint8_t>(1 << static_cast<int>(task.kind));
      if (seen[task.cell] & bit)
        messages.add(what + " is listed twice");
      seen[task.cell] |= bit;
    }
  for (uint32_t i = 0; i < plan.cells.size(); ++i)
    for (int kind = 0; kind < (plan.schedule.splitBackward ? 3 : 2); ++kind)
      if (!(seen[i] >> kind & 1) && isListed(plan.cells[i]) &&
          hasWork(summary, plan.cells[i], static_cast<TaskKind>(kind), plan.schedule.splitBackward))
        messages.add("order of device " + plan.devices[plan.cells[i].device].name +
                     " does not contain " + "FBW"[kind] + std::to_string(numberInFile(plan, i)) +
                     ", " + describeCell(plan, i));
}

class ExplicitSchedule final : public ScheduleRule {
public:
  ExplicitSchedule() : ScheduleRule(ScheduleKind::Explicit, "explicit order") {}

  std::string whyUnsupported(const Plan &plan,
                             const zorse::bundle::ModelSummary &summary) const override {
    Messages messages;
    checkOrder(plan, summary, messages);
    return messages.take();
  }

  DeadlockFreedom order(const PlanLowering &x, const std::vector<uint64_t> &,
                        Order &result) const override {
    for (const auto &tasks : x.plan.order)
      chainTasks(x, tasks, result);
    return DeadlockFreedom::MustCheck;
  }
};

} // namespace

std::unique_ptr<ScheduleRule> zorse::step::explicitRule() {
  return std::make_unique<ExplicitSchedule>();
}
