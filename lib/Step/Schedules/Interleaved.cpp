// "interleaved": every device has several ranges of units, and micro-batches go around the ring of
// devices once per range (Narayanan et al., 2021). Groups of micro-batches, one per stage of
// devices, run through a range before the next group follows. Filling the pipeline takes only a
// fraction of the time of all units of a device.
//
//   units 0-2 on a, 2-4 on b, 4-6 on a, 6-8 on b:
//     a   0 1 0'1'2 a'3 b'2'a 3'b
//     b   . 0 1 0'a'1'b'2 a 3 b 2' ...
//
//   0 1 2 3: forwards of the first range, 0' of the second; a b: backwards

#include "LoopedSchedule.h"

#include <algorithm>
#include <cassert>
#include <cmath>

using namespace zorse::step;

namespace {

class InterleavedSchedule final : public LoopedSchedule {
public:
  InterleavedSchedule()
      : LoopedSchedule(ScheduleKind::Interleaved, "interleaved", LoopStyle::Loop) {}

  DeadlockFreedom order(const PlanLowering &x, const std::vector<uint64_t> &,
                        Order &result) const override {
    const LoopedTiling tiling = tilingOf(x);
    const size_t stages = tiling.stages, rounds = tiling.virtualPipelineSize;
    fillWithWeights(x, result);
    for (uint32_t d = 0; d < x.plan.devices.size(); ++d) {
      std::vector<uint32_t> forwards(x.cellsOf[d].begin(), x.cellsOf[d].end()), backwards(forwards);
      if (forwards.empty())
        continue;
      auto sort = [&](std::vector<uint32_t> &cells, bool backward) {
        std::sort(cells.begin(), cells.end(), [&](uint32_t a, uint32_t b) {
          return rank(tiling, a, backward) < rank(tiling, b, backward);
        });
      };
      sort(forwards, false);
      sort(backwards, true);
      // Before its first backward, a device of the first stage runs the forwards of a group through
      // all ranges except the last, and those that it can run until the other devices return
      // gradients.
      const double min =
          static_cast<double>(2 * (stages - 1 - tiling.stageOf[d]) + (rounds - 1) * stages + 1);
      const size_t ahead =
          static_cast<size_t>(std::clamp(std::ceil(min * x.plan.schedule.inFlightFactor), 1.0,
                                         static_cast<double>(forwards.size())));
      std::vector<TaskId> tasks;
      for (size_t f = 0, b = 0; b < backwards.size(); ++b) {
        for (; f < std::min(ahead + b, forwards.size()); ++f)
          tasks.push_back({TaskKind::Forward, forwards[f]});
        tasks.push_back({TaskKind::Backward, backwards[b]});
      }
      chainTasks(x, tasks, result);
    }
    return DeadlockFreedom::MustCheck;
  }

  /// For incomplete groups, different micro-batches per stage, or few in flight: list scheduling by
  /// the same ranks, backwards first.
  bool fallbackOrder(const PlanLowering &x, Order &result) const override {
    const LoopedTiling tiling = tilingOf(x);
    fillWithWeights(x, result);
    for (uint32_t c = 0; c < x.cells.size(); ++c) {
      const auto [group, microBatch] = rank(tiling, c, false);
      const auto [groupBack, microBatchBack] = rank(tiling, c, true);
      result.priority[x.cells[c].forward.begin] = priorityOf(kForwardPriority, group, microBatch);
      result.priority[x.cells[c].backward.begin] =
          priorityOf(kBackwardPriority, groupBack, microBatchBack);
    }
    admitFrontCells(
        x,
        static_cast<size_t>(std::clamp(
            std::ceil(2 * static_cast<double>(tiling.stages) * x.plan.schedule.inFlightFactor), 1.0,
            1e9)),
        result.admission);
    return true;
  }

private:
  LoopedTiling tilingOf(const PlanLowering &x) const {
    zorse::Result<LoopedTiling> tiling = findLoopedTiling(x.plan, style);
    assert(!laps.failed() && "the plan has been checked");
    return std::move(*tiling);
  }

  /// Key by group and loop, then micro-batch. Backwards go from the last loop to the first.
  static std::pair<int64_t, int32_t> rank(const LoopedTiling &tiling, uint32_t cell,
                                          bool backward) {
    const LoopedTiling::LoopPosition passage = tiling.positions[cell];
    const size_t lap = backward ? tiling.virtualPipelineSize - 1 - passage.virtualRank
                                : passage.virtualRank;
    return {
        static_cast<int64_t>(passage.microBatch / tiling.stages * tiling.virtualPipelineSize + lap),
        static_cast<int32_t>(passage.microBatch)};
  }
};

} // namespace

std::unique_ptr<ScheduleRule> zorse::step::interleavedRule() {
  return std::make_unique<InterleavedSchedule>();
}
