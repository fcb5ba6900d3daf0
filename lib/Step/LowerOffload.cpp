// Cells with activation offload: activations are copied to the host after F and back for the
// backward.
//
//   F -> Copy of every saved block, and of the cell's rows of values, to the host
//     -> Copy into an image -> B, W
//
// Let n be Plan::bufferCountOf(device), and sort the device's cells by their backwards. The
// activations of at most n cells are on the device: those in use and those being copied back. A
// cell's turn begins when the n-th cell before it is done. A cell with its F in its turn keeps its
// activations on the device. F of another cell waits until the n-th offloading cell before it has
// copied its activations to the host.

#include "PlanLowering.h"

#include <algorithm>

using namespace zorse::step;

namespace bundle = zorse::bundle;

static Value valueOf(const OffloadedValue &item, const Cell &cell) {
  const Samples samples{cell.sampleBegin, cell.sampleEnd};
  return item.block ? Value::savedBlock(item.id, samples) : Value::activation(item.id, samples);
}

void zorse::step::offloadToHost(
    PlanLowering &x, uint32_t c,
    const std::function<Region(const CellTemplate::OffloadedBuffer &)> &originalOf) {
  const Cell &cell = x.plan.cells[c];
  CellInfo &info = x.cells[c];
  info.offloads.begin = static_cast<uint32_t>(x.offloads.size());
  const bool stays = x.hints && x.hints->offload.stays[c];
  for (const CellTemplate::OffloadedBuffer &item : x.shapeOf[c]->offloaded) {
    const Region original = originalOf(item);
    OffloadedValue leaving{item.block, item.id, item.later, original.arena};
    if (!stays) {
      leaving.host = x.addBuffer(cell.device, item.bytes, MemoryCategory::Staging,
                                 /*persistent=*/false, MemoryTier::Host);
      leaving.out = x.addTierCopy(cell.device, kReport, bundle::BACKWARD, original,
                                  region(leaving.host, 0, item.bytes), valueOf(leaving, cell),
                                  priorityOf(kShortPriority, cell.sampleBegin, cell.unitBegin));
      x.addEdge(info.forward.end, leaving.out);
    }
    x.offloads.push_back(leaving);
  }
  info.offloads.end = static_cast<uint32_t>(x.offloads.size());
}

void zorse::step::prefetchFromHost(PlanLowering &x, uint32_t c) {
  const Cell &cell = x.plan.cells[c];
  CellInfo &info = x.cells[c];
  if (info.offloads.size() == 0)
    return;
  if (x.offloads[info.offloads.begin].out != kNone) // a cell copies all of its items, or none
    info.numberOfPrefetchBuffers =
        x.takeNumbers(static_cast<uint32_t>(cell.unitEnd - cell.unitBegin));
  for (uint32_t i = info.offloads.begin; i < info.offloads.end; ++i) {
    OffloadedValue &item = x.offloads[i];
    if (item.out == kNone)
      continue;
    const uint64_t bytes = x.buffers[item.host].bytes;
    item.prefetchBuffer = item.block ? x.addNumbered(cell.device, bytes,
                                                     info.numberOfPrefetchBuffers + item.id -
                                                         static_cast<uint32_t>(cell.unitBegin))
                                     : x.addBuffer(cell.device, bytes, MemoryCategory::Activations);
    item.back = x.addTierCopy(cell.device, kLoad, bundle::BACKWARD, region(item.host, 0, bytes),
                              region(item.prefetchBuffer, 0, bytes), valueOf(item, cell),
                              priorityOf(kShortPriority, cell.sampleBegin, -cell.unitEnd));
    x.addEdge(item.out, item.back);
  }
}

void zorse::step::limitOffloads(PlanLowering &x) {
  if (!x.hints)
    return;
  auto each = [&](uint32_t c, auto visit) {
    for (uint32_t i = x.cells[c].offloads.begin; i < x.cells[c].offloads.end; ++i)
      if (x.offloads[i].out != kNone)
        visit(x.offloads[i]);
  };
  for (const OffloadHints::Limit &limit : x.hints->offload.back) {
    const uint32_t task = x.cells[limit.after.cell].of(limit.after.kind).end;
    each(limit.cell, [&](const OffloadedValue &item) { x.addEdge(task, item.back); });
  }
  for (const auto &pair : x.hints->offload.out)
    each(pair.first, [&](const OffloadedValue &item) {
      x.addEdge(item.out, x.cells[pair.second].forward.begin);
    });
}

OffloadHints zorse::step::hintOffloads(const PlanLowering &x) {
  OffloadHints hints;
  hints.stays.assign(x.cells.size(), 0);
  auto listed = [&](const CellTask &task) {
    return task.exists() && x.globalOrder.positions[task.begin] != kNone;
  };
  struct ResidencyInterval {
    uint32_t cell, forward, begin,
        end; ///< positions in the list of F, of the first task that reads images, and of the last
    TaskId last;
  };
  for (uint32_t d = 0; d < x.plan.devices.size(); ++d) {
    std::vector<ResidencyInterval> intervals;
    for (uint32_t c : x.cellsOf[d]) {
      const CellInfo &info = x.cells[c];
      if (info.offloads.size() == 0)
        continue;
      const CellTask &first = listed(info.backward) ? info.backward : info.weights;
      const bool weights = listed(info.weights);
      intervals.push_back({c,
                           x.globalOrder.positions[info.forward.begin],
                           x.globalOrder.positions[first.begin],
                           x.globalOrder.positions[(weights ? info.weights : first).end],
                           {weights ? TaskKind::Weights : TaskKind::Backward, c}});
    }
    std::sort(
        intervals.begin(), intervals.end(),
        [](const ResidencyInterval &a, const ResidencyInterval &b) { return a.begin < b.begin; });
    const uint32_t images = x.plan.bufferCountOf(d);
    for (size_t i = 0; i < intervals.size(); ++i) {
      const ResidencyInterval &interval = intervals[i];
      if (i < images || intervals[i - images].end < interval.forward) {
        hints.stays[interval.cell] = 1;
        continue;
      }
      // Waits only for tasks that precede the cell's own in the list. All such edges agree with the
      // list, so they form no cycle.
      const ResidencyInterval &before = intervals[i - images];
      if (before.end < interval.begin)
        hints.back.push_back({interval.cell, before.last});
      else if (listed(x.cells[before.cell].backward))
        hints.back.push_back({interval.cell, {TaskKind::Backward, before.cell}});
    }
    std::sort(intervals.begin(), intervals.end(),
              [](const ResidencyInterval &a, const ResidencyInterval &b) {
                return a.forward < b.forward;
              });
    intervals.erase(std::remove_if(intervals.begin(), intervals.end(),
                                   [&](const ResidencyInterval &interval) {
                                     return hints.stays[interval.cell];
                                   }),
                    intervals.end());
    for (size_t i = images; i < intervals.size(); ++i)
      hints.out.push_back({intervals[i - images].cell, intervals[i].cell});
  }
  hints.order.resize(x.plan.devices.size());
  for (uint32_t op : x.globalOrder.ops) {
    const uint32_t c = x.ops[op].cell;
    if (c == kNone)
      continue;
    for (TaskKind kind : {TaskKind::Forward, TaskKind::Backward, TaskKind::Weights})
      if (op == x.cells[c].of(kind).begin)
        hints.order[x.plan.cells[c].device].push_back({kind, c});
  }
  return hints;
}
