// Exchanges of the devices of a group between the segments of a task.

#include "CellTemplates.h"
#include "LowerCollectives.h"
#include "PlanLowering.h"
#include "Tables.h"

#include "zorse/Step/UnitTasks.h"

#include <algorithm>
#include <tuple>

using namespace zorse::step;

namespace bundle = zorse::bundle;
using Exchange = bundle::UnitFunction::Exchange;

std::vector<uint32_t> zorse::step::membersOf(const PlanLowering &x, uint32_t cell) {
  const Cell &like = x.plan.cells[cell];
  std::vector<uint32_t> members;
  for (uint32_t c : x.cellsByBegin[static_cast<size_t>(like.unitBegin)])
    if (x.plan.cells[c].sampleBegin == like.sampleBegin)
      members.push_back(c);
  std::sort(members.begin(), members.end(), [&](uint32_t a, uint32_t b) {
    return x.plan.cells[a].member < x.plan.cells[b].member;
  });
  return members;
}

std::vector<TaskExchange> zorse::step::exchangesOf(const PlanLowering &x, uint32_t c,
                                                   TaskKind kind) {
  const Cell &cell = x.plan.cells[c];
  const bundle::ModelSummary &summary = x.tables.of(cell).summary;
  std::vector<TaskExchange> exchanges;
  auto add = [&](int32_t unit, std::optional<UnitTask> task) {
    if (task)
      for (const Exchange &exchange : unitFunction(summary, unit, *task).exchanges())
        exchanges.push_back({unit, *task, &exchange});
  };
  if (kind == TaskKind::Backward && x.shapeOf[c]->again)
    for (int32_t u = cell.unitBegin; u < cell.unitEnd; ++u)
      add(u, repeatedTask(summary, cell, u));
  for (int32_t i = 0; i < cell.unitEnd - cell.unitBegin; ++i) {
    const int32_t u = kind == TaskKind::Forward ? cell.unitBegin + i : cell.unitEnd - 1 - i;
    add(u, unitTask(summary, u, kind, x.plan.schedule.splitBackward));
  }
  return exchanges;
}

/// Returns the ends of the devices' parts in bytes. Of a sum, every device has an equal part.
static std::vector<int64_t> endsOfParts(const Exchange &exchange, int64_t rows, size_t devices) {
  std::vector<int64_t> ends;
  for (const bundle::AffineSize &part : exchange.parts())
    ends.push_back((ends.empty() ? 0 : ends.back()) + part.fixed() + part.per_row() * rows);
  if (exchange.kind() != Exchange::ALL_REDUCE)
    return ends;
  const int64_t bytes = ends.back(), size = static_cast<int64_t>(kRegionAlignment);
  const auto count = static_cast<int64_t>(devices);
  ends.clear();
  for (int64_t m = 1; m <= count; ++m)
    ends.push_back(m == count ? bytes : bytes / size * m / count * size);
  return ends;
}

/// Returns the region of an exchange on the device of a cell. Its buffer has 0 bytes here: the
/// template contains its size and live range.
static Region regionOf(PlanLowering &x, uint32_t c, TaskKind kind, const TaskExchange &exchange,
                       uint64_t bytes) {
  const bool late = kind != TaskKind::Forward;
  const CellInside &inside = x.insideOf(c);
  const uint32_t buffer = x.addNumbered(x.plan.cells[c].device, 0,
                                        (late ? x.cells[c].numberOfB : x.cells[c].numberOfF) +
                                            inside.exchangePlace[late]);
  return region(
      buffer,
      inside.findExchanged(late, exchange.unit, exchange.task, exchange.exchange->number())->offset,
      bytes);
}

std::pair<uint32_t, uint32_t> zorse::step::addExchange(PlanLowering &x,
                                                       const std::vector<uint32_t> &cells,
                                                       TaskKind kind,
                                                       const TaskExchange &exchange) {
  const Cell &like = x.plan.cells[cells[0]];
  const Exchange &of = *exchange.exchange;
  const std::vector<int64_t> ends = endsOfParts(of, like.rows(), cells.size());
  const bool sums = of.kind() == Exchange::ALL_REDUCE;
  const auto size = static_cast<int64_t>(elementBytes(of.type()));
  std::vector<std::tuple<uint32_t, Region, Region>> parts; // device, all, its part
  Collective collective;
  collective.phase = kind == TaskKind::Forward ? bundle::FORWARD : bundle::BACKWARD;
  collective.type = of.type();
  for (size_t m = 0; m < cells.size(); ++m) {
    const uint32_t device = x.plan.cells[cells[m]].device;
    const int64_t begin = m ? ends[m - 1] : 0;
    const Region all = regionOf(x, cells[m], kind, exchange, static_cast<uint64_t>(ends.back()));
    collective.members.push_back(device);
    collective.shards.push_back({device, begin / size, ends[m] / size});
    parts.push_back({device, all,
                     region(all.arena, all.offset + static_cast<uint64_t>(begin),
                            static_cast<uint64_t>(ends[m] - begin))});
  }
  std::sort(parts.begin(), parts.end(),
            [](const auto &a, const auto &b) { return std::get<0>(a) < std::get<0>(b); });
  auto add = [&](Work work) {
    const uint32_t op = x.addOp(0, kind == TaskKind::Forward ? kForwardPriority : kBackwardPriority,
                                like.sampleBegin, exchange.unit);
    collective.value = Value::exchange(static_cast<uint32_t>(exchange.unit), of.number(),
                                       work == Work::Gather, {like.sampleBegin, like.sampleEnd});
    x.describeCollective(work, collective);
    for (const auto &[device, all, part] : parts)
      x.addPart(device, all, part);
    return op;
  };
  const uint32_t first = add(sums ? Work::Scatter : Work::Gather);
  if (!sums)
    return {first, first};
  const uint32_t last = add(Work::Gather);
  x.addEdge(first, last);
  return {first, last};
}
