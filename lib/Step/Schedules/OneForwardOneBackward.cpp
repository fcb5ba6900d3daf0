// "1f1b": the minimum number of micro-batches in flight, counted in samples, so that stages may
// have different grids (Narayanan et al., 2019).
//
//   device 0   0 1 2 a 3 b . c . d        0 1 2 3: forwards of micro-batches
//   device 1   . 0 1 . a 2 b 3 c . d      a b c d: their backwards
//   device 2   . . 0 a 1 b 2 c 3 d

#include "../CellTemplates.h"
#include "Ordering.h"
#include "Rules.h"

#include <algorithm>

using namespace zorse::step;

namespace {

/// Lets W lag behind B. The number of cells between F and W is limited by the number of cells
/// between F and B on the pipeline's fullest device, and by an estimate of the available memory. A
/// forward that would exceed the limit waits for a W.
void boundWeights(const PlanLowering &x, const std::vector<std::vector<TaskId>> &order,
                  Order &result) {
  fillWithWeights(x, result);
  size_t fullest = 1;
  for (const auto &tasks : order)
    fullest = std::max(fullest, maxInFlight(tasks));
  std::vector<uint64_t> fixed = fixedBytes(x);
  for (uint32_t d = 0; d < order.size(); ++d) {
    size_t bound = fullest;
    if (uint64_t memory = x.plan.devices[d].memory) {
      uint64_t hold = 1, passing = 0;
      for (uint32_t c : x.cellsOf[d]) {
        hold = std::max(hold, x.shapeOf[c]->residentBytes);
        passing = std::max(passing, x.shapeOf[c]->transientBytes);
      }
      uint64_t left = memory > fixed[d] + passing ? memory - fixed[d] - passing : 0;
      bound = std::min<size_t>(bound, left / hold);
    }
    bound = std::max(bound, maxInFlight(order[d]));
    std::vector<uint32_t> weights; // in the order of the backwards
    size_t forwards = 0;
    for (TaskId task : order[d]) {
      if (task.kind == TaskKind::Backward)
        weights.push_back(x.cells[task.cell].weights.end);
      else if (forwards++ >= bound)
        result.addEdge(weights[forwards - 1 - bound], x.cells[task.cell].forward.begin);
    }
  }
}

/// Returns the order of each device's tasks if every device has one unit range, else empty.
std::vector<std::vector<TaskId>> orderStages(const PlanLowering &x) {
  const Plan &plan = x.plan;
  size_t devices = plan.devices.size();
  std::vector<std::vector<TaskId>> order(devices);
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
  std::stable_sort(working.begin(), working.end(),
                   [&](uint32_t a, uint32_t b) { return begin(a) > begin(b); });

  OneForwardOneBackward stages(plan.cells.data(), devices);
  for (uint32_t d : working) {
    const uint32_t ahead = d < plan.schedule.warmupForwards.size() ? plan.schedule.warmupForwards[d]
                                                                   : 0;
    order[d] = stages.order(d, x.cellsOf[d], x.cellsByBegin[static_cast<size_t>(end(d))], ahead);
  }
  return order;
}

class StagesRule final : public ScheduleRule {
public:
  StagesRule()
      : ScheduleRule(ScheduleKind::OneForwardOneBackward, "1f1b",
                     {{"warmup_forwards", &Schedule::warmupForwards}}) {}

  DeadlockFreedom order(const PlanLowering &x, const std::vector<uint64_t> &,
                        Order &result) const override {
    std::vector<std::vector<TaskId>> order = orderStages(x);
    if (order.empty()) {
      admitChains(x, result);
      return DeadlockFreedom::Guaranteed;
    }
    for (const auto &tasks : order)
      chainTasks(x, tasks, result);
    if (x.plan.schedule.splitBackward)
      boundWeights(x, order, result);
    return DeadlockFreedom::MustCheck;
  }

  bool fallbackOrder(const PlanLowering &x, Order &result) const override {
    if (x.plan.schedule.splitBackward)
      fillWithWeights(x, result);
    admitChains(x, result);
    return true;
  }

private:
  /// Without stages: list scheduling, backwards first, with about the samples in flight of
  /// 1F1B, that is, one front cell per cell of the deepest chain.
  static void admitChains(const PlanLowering &x, Order &result) {
    std::vector<int32_t> cuts;
    for (const Cell &cell : x.plan.cells)
      cuts.push_back(cell.unitBegin);
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    admitFrontCells(x, std::max<size_t>(cuts.size(), 2), result.admission);
  }
};

} // namespace

std::unique_ptr<ScheduleRule> zorse::step::oneForwardOneBackwardRule() {
  return std::make_unique<StagesRule>();
}
