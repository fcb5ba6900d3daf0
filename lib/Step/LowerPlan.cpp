#include "PlanLowering.h"

#include "Schedules/Ordering.h"

#include "zorse/Step/Schedules.h"

#include <algorithm>
#include <cassert>
#include <utility>

using namespace zorse;
using namespace zorse::step;

/// Moves instruction from[i] to position i, for all i. \param from  a permutation
static void permute(std::vector<Instruction> &instructions, std::vector<uint32_t> from) {
  assert(from.size() == instructions.size() && "every half is of an op in the list");
  for (uint32_t begin = 0; begin < from.size(); ++begin) {
    const Instruction first = instructions[begin];
    uint32_t at = begin;
    for (uint32_t next; (next = std::exchange(from[at], at)) != begin; at = next)
      instructions[at] = instructions[next];
    instructions[at] = first;
  }
}

void zorse::step::placeInstructions(PlanLowering &x) {
  StepGraph &graph = x.graph;
  std::vector<uint32_t> instructionIndices; // by position
  instructionIndices.reserve(graph.instructions.size());
  std::vector<std::vector<std::pair<uint32_t, uint32_t>>> ofDevice(graph.devices.size()); // (id,
                                                                                          // half)
  for (uint32_t id = 0; id < x.globalOrder.ops.size(); ++id) {
    const ScheduledOp &op = x.ops[x.globalOrder.ops[id]];
    if (!x.globalOrder.endTime.empty())
      graph.stepTime = std::max(graph.stepTime, x.globalOrder.endTime[x.globalOrder.ops[id]]);
    for (uint32_t h = op.instructions.begin; h < op.instructions.end; ++h)
      ofDevice[graph.instructions[h].id].push_back({id, h});
  }
  for (uint32_t d = 0; d < graph.devices.size(); ++d) {
    DeviceProgram &program = graph.devices[d];
    program.busy = x.globalOrder.busy.empty() ? 0 : x.globalOrder.busy[d];
    uint32_t number[kQueues];
    std::fill(std::begin(number), std::end(number), kNone);
    for (auto &instructionIndex : ofDevice[d])
      number[graph.instructions[instructionIndex.second].queue] = 0;
    for (size_t q = 0; q < kQueues; ++q)
      if (number[q] == 0) {
        number[q] = static_cast<uint32_t>(program.queues.size());
        program.queues.push_back(kQueueTable[q]);
      }
    program.instructions.begin = static_cast<uint32_t>(instructionIndices.size());
    for (auto [id, instructionIndex] : ofDevice[d]) {
      Instruction &instruction = graph.instructions[instructionIndex];
      instruction.id = id;
      instruction.queue = number[instruction.queue];
      if (!x.globalOrder.endTime.empty()) {
        instruction.plannedStart = x.globalOrder.startOf(id);
        instruction.plannedEnd = x.globalOrder.endTime[x.globalOrder.ops[id]];
      }
      instructionIndices.push_back(instructionIndex);
    }
    program.instructions.end = static_cast<uint32_t>(instructionIndices.size());
  }
  permute(graph.instructions, std::move(instructionIndices));
  graph.numInstructions = static_cast<uint32_t>(x.globalOrder.ops.size());
}

namespace {

void keepBuffers(PlanLowering &x) {
  double end = 0;
  for (uint32_t op : x.globalOrder.ops)
    end = std::max(end, x.globalOrder.endTime[op]);
  for (const Buffer &buffer : x.placement.buffers)
    if (buffer.bytes == 0 || buffer.memory != bundle::DEVICE)
      continue;
    else if (buffer.persistent)
      x.graph.buffers.push_back({buffer.device, buffer.category, buffer.bytes, 0, end});
    else if (buffer.first != kNone)
      x.graph.buffers.push_back({buffer.device, buffer.category, buffer.bytes,
                                 x.globalOrder.startOf(buffer.first),
                                 x.placement.allocations[buffer.number].freeTime});
}

/// Orders and simulates the step. If the order has a cycle, tries the rule's other order, if any.
Status listStep(PlanLowering &x, const std::vector<uint64_t> &less) {
  const ScheduleRule &rule = scheduleRule(x.plan.schedule.kind);
  x.order.reset(x);
  // An order by times would admit samples that wait for activations of samples that are not
  // admitted. The order of the preliminary list avoids this.
  if (rule.canReduceInFlight() && x.hints && !x.hints->offload.back.empty()) {
    for (const std::vector<TaskId> &tasks : x.hints->offload.order)
      chainTasks(x, tasks, x.order);
    return simulate(x, x.order, x.globalOrder);
  }
  DeadlockFreedom runs = rule.order(x, less, x.order);
  Status status = simulate(x, x.order, x.globalOrder);
  if (status.succeeded() || runs == DeadlockFreedom::Guaranteed)
    return status;
  x.order.reset(x);
  return rule.fallbackOrder(x, x.order) ? simulate(x, x.order, x.globalOrder) : status;
}

/// Adds the missing bytes of each device to `less`. Schedules estimate memory before the list is
/// known. A reduction by less than a cell's bytes has no effect, so if a device's missing bytes do
/// not change, its reduction is doubled.
/// \param previous  missing bytes per device in the previous try. \returns false if memory suffices
/// or fewer samples in flight cannot help
bool findShortfall(const PlanLowering &x, uint64_t MemoryUse::*needed, std::vector<uint64_t> &less,
                   std::vector<uint64_t> &previous) {
  if (!scheduleRule(x.plan.schedule.kind).canReduceInFlight())
    return false;
  bool missing = false;
  for (uint32_t d = 0; d < x.plan.devices.size(); ++d) {
    const MemoryUse &use = x.graph.devices[d].memory;
    uint64_t limit = x.plan.devices[d].memory, total = use.*needed;
    if (limit == 0 || total <= limit || use.peakInFlightCells <= 1)
      continue;
    less.resize(x.plan.devices.size(), 0);
    previous.resize(x.plan.devices.size(), 0);
    less[d] += previous[d] == total - limit ? less[d] : total - limit;
    previous[d] = total - limit;
    missing = true;
  }
  return missing;
}

/// Lists the step and measures its memory. Retries with fewer samples in flight while a device's
/// memory is insufficient. \returns the number of lists
template <typename Measure>
Result<int> listToFit(PlanLowering &x, Measure measure, uint64_t MemoryUse::*needed) {
  std::vector<uint64_t> less, previous;
  for (int lists = 1;; ++lists) {
    if (Status status = listStep(x, less); status.failed())
      return status;
    measure();
    if (!findShortfall(x, needed, less, previous) || lists >= x.options.tries)
      return lists;
  }
}

/// Adds all ops and edges except those of the schedule.
Status expandGraph(PlanLowering &x) {
  layoutState(x);
  if (Status status = lowerCells(x); status.failed())
    return status;
  x.cellOps = static_cast<uint32_t>(x.ops.size());
  lowerState(x);
  routeTransfers(x);
  insertHostStaging(x);
  linkEdges(x.edges, x.ops.size(), x.next);
  return Status::success();
}

/// Returns the hints from a preliminary list without limits, for a plan that gathers by phase or
/// offloads. Empty if there is no list: the expansion then reports the error.
std::optional<UnshardHints> findHints(const bundle::ModelSummary &summary, const Plan &plan,
                                      const StepOptions &options, const Replicas *replicas) {
  if (std::none_of(
          plan.offload.begin(), plan.offload.end(),
          [](const OffloadRule &rule) { return rule.reshardAfterForward.value_or(false); }) &&
      std::none_of(plan.cells.begin(), plan.cells.end(),
                   [](const Cell &cell) { return cell.activations == Activations::Offload; }))
    return std::nullopt;
  PlanLowering x(summary, plan, options, *options.tables, nullptr, replicas);
  if (expandGraph(x).failed() || listStep(x, {}).failed())
    return std::nullopt;
  UnshardHints hints = findUnshardHints(x);
  hints.offload = hintOffloads(x);
  return hints;
}

/// A checked plan with costs and tables, and with hints if it needs them. Arguments must outlive
/// it.
class CheckedStep {
public:
  CheckedStep(const bundle::ModelSummary &summary, const Plan &plan, const StepOptions &given,
              const Replicas *replicas)
      : summary(summary), plan(plan), options(given), replicas(replicas) {}

  Status check() {
    if (!options.checked) {
      Status status = checkSummary(summary);
      if (status.succeeded())
        status = validatePlan(plan, summary);
      if (status.succeeded())
        status = checkSizes(summary, plan);
      if (status.failed())
        return status;
    }
    if (!options.costs) {
      costs = planCosts(summary, plan);
      options.costs = costs.get();
    }
    if (!options.tables)
      options.tables = makeLoweringTables(summary, options.functions, options.costs);
    hints = findHints(summary, plan, options, replicas);
    return Status::success();
  }
  PlanLowering lowering() {
    return PlanLowering(summary, plan, options, *options.tables, hints ? &*hints : nullptr,
                        replicas);
  }

private:
  const bundle::ModelSummary &summary;
  const Plan &plan;
  StepOptions options;
  const Replicas *replicas;
  std::unique_ptr<Costs> costs;
  std::optional<UnshardHints> hints;
};

/// Returns the graph before memory is planned. Without a list, instructions are in the order of
/// creation.
StepGraph withoutPlaces(PlanLowering &x) {
  if (x.globalOrder.ops.empty())
    for (uint32_t op = 0; op < x.ops.size(); ++op)
      if (x.ops[op].instructions.size() != 0)
        x.globalOrder.ops.push_back(op);
  writeInstructions(x);
  x.placement.allocations.clear();
  addCellCalls(x);
  placeInstructions(x);
  for (Instruction &instruction : x.graph.instructions)
    instruction.region = instruction.to = instruction.parts = instruction.sends = {};
  for (FunctionArgument &argument : x.graph.arguments)
    argument.region = {};
  for (PersistentState &state : x.graph.state)
    state.region = {};
  for (DeviceProgram &device : x.graph.devices)
    device.arenas.clear();
  return std::move(x.graph);
}

/// Expands everything except waits, which depend only on the graph.
Result<StepGraph> lowerInstructions(const bundle::ModelSummary &summary, const Plan &plan,
                                    const LoweringOptions &options) {
  StepOptions exact = options;
  exact.simulatedUpdateParts = 0;
  CheckedStep step(summary, plan, exact, nullptr);
  if (Status status = step.check(); status.failed())
    return status;
  PlanLowering x = step.lowering();
  layoutState(x);
  if (Status status = lowerCells(x); status.failed())
    return status;
  x.cellOps = static_cast<uint32_t>(x.ops.size());
  if (options.until == LoweringStage::Stages)
    return withoutPlaces(x);
  lowerState(x, options.until != LoweringStage::Offload);
  if (options.until == LoweringStage::Offload)
    return withoutPlaces(x);
  routeTransfers(x);
  insertHostStaging(x);
  linkEdges(x.edges, x.ops.size(), x.next);
  if (options.until == LoweringStage::Collectives)
    return withoutPlaces(x);
  auto measure = [&] {
    measureMemory(x);
    packArenas(x, options.shareBytes);
  };
  if (Result<int> lists = listToFit(x, measure, &MemoryUse::total); lists.failed())
    return lists.error();
  if (options.until == LoweringStage::Order)
    return withoutPlaces(x);
  if (Status status = options.checkMemory ? checkMemory(x) : Status::success(); status.failed())
    return status;
  if (options.keepBuffers)
    keepBuffers(x);
  writeInstructions(x);
  resolveOffsets(x);
  addCellCalls(x);
  placeInstructions(x);
  return std::move(x.graph);
}

} // namespace

Result<StepTimes> zorse::step::timeStep(const bundle::ModelSummary &summary, const Plan &plan,
                                        const TimeOptions &options) {
  CheckedStep step(summary, plan, options, options.replicas);
  if (Status status = step.check(); status.failed())
    return status;
  PlanLowering x = step.lowering();
  if (Status status = expandGraph(x); status.failed())
    return status;
  const Result<int> lists = listToFit(x, [&] { measureMemory(x); }, &MemoryUse::peakLiveBytes);
  if (lists.failed())
    return lists.error();
  StepTimes times;
  times.numInstructions = static_cast<uint32_t>(x.globalOrder.ops.size());
  times.listed = uint64_t(times.numInstructions) * (uint64_t(*lists) + (x.hints ? 1 : 0));
  for (double end : x.globalOrder.endTime)
    times.stepTime = std::max(times.stepTime, end);
  for (size_t d = 0; d < x.graph.devices.size(); ++d)
    times.devices.push_back({x.graph.devices[d].memory, x.globalOrder.busy[d]});
  for (auto [like, replica] : x.replicas)
    times.devices[replica].busy = x.globalOrder.busy[like];
  return times;
}

Result<StepGraph> zorse::step::lowerPlan(const bundle::ModelSummary &summary, const Plan &plan,
                                         const LoweringOptions &options) {
  Result<StepGraph> graph = lowerInstructions(summary, plan, options);
  if (!graph.failed() && options.until == LoweringStage::All)
    insertWaits(*graph, plan.communication == Communication::Overlapped);
  return graph;
}
