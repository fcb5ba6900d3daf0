#include "Ordering.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_set>

using namespace zorse::step;

void zorse::step::chainTasks(const PlanLowering &x, const std::vector<TaskId> &tasks,
                             Order &order) {
  uint32_t previous = kNone, last = kNone, secondLast = kNone; // the last two forwards
  std::unordered_set<uint32_t> loaded;
  for (TaskId task : tasks) {
    if (task.kind == TaskKind::Forward) {
      const Span loads = x.cells[task.cell].loads;
      for (uint32_t i = loads.begin; i < loads.end; ++i)
        if (loaded.insert(x.loads[i]).second && secondLast != kNone)
          order.addEdge(secondLast, x.inputs[x.loads[i]].op);
      secondLast = last;
      last = x.cells[task.cell].forward.end;
    }
    const CellTask &ops = x.cells[task.cell].of(task.kind);
    if (previous != kNone)
      order.addEdge(previous, ops.begin);
    previous = ops.end;
  }
}

void zorse::step::fillWithWeights(const PlanLowering &x, Order &order) {
  for (uint32_t c = 0; c < x.cells.size(); ++c)
    if (x.cells[c].weights.exists())
      order.priority[x.cells[c].weights.begin] =
          priorityOf(kBubbleFillPriority, x.plan.cells[c].sampleBegin, x.plan.cells[c].unitBegin);
}

namespace {

/// Joins devices that compute the same samples: those of one pipeline.
class PipelineFinder {
public:
  explicit PipelineFinder(const PlanLowering &x) : parent(x.plan.devices.size()) {
    std::iota(parent.begin(), parent.end(), 0u);
    const CellIndices front = x.cellsByBegin[0]; // by first sample; together they have all samples
    for (const Cell &cell : x.plan.cells) {
      auto at = std::upper_bound(
          front.begin(), front.end(), cell.sampleBegin,
          [&](int64_t sample, uint32_t c) { return sample < x.plan.cells[c].sampleEnd; });
      for (; at != front.end() && x.plan.cells[*at].sampleBegin < cell.sampleEnd; ++at)
        parent[of(cell.device)] = of(x.plan.cells[*at].device);
    }
  }

  /// Returns a device of the pipeline, the same for all of its devices.
  uint32_t of(uint32_t device) {
    while (parent[device] != device)
      device = parent[device] = parent[parent[device]];
    return device;
  }

private:
  std::vector<uint32_t> parent;
};

} // namespace

void zorse::step::admitFrontCells(const PlanLowering &x, size_t cells, Admission &admission) {
  PipelineFinder pipelines(x);
  std::map<uint32_t, size_t> groupOf; // by device of a pipeline
  std::vector<int64_t> rows;          // of the largest cell, by group
  const size_t first = admission.groups.size();
  for (uint32_t c : x.cellsByBegin[0]) {
    const Cell &cell = x.plan.cells[c];
    const auto [group, isNew] = groupOf.try_emplace(pipelines.of(cell.device), rows.size());
    if (isNew) {
      rows.push_back(1);
      admission.groups.push_back({cell.device, {}, 0});
    }
    rows[group->second] = std::max(rows[group->second], cell.rows());
    admission.groups[first + group->second].cells.push_back(c);
  }
  for (size_t g = 0; g < rows.size(); ++g)
    admission.groups[first + g].maxRows = static_cast<double>(rows[g]) * static_cast<double>(cells);
}
