#include "Ordering.h"

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

void zorse::step::admitFrontCells(const PlanLowering &x, size_t cells, Admission &admission) {
  int64_t rows = 1;
  for (uint32_t c : x.cellsByBegin[0])
    rows = std::max(rows, x.plan.cells[c].rows());
  const CellIndices front = x.cellsByBegin[0];
  admission.groups.push_back(
      {0, {front.begin(), front.end()}, static_cast<double>(rows) * static_cast<double>(cells)});
}
