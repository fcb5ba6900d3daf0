// The schedule as edges between the tasks of each device.

#include "CellShapes.h"
#include "Expansion.h"

#include <algorithm>
#include <unordered_set>

using namespace zorse::step;

namespace {

/// Ties every task of a device to the next one of its order, and the loads of a forward to the forward two places before it: inputs arrive one cell
/// ahead instead of filling memory from the start of the step.
void chain(Expansion &x, const std::vector<TaskName> &tasks) {
  uint32_t previous = kNone, last = kNone, secondLast = kNone; // the latest two forwards
  std::unordered_set<uint32_t> loaded;
  for (TaskName task : tasks) {
    if (task.kind == TaskKind::Forward) {
      for (uint32_t load : x.cells[task.cell].loads)
        if (loaded.insert(load).second && secondLast != kNone)
          x.addEdge(secondLast, load);
      secondLast = last;
      last = x.cells[task.cell].forward;
    }
    const CellInfo &cell = x.cells[task.cell];
    uint32_t op = task.kind == TaskKind::Forward ? cell.forward : task.kind == TaskKind::Backward ? cell.backward : cell.weights;
    if (previous != kNone)
      x.addEdge(previous, op);
    previous = op;
  }
}

/// W runs when its device would idle otherwise.
void makeFiller(Expansion &x) {
  for (uint32_t c = 0; c < x.cells.size(); ++c)
    if (x.cells[c].weights != kNone)
      x.ops[x.cells[c].weights].priority = priorityOf(kFillerRank, x.plan.cells[c].sampleBegin, x.plan.cells[c].unitBegin);
}

/// Lets W lag behind B, but keeps no more cells between F and W than the whole pipeline's fullest device has between F and B, and no more than memory
/// seems to hold: the forward that would be one too many waits for a W.
void boundWeights(Expansion &x, const std::vector<std::vector<TaskName>> &order) {
  makeFiller(x);
  size_t fullest = 1;
  for (const auto &tasks : order)
    fullest = std::max(fullest, mostInFlight(tasks));
  CellShapes shapes(x);
  std::vector<uint64_t> fixed = fixedBytes(x);
  for (uint32_t d = 0; d < order.size(); ++d) {
    size_t bound = fullest;
    if (uint64_t memory = x.plan.devices[d].memory) {
      uint64_t hold = 1, passing = 0;
      for (uint32_t c : x.cellsOf[d]) {
        hold = std::max(hold, shapes.of(x.plan.cells[c]).hold);
        passing = std::max(passing, shapes.of(x.plan.cells[c]).passing);
      }
      uint64_t left = memory > fixed[d] + passing ? memory - fixed[d] - passing : 0;
      bound = std::min<size_t>(bound, left / hold);
    }
    bound = std::max(bound, mostInFlight(order[d]));
    std::vector<uint32_t> weights; // in the order of the backwards
    size_t forwards = 0;
    for (TaskName task : order[d]) {
      if (task.kind == TaskKind::Backward)
        weights.push_back(x.cells[task.cell].weights);
      else if (forwards++ >= bound)
        x.addEdge(weights[forwards - 1 - bound], x.cells[task.cell].forward);
    }
  }
}

} // namespace

std::vector<std::vector<TaskName>> zorse::step::orderOneForwardOneBackward(const Expansion &x) {
  const Plan &plan = x.plan;
  size_t devices = plan.devices.size();
  std::vector<std::vector<TaskName>> order(devices);
  std::vector<uint32_t> working;
  for (uint32_t d = 0; d < devices; ++d) {
    if (x.cellsOf[d].empty())
      continue;
    const Cell &first = plan.cells[x.cellsOf[d].front()];
    for (uint32_t c : x.cellsOf[d])
      if (plan.cells[c].unitBegin != first.unitBegin || plan.cells[c].unitEnd != first.unitEnd)
        return {}; // several chunks on a device: no stages
    working.push_back(d);
  }
  auto begin = [&](uint32_t d) { return plan.cells[x.cellsOf[d].front()].unitBegin; };
  auto end = [&](uint32_t d) { return plan.cells[x.cellsOf[d].front()].unitEnd; };
  std::stable_sort(working.begin(), working.end(), [&](uint32_t a, uint32_t b) { return begin(a) > begin(b); });

  OneForwardOneBackward stages(plan.cells.data(), devices);
  for (uint32_t d : working) {
    const auto &mine = x.cellsOf[d], &behind = x.cellsByBegin[end(d)];
    order[d] = stages.order(d, {mine.data(), mine.size()}, {behind.data(), behind.size()}, d < plan.schedule.ahead.size() ? plan.schedule.ahead[d] : 0);
  }
  return order;
}

bool zorse::step::orderTasks(Expansion &x, bool stages, Admission &admission, const std::vector<uint64_t> &less) {
  admission = {};
  const Plan &plan = x.plan;
  if (plan.schedule.kind == ScheduleKind::Explicit) {
    for (const auto &tasks : plan.order)
      chain(x, tasks);
    return false;
  }
  if (plan.schedule.kind == ScheduleKind::GPipe) {
    makeFiller(x);
    for (uint32_t d = 0; d < plan.devices.size(); ++d) {
      if (x.cellsOf[d].size() < 2)
        continue;
      uint32_t barrier = x.addOp(0, 0, 0, 0);
      for (uint32_t c : x.cellsOf[d]) {
        x.addEdge(x.cells[c].forward, barrier);
        x.addEdge(barrier, x.cells[c].backward);
      }
    }
    return false;
  }
  if (plan.schedule.kind == ScheduleKind::Timed) {
    orderByTime(x, less, admission);
    return true;
  }

  std::vector<std::vector<TaskName>> order;
  if (stages)
    order = orderOneForwardOneBackward(x);
  if (!order.empty()) {
    for (const auto &tasks : order)
      chain(x, tasks);
    if (plan.schedule.splitBackward)
      boundWeights(x, order);
    return false;
  }
  // No stages: list scheduling, backwards first, with about as many samples in flight as 1F1B would have: one front cell per cell of the deepest chain.
  int64_t rows = 1;
  for (uint32_t c : x.cellsByBegin[0])
    rows = std::max(rows, plan.cells[c].rows());
  std::vector<int32_t> cuts;
  for (const Cell &cell : plan.cells)
    cuts.push_back(cell.unitBegin);
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  admission.groups.push_back({0, x.cellsByBegin[0], static_cast<double>(rows) * static_cast<double>(std::max<size_t>(cuts.size(), 2))});
  return true;
}
