// The message for an order that cannot run: the tasks that wait for each other.

#include "PlanLowering.h"

using namespace zorse::step;

namespace {

std::string describe(const PlanLowering &x, uint32_t op) {
  if (op >= x.ops.size() || x.ops[op].instructions.size() == 0)
    return "the end of all forwards";
  const Instruction instruction = instructionOf(x, x.ops[op], x.ops[op].instructions.begin);
  switch (instruction.kind) {
  case InstructionKind::Compute:
    switch (instruction.task) {
    case zorse::bundle::Compute::F:
      return "F of " + describeCell(x.plan, instruction.cell);
    case zorse::bundle::Compute::B:
      return "B of " + describeCell(x.plan, instruction.cell);
    case zorse::bundle::Compute::W:
      return "W of " + describeCell(x.plan, instruction.cell);
    default:
      break;
    }
    break;
  case InstructionKind::Send: {
    return std::string("transfer of ") +
           (instruction.phase == zorse::bundle::BACKWARD ? "gradient of '" : "'") +
           x.summary.values(instruction.value.id).name() + "', samples " +
           std::to_string(instruction.value.begin) + "-" + std::to_string(instruction.value.end) +
           ", from " + x.plan.devices[instruction.id].name + " to " +
           x.plan.devices[instruction.peer].name;
  }
  case InstructionKind::Copy:
    return "copy of " +
           (instruction.value.kind == zorse::bundle::Value::ACTIVATION ||
                    instruction.value.kind == zorse::bundle::Value::ACTIVATION_GRADIENT
                ? "'" + x.summary.values(instruction.value.id).name() + "'"
                : "state") +
           " on " + x.plan.devices[instruction.id].name;
  default:
    break;
  }
  return "instruction on " + x.plan.devices[instruction.id].name;
}

} // namespace

/// Follows unfinished predecessors until one is repeated.
std::string zorse::step::describeCycle(const PlanLowering &x, const Order &order,
                                       const std::vector<uint8_t> &finished) {
  std::vector<uint32_t> before(finished.size(), kNone);
  for (const auto *edges : {&x.edges, &order.edges})
    for (auto [from, to] : *edges)
      if (!finished[from] && !finished[to] && before[to] == kNone)
        before[to] = from;
  uint32_t at = kNone;
  for (uint32_t op = 0; op < finished.size() && at == kNone; ++op)
    if (!finished[op] && before[op] != kNone)
      at = op;
  std::vector<uint32_t> seen(finished.size(), 0);
  while (at != kNone && !seen[at]) {
    seen[at] = 1;
    at = before[at];
  }
  if (at == kNone) // every chain ends with a task that nothing waits for
    return "the limits of samples in flight or of memory leave no task that can start; this is a "
           "planner bug: choose another schedule";
  std::string text = "the order cannot run; this cycle of tasks waits for itself:";
  uint32_t op = at;
  size_t lines = 0;
  do {
    if (++lines <= 24)
      text += "\n  " + describe(x, op) + " waits for";
    op = before[op];
  } while (op != at);
  if (lines > 24)
    text += "\n  ... " + std::to_string(lines - 24) + " more, then";
  return text + "\n  " + describe(x, at) +
         "\nmove a forward before, or a backward after, the task that waits for it";
}
