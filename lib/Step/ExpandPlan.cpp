#include "Expansion.h"

#include <algorithm>

using namespace zorse::step;

/// The first call in list order that adds to a group's accumulator on a device overwrites. Every unit that uses a group uses all its parameters.
void zorse::step::setOverwriteFlags(Expansion &x) {
  std::vector<uint32_t> firstCall(x.buffers.size(), kNone);
  for (uint32_t op : x.list)
    for (uint32_t h = x.ops[op].halves.begin; h < x.ops[op].halves.end; ++h) {
      Span calls = x.graph.entries[h].calls;
      for (uint32_t c = calls.begin; c < calls.end; ++c)
        for (uint32_t s = x.graph.calls[c].slots.begin; s < x.graph.calls[c].slots.end; ++s) {
          Slot &slot = x.graph.slots[s];
          if (slot.kind != bundle::PARAMETER_GRADIENT)
            continue;
          uint32_t &first = firstCall[slot.region.arena];
          if (first == kNone)
            first = c;
          slot.overwrite = first == c;
        }
    }
}

void zorse::step::placeEntries(Expansion &x) {
  StepGraph &graph = x.graph;
  std::vector<Entry> placed;
  placed.reserve(graph.entries.size());
  std::vector<std::vector<std::pair<uint32_t, uint32_t>>> ofDevice(graph.devices.size()); // (id, half)
  for (uint32_t id = 0; id < x.list.size(); ++id) {
    const Op &op = x.ops[x.list[id]];
    graph.stepTime = std::max(graph.stepTime, op.end);
    for (uint32_t h = op.halves.begin; h < op.halves.end; ++h)
      ofDevice[graph.entries[h].id].push_back({id, h});
  }
  constexpr bundle::QueueKind kinds[kQueueKinds] = {bundle::COMPUTE,          bundle::SEND_QUEUE,     bundle::RECEIVE_QUEUE,
                                                    bundle::COLLECTIVE_QUEUE, bundle::HOST_TO_DEVICE, bundle::DEVICE_TO_HOST};
  for (uint32_t d = 0; d < graph.devices.size(); ++d) {
    DeviceProgram &program = graph.devices[d];
    uint32_t number[kQueueKinds];
    std::fill(std::begin(number), std::end(number), kNone);
    for (auto &half : ofDevice[d])
      number[graph.entries[half.second].queue] = 0;
    for (size_t q = 0; q < kQueueKinds; ++q)
      if (number[q] == 0) {
        number[q] = static_cast<uint32_t>(program.queues.size());
        program.queues.push_back({kinds[q], 0});
      }
    program.entries.begin = static_cast<uint32_t>(placed.size());
    for (auto [id, half] : ofDevice[d]) {
      Entry entry = graph.entries[half];
      const Op &op = x.ops[x.list[id]];
      if (entry.queue == kCompute)
        program.busy += op.duration;
      entry.id = id;
      entry.queue = number[entry.queue];
      entry.plannedStart = op.start;
      entry.plannedEnd = op.end;
      placed.push_back(entry);
    }
    program.entries.end = static_cast<uint32_t>(placed.size());
  }
  graph.entries = std::move(placed);
  graph.listLength = static_cast<uint32_t>(x.list.size());
}

namespace {

void keepBuffers(Expansion &x) {
  double end = 0;
  for (uint32_t op : x.list)
    end = std::max(end, x.ops[op].end);
  for (const Buffer &buffer : x.buffers)
    if (buffer.persistent)
      x.graph.buffers.push_back({buffer.device, static_cast<BufferLife::Purpose>(buffer.purpose), buffer.bytes, 0, end});
    else if (buffer.first != kNone)
      x.graph.buffers.push_back({buffer.device, static_cast<BufferLife::Purpose>(buffer.purpose), buffer.bytes, x.ops[x.list[buffer.first]].start, buffer.freeTime});
}

} // namespace

std::optional<StepGraph> zorse::step::expandPlan(const bundle::ModelSummary &summary, const Plan &plan, std::string &error, const ExpandOptions &options) {
  error.clear();
  if (!checkSummary(summary, error) || !validatePlan(plan, summary, error))
    return std::nullopt;
  Expansion x(summary, plan, options);
  layoutState(x);
  if (!expandCells(x, error))
    return std::nullopt;
  expandState(x);

  size_t edges = x.edges.size(), ops = x.ops.size();
  int64_t window = 0;
  orderTasks(x, /*stages=*/true, window);
  if (!simulate(x, window, error)) {
    if (plan.schedule.kind != ScheduleKind::OneForwardOneBackward || window > 0)
      return std::nullopt;
    // The stages' own order cannot run on this tiling: list scheduling always can.
    error.clear();
    x.edges.resize(edges);
    x.ops.resize(ops);
    orderTasks(x, /*stages=*/false, window);
    if (!simulate(x, window, error))
      return std::nullopt;
  }
  setOverwriteFlags(x);
  if (!packArenas(x, error))
    return std::nullopt;
  if (options.keepBuffers)
    keepBuffers(x);
  placeEntries(x);
  computeWaits(x.graph);
  return std::move(x.graph);
}
