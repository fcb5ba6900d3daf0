// "breadth_first": every device passes all micro-batches through one of its chunks before the next,
// and back in the mirrored order (Zorse, section 4.2). A chunk's parameters are then needed twice a
// step, whatever the number of micro-batches, and its gradients are complete before the next
// chunk's begin.
//
//   units 0-2 and 2-4 on one device:   F 0 1 2 3  0' 1' 2' 3'  B a' b' c' d'  a b c d
//
// For the last units, a backward may directly follow its forward: 0'a'1'b'2'c'3'd'. All devices
// process units in the same order, so the schedule always runs.

#include "Ordering.h"
#include "Rules.h"

#include <algorithm>

using namespace zorse::step;

namespace {

class BreadthFirstSchedule final : public ScheduleRule {
public:
  BreadthFirstSchedule() : ScheduleRule(ScheduleKind::BreadthFirst, "breadth_first") {}

  DeadlockFreedom order(const PlanLowering &x, const std::vector<uint64_t> &,
                        Order &result) const override {
    const int32_t units = x.summary.units_size();
    for (uint32_t d = 0; d < x.plan.devices.size(); ++d) {
      std::vector<uint32_t> forwards(x.cellsOf[d].begin(), x.cellsOf[d].end()), backwards(forwards);
      sortBy(
          forwards, [&](const Cell &cell) { return std::pair(cell.unitBegin, cell.sampleBegin); },
          x.plan);
      sortBy(
          backwards, [&](const Cell &cell) { return std::pair(-cell.unitEnd, cell.sampleBegin); },
          x.plan);
      std::vector<TaskId> tasks;
      auto addBackward = [&](uint32_t c) {
        tasks.push_back({TaskKind::Backward, c});
        if (x.plan.schedule.splitBackward)
          tasks.push_back({TaskKind::Weights, c});
      };
      for (uint32_t c : forwards) {
        tasks.push_back({TaskKind::Forward, c});
        if (x.plan.cells[c].unitEnd == units)
          addBackward(c);
      }
      for (uint32_t c : backwards)
        if (x.plan.cells[c].unitEnd != units)
          addBackward(c);
      chainTasks(x, tasks, result);
    }
    return DeadlockFreedom::Guaranteed;
  }

private:
  template <typename Key>
  static void sortBy(std::vector<uint32_t> &cells, Key key, const Plan &plan) {
    std::sort(cells.begin(), cells.end(),
              [&](uint32_t a, uint32_t b) { return key(plan.cells[a]) < key(plan.cells[b]); });
  }
};

} // namespace

std::unique_ptr<ScheduleRule> zorse::step::breadthFirstRule() {
  return std::make_unique<BreadthFirstSchedule>();
}
