#include "QuickSimulation.h"

#include <algorithm>
#include <cmath>

using namespace zorse;
using namespace zorse::planning;

namespace {

constexpr uint32_t kNone = UINT32_MAX;
constexpr uint32_t kCellMask = (1u << 30) - 1;
constexpr uint32_t kForwardTask = 0, kBackwardTask = 1u << 30, kWeightsTask = 2u << 30;

// Events, by the top bits of Event::what.
enum : uint32_t { kComputeEnd, kSent, kArrived, kGradientSent, kGradientArrived, kCollectiveSent, kCollectiveArrived, kLoaded };
constexpr uint32_t kWhatBits = 29;
constexpr uint32_t what(uint32_t kind, uint32_t index) { return kind << kWhatBits | index; }

// Candidates for queues: kind << 30 | index.
constexpr uint32_t kCollectiveOp = 0, kTransferOp = 1u << 30, kGradientOp = 2u << 30;
enum : uint8_t { kShortRank, kBackwardRank, kForwardRank = 3, kFillerRank = 6 }; // as the expansion has them

/// Priority by rank, then first sample, then unit (which may be negative).
uint64_t priorityOf(uint8_t rank, int64_t sample, int32_t unit) {
  return static_cast<uint64_t>(rank) << 61 | (static_cast<uint64_t>(sample + 1) & 0x1ffffffff) << 28 | (static_cast<uint64_t>(unit + (1 << 27)) & 0xfffffff);
}

constexpr auto later = [](const auto &a, const auto &b) { return a > b; };

/// Placed buffers leave gaps: one part of the activations in so many.
constexpr uint64_t kGaps = 50;
constexpr uint64_t kScalarsBlock = 512, kSumsBytes = 128;
uint64_t aligned(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

} // namespace

QuickSimulation::QuickSimulation(const Problem &problem, const UnitTables &tables)
    : problem(problem), tables(tables), unitTimes(problem, tables), traffic(problem.costs.network()) {
  size_t devices = problem.cluster.devices.size();
  result.memory.resize(devices);
  result.busy.resize(devices);
  resident.resize(devices);
  owned.resize(devices);
  accumulators.resize(devices);
  accumulates.resize(devices);
  loadFree.resize(devices);
  alive.resize(devices);
  peak.resize(devices);
  current.resize(devices);
  computeEnd.resize(devices);
  position.resize(devices);
  chainBegin.resize(devices + 1);
  cellsOfBegin.resize(devices + 1);
  readyTasks.resize(devices);
  readyWeights.resize(devices);
  weightBound.resize(devices);
  weightsDone.resize(devices);
  forwardsBegun.resize(devices);
  forwardsLeft.resize(devices);
  normEnd.resize(devices);
  updateSeconds.resize(devices);
  mostRows.resize(devices);
  admitNext.resize(devices);
  rowsInFlight.resize(devices);
  heldBytes.resize(devices);
  budget.resize(devices);
  busyQueue.resize(3 * devices);
  waiting.resize(3 * devices);
  stagesOfGroup.resize(tables.groups().size());
  sharesOfGroup.resize(tables.groups().size());
}

// ---- The layout: stages, cells, transfers.

void QuickSimulation::deal(const Layout &layout) {
  cells.clear();
  kinds.clear();
  stages.clear();
  kindOf.clear();
  stageOf.clear();
  split = layout.schedule.splitBackward;
  int64_t base = 0;
  uint32_t p = 0;
  for (const Pipeline &pipeline : layout.pipelines) {
    for (size_t s = 0; s < pipeline.stages.size(); ++s) {
      const Stage &stage = pipeline.stages[s];
      StageInfo info{};
      info.stage = &stage;
      info.pipeline = p;
      info.front = s == 0 ? -1 : static_cast<int32_t>(stages.size()) - 1;
      info.behind = s + 1 == pipeline.stages.size() ? -1 : static_cast<int32_t>(stages.size()) + 1;
      info.cellBegin = static_cast<uint32_t>(cells.size());
      info.kindBegin = static_cast<uint32_t>(kinds.size());
      stageDevices.clear();
      for (const Member &member : stage.members)
        if (member.samples > 0)
          stageDevices.push_back({member.device, member.samples, member.rows});
      step::dealStage(stage.unitBegin, stage.unitEnd, base, stageDevices, cells);
      info.cellEnd = static_cast<uint32_t>(cells.size());
      for (uint32_t c = info.cellBegin; c < info.cellEnd; ++c) {
        uint32_t deviceClass = problem.costs.deviceClass(cells[c].device);
        int64_t rows = cells[c].rows();
        uint32_t k = info.kindBegin;
        while (k < kinds.size() && (kinds[k].rows != rows || kinds[k].deviceClass != deviceClass))
          ++k;
        if (k == kinds.size()) {
          const UnitTimes::Prefix &times = unitTimes.of(deviceClass, rows);
          size_t a = static_cast<size_t>(stage.unitBegin), b = static_cast<size_t>(stage.unitEnd);
          Kind kind;
          kind.deviceClass = deviceClass;
          kind.rows = rows;
          kind.forward = times.forward[b] - times.forward[a];
          kind.backward = split ? times.inputGradients[b] - times.inputGradients[a] : times.backward[b] - times.backward[a];
          kind.weights = split ? times.weightGradients[b] - times.weightGradients[a] : 0;
          kind.inputBytes = tables.inputBytesOf(stage.unitBegin, stage.unitEnd) * static_cast<double>(rows);
          kind.bytes = tables.cellBytes(stage.unitBegin, stage.unitEnd, rows, split);
          kinds.push_back(kind);
        }
        kindOf.push_back(k);
        stageOf.push_back(static_cast<uint32_t>(stages.size()));
      }
      info.kindEnd = static_cast<uint32_t>(kinds.size());
      info.cellsLeft = info.cellEnd - info.cellBegin;
      info.gathers = 0;
      stages.push_back(info);
    }
    base += pipeline.samples;
    ++p;
  }
  // Cells by device, by (sample, unit): a counting sort of cells by (sample, unit).
  size_t devices = problem.cluster.devices.size();
  std::fill(cellsOfBegin.begin(), cellsOfBegin.end(), 0);
  for (const step::Cell &cell : cells)
    ++cellsOfBegin[cell.device + 1];
  for (size_t d = 0; d < devices; ++d)
    cellsOfBegin[d + 1] += cellsOfBegin[d];
  cellsOf.resize(cells.size());
  for (size_t d = 0; d < devices; ++d)
    position[d] = cellsOfBegin[d];
  for (uint32_t c = 0; c < cells.size(); ++c)
    cellsOf[position[cells[c].device]++] = c; // by stage, then sample
  devicesUsed.clear();
  for (uint32_t d = 0; d < devices; ++d) {
    auto begin = cellsOf.begin() + cellsOfBegin[d], end = cellsOf.begin() + cellsOfBegin[d + 1];
    if (begin == end)
      continue;
    devicesUsed.push_back(d);
    auto bySample = [&](uint32_t a, uint32_t b) { return cells[a].sampleBegin != cells[b].sampleBegin ? cells[a].sampleBegin < cells[b].sampleBegin : a < b; };
    if (stageOf[*begin] != stageOf[*(end - 1)])
      std::sort(begin, end, bySample);
  }
}

void QuickSimulation::connect() {
  size_t count = cells.size();
  transfers.clear();
  gradients.clear();
  sends.assign(count, {0, 0});
  gradientSends.assign(count, {0, 0});
  pendingForward.assign(count, 0);
  pendingBackward.assign(count, 0);
  for (const StageInfo &info : stages) {
    if (info.behind < 0)
      continue;
    const StageInfo &behind = stages[static_cast<size_t>(info.behind)];
    int32_t cut = info.stage->unitEnd;
    const auto &values = tables.valuesAt(cut), &valueGradients = tables.gradientsAt(cut);
    // Both lists are by sample: pairs come in order of both.
    for (uint32_t a = info.cellBegin, b = behind.cellBegin; a < info.cellEnd && b < behind.cellEnd;) {
      int64_t rows = std::min(cells[a].sampleEnd, cells[b].sampleEnd) - std::max(cells[a].sampleBegin, cells[b].sampleBegin);
      if (sends[a].begin == sends[a].end)
        sends[a].begin = sends[a].end = static_cast<uint32_t>(transfers.size());
      for (uint64_t bytes : values) {
        transfers.push_back({a, b, static_cast<double>(bytes * static_cast<uint64_t>(rows))});
        ++sends[a].end;
        ++pendingForward[b];
      }
      if (gradientSends[b].begin == gradientSends[b].end)
        gradientSends[b].begin = gradientSends[b].end = static_cast<uint32_t>(gradients.size());
      for (uint64_t bytes : valueGradients) {
        gradients.push_back({b, a, static_cast<double>(bytes * static_cast<uint64_t>(rows))});
        ++gradientSends[b].end;
        ++pendingBackward[a];
      }
      if (cells[a].sampleEnd < cells[b].sampleEnd)
        ++a;
      else if (cells[a].sampleEnd > cells[b].sampleEnd)
        ++b;
      else
        ++a, ++b;
    }
  }
  sendsLeft.resize(count);
  gradientSendsLeft.resize(count);
  for (size_t c = 0; c < count; ++c) {
    sendsLeft[c] = sends[c].end - sends[c].begin;
    gradientSendsLeft[c] = gradientSends[c].end - gradientSends[c].begin;
  }
}

// ---- State: readers, owners, memory that lasts the step.

void QuickSimulation::layOutState(const Layout &layout) {
  // Sets of groups with the same readers. Nearly always: one per stage.
  shares.clear();
  for (auto &list : stagesOfGroup)
    list.clear();
  std::vector<uint32_t> seen;
  for (uint32_t s = 0; s < stages.size(); ++s) {
    tables.groupsOf(stages[s].stage->unitBegin, stages[s].stage->unitEnd, scratchGroups);
    for (uint32_t g : scratchGroups)
      stagesOfGroup[g].push_back(s);
  }
  std::vector<const std::vector<uint32_t> *> keys;
  auto unitsOf = [&](uint32_t g, uint32_t s) {
    const auto &units = tables.groups()[g].units;
    return std::count_if(units.begin(), units.end(),
                         [&](uint32_t u) { return static_cast<int32_t>(u) >= stages[s].stage->unitBegin && static_cast<int32_t>(u) < stages[s].stage->unitEnd; });
  };
  for (uint32_t g = 0; g < tables.groups().size(); ++g) {
    sharesOfGroup[g] = kNone;
    if (stagesOfGroup[g].empty())
      continue;
    // Weights differ only where a group has several units in a stage; compare what decides them.
    uint32_t found = kNone;
    size_t from = keys.size() > 8 ? keys.size() - 8 : 0; // groups of a stage come one after the other
    for (size_t i = keys.size(); i-- > from && found == kNone;) {
      uint32_t other = shares[i].groups.front();
      bool same = *keys[i] == stagesOfGroup[g] && tables.groups()[other].trainable == tables.groups()[g].trainable;
      for (uint32_t s : stagesOfGroup[g])
        same = same && (stagesOfGroup[g].size() == 1 || unitsOf(other, s) == unitsOf(g, s));
      if (same)
        found = static_cast<uint32_t>(i);
    }
    if (found == kNone) {
      found = static_cast<uint32_t>(shares.size());
      keys.push_back(&stagesOfGroup[g]);
      OwnerShares set;
      std::vector<std::pair<uint32_t, double>> weights;
      for (uint32_t s : stagesOfGroup[g]) {
        double units = static_cast<double>(unitsOf(g, s));
        for (const Member &member : stages[s].stage->members)
          if (member.samples > 0)
            weights.push_back({member.device, units * static_cast<double>(member.samples)});
      }
      std::sort(weights.begin(), weights.end());
      for (auto &[device, weight] : weights) {
        if (!set.readers.empty() && set.readers.back() == device) {
          set.weights.back() += weight;
          continue;
        }
        set.readers.push_back(device);
        set.weights.push_back(weight);
      }
      if (layout.state != StateRule::Proportional)
        std::fill(set.weights.begin(), set.weights.end(), 1.0);
      shares.push_back(std::move(set));
    }
    shares[found].groups.push_back(g);
    sharesOfGroup[g] = found;
  }
}

void QuickSimulation::staticMemory(const Layout &layout) {
  (void)layout;
  std::fill(resident.begin(), resident.end(), 0);
  std::fill(accumulators.begin(), accumulators.end(), 0);
  for (const OwnerShares &set : shares)
    for (uint32_t d : set.readers)
      if (resident[d] == 0)
        resident[d] = kScalarsBlock + 64;
  for (const StageInfo &info : stages)
    for (const Member &member : info.stage->members)
      if (member.samples > 0) {
        uint64_t &held = alive[member.device]; // for the moment: the workspace
        held = std::max(held, tables.workspace(info.stage->unitBegin, info.stage->unitEnd, std::min(member.rows, member.samples), split));
      }
  for (uint32_t d : devicesUsed) {
    resident[d] = std::max<uint64_t>(resident[d], kScalarsBlock) + alive[d];
    alive[d] = 0;
  }
  for (const OwnerShares &set : shares)
    for (uint32_t g : set.groups) {
      const GroupTable &group = tables.groups()[g];
      uint64_t elements = static_cast<uint64_t>(group.elements);
      for (uint32_t d : set.readers) {
        resident[d] += aligned(elements * group.computeSize);
        accumulators[d] += group.trainable ? aligned(elements * group.elementSize) : 0;
      }
    }
}

/// Peak of a device's activations in the order of its tasks, transfers aside.
uint64_t QuickSimulation::orderedPeak(uint32_t device) const {
  uint64_t held = 0, most = 0;
  auto run = [&](uint32_t task) {
    const CellBytes &bytes = kinds[kindOf[task & kCellMask]].bytes;
    switch (task & ~kCellMask) {
    case kForwardTask:
      held += bytes.takenByReceive + bytes.takenByForward;
      most = std::max(most, held);
      held -= std::min(held, bytes.freedByForward + bytes.freedBySend);
      break;
    case kBackwardTask:
      held += bytes.takenByGradientReceive + bytes.takenByBackward;
      most = std::max(most, held);
      held -= std::min(held, bytes.freedByBackward + bytes.freedByGradientSend);
      break;
    default:
      held -= std::min(held, bytes.freedByWeights);
    }
  };
  if (chained) {
    for (uint32_t i = chainBegin[device]; i < chainBegin[device + 1]; ++i)
      run(chain[i]);
    return most;
  }
  for (uint32_t i = cellsOfBegin[device]; i < cellsOfBegin[device + 1]; ++i)
    run(kForwardTask | cellsOf[i]);
  for (uint32_t i = cellsOfBegin[device]; i < cellsOfBegin[device + 1]; ++i)
    run(kBackwardTask | cellsOf[i]);
  return most;
}

/// StateRule::FreeMemory: moments and masters go where most memory is left, so that the least that any owner has left is greatest.
void QuickSimulation::weighOwners(const Layout &layout) {
  if (layout.state != StateRule::FreeMemory)
    return;
  std::vector<double> left(problem.cluster.devices.size(), 0);
  bool limited = true;
  for (uint32_t d : devicesUsed) {
    const ClusterDevice &device = problem.cluster.devices[d];
    limited &= device.memory > 0;
    left[d] = static_cast<double>(device.memory) - static_cast<double>(device.reserve + resident[d] + accumulators[d] + orderedPeak(d));
  }
  if (!limited)
    return;
  std::vector<double> sorted;
  for (OwnerShares &set : shares) {
    double bytes = 0;
    for (uint32_t g : set.groups) {
      const GroupTable &group = tables.groups()[g];
      if (group.trainable)
        bytes += static_cast<double>(group.elements) * static_cast<double>(group.elementSize) * (tables.moments() + (group.computeSize != group.elementSize ? 1 : 0));
    }
    if (bytes <= 0 || set.readers.size() < 2)
      continue;
    sorted.clear();
    for (uint32_t d : set.readers)
      sorted.push_back(left[d]);
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    double sum = 0, level = 0; // all owners end at `level` or are below it and own nothing
    for (size_t i = 0; i < sorted.size(); ++i) {
      sum += sorted[i];
      level = (sum - bytes) / static_cast<double>(i + 1);
      if (i + 1 == sorted.size() || level >= sorted[i + 1])
        break;
    }
    for (size_t i = 0; i < set.readers.size(); ++i) {
      double owned = std::max(0.0, left[set.readers[i]] - level);
      set.weights[i] = owned / bytes;
      left[set.readers[i]] -= owned;
    }
  }
}

const std::vector<sim::Piece> &QuickSimulation::pieces(const OwnerShares &set, uint32_t group) {
  // As the expansion: whole multiples of 512 bytes in proportion.
  const GroupTable &table = tables.groups()[group];
  int64_t align = static_cast<int64_t>(512 / table.elementSize);
  int64_t blocks = (table.elements + align - 1) / align;
  pieceList.clear();
  std::vector<int64_t> parts = step::splitInProportion(blocks, set.weights);
  int64_t begin = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    int64_t end = std::min(begin + parts[i] * align, table.elements);
    if (begin < end)
      pieceList.push_back({set.readers[i], static_cast<double>(end - begin)});
    begin = end;
  }
  return pieceList;
}

/// Moments and masters.
void QuickSimulation::ownedMemory() {
  std::fill(owned.begin(), owned.end(), 0);
  for (const OwnerShares &set : shares) {
    int64_t elements = -1;
    for (uint32_t g : set.groups) {
      const GroupTable &group = tables.groups()[g];
      if (!group.trainable)
        continue;
      uint64_t copies = tables.moments() + (group.computeSize != group.elementSize ? 1 : 0);
      if (group.elements != elements) // most groups of a stage are alike
        pieces(set, g);
      elements = group.elements;
      for (const sim::Piece &piece : pieceList)
        owned[piece.device] += copies * aligned(static_cast<uint64_t>(piece.bytes) * group.elementSize);
    }
  }
}

// ---- Orders.

void QuickSimulation::order(const Layout &layout) {
  orders = layout.schedule.kind == step::ScheduleKind::GPipe ? Orders::AllForwardsFirst : layout.schedule.kind == step::ScheduleKind::Timed ? Orders::Timed : Orders::Chain;
  chained = orders == Orders::Chain;
  chain.clear();
  if (chained)
    orderStages();
}

void QuickSimulation::addCandidate(uint64_t priority, uint32_t op) {
  candidates.push_back({priority, op});
  std::push_heap(candidates.begin(), candidates.end(), later);
}

/// Seconds of a transfer alone on an idle network, latency included.
double QuickSimulation::idleSeconds(uint32_t from, uint32_t to, double bytes) {
  const sim::Network &network = problem.costs.network();
  sim::Route route = network.route(from, to);
  double slowest = route.flow > 0 ? 1 / route.flow : 0;
  for (uint32_t r = 0; r < route.count; ++r)
    slowest = std::max(slowest, network.secondsPerByte(route.resources[r]));
  return bytes * slowest + route.latency;
}

void QuickSimulation::prepare(const Layout &layout) {
  std::fill(alive.begin(), alive.end(), 0);
  deal(layout);
  order(layout);
  layOutState(layout);
  staticMemory(layout);
  weighOwners(layout);
  ownedMemory();
}

// ---- The clock.

void QuickSimulation::push(double time, uint32_t what) {
  events.push_back({time, what});
  size_t i = events.size() - 1;
  while (i > 0) {
    size_t up = (i - 1) / 4;
    if (events[up].time <= time)
      break;
    events[i] = events[up];
    i = up;
  }
  events[i] = {time, what};
}

QuickSimulation::Event QuickSimulation::pop() {
  Event top = events.front(), last = events.back();
  events.pop_back();
  size_t n = events.size(), i = 0;
  if (n == 0)
    return top;
  while (true) {
    size_t first = 4 * i + 1;
    if (first >= n)
      break;
    size_t best = first, end = std::min(first + 4, n);
    for (size_t k = first + 1; k < end; ++k)
      if (events[k].time < events[best].time)
        best = k;
    if (events[best].time >= last.time)
      break;
    events[i] = events[best];
    i = best;
  }
  events[i] = last;
  return top;
}

void QuickSimulation::begin(uint32_t device, uint32_t task) {
  const Kind &kind = kinds[kindOf[task & kCellMask]];
  double seconds;
  switch (task & ~kCellMask) {
  case kForwardTask:
    seconds = kind.forward;
    take(device, kind.bytes.takenByForward);
    break;
  case kBackwardTask:
    seconds = kind.backward;
    take(device, kind.bytes.takenByBackward);
    break;
  default:
    seconds = kind.weights;
  }
  if (!accumulates[device] && (task & ~kCellMask) == (split ? kWeightsTask : kBackwardTask)) { // gradients take memory from the first to the step's end
    accumulates[device] = 1;
    take(device, accumulators[device]);
  }
  current[device] = task;
  result.busy[device] += seconds;
  push(mode.freeLinks ? now + seconds : traffic.compute(device, seconds, now), what(kComputeEnd, device));
}

void QuickSimulation::startCompute(uint32_t device) {
  if (current[device] != kNone)
    return;
  if (chained) {
    uint32_t at = position[device];
    bool ready = at < chainBegin[device + 1];
    if (ready) {
      uint32_t task = chain[at], cell = task & kCellMask;
      bool forward = (task & ~kCellMask) == kForwardTask;
      ready = forward ? pendingForward[cell] == 0 : pendingBackward[cell] == 0;
      if (forward && split)
        ready = ready && (forwardsBegun[device] < weightBound[device] || weightsDone[device] + weightBound[device] > forwardsBegun[device]);
      if (ready) {
        ++position[device];
        forwardsBegun[device] += forward;
        begin(device, task);
        return;
      }
    }
    if (readyWeights[device].empty())
      return;
    uint32_t task = readyWeights[device].front().op;
    std::pop_heap(readyWeights[device].begin(), readyWeights[device].end(), later);
    readyWeights[device].pop_back();
    begin(device, task);
    return;
  }
  auto &heap = orders == Orders::Timed && weightsFirst(device) ? readyWeights[device] : readyTasks[device];
  if (heap.empty())
    return;
  uint32_t task = heap.front().op;
  std::pop_heap(heap.begin(), heap.end(), later);
  heap.pop_back();
  begin(device, task);
}

/// Timed: whether the next task is a W.
bool QuickSimulation::weightsFirst(uint32_t device) const {
  if (readyWeights[device].empty())
    return false;
  if (readyTasks[device].empty())
    return true;
  return readyTasks[device].front() > readyWeights[device].front();
}

/// Without a chain: a task whose predecessors have finished.
void QuickSimulation::readyTask(uint32_t task) {
  uint32_t cell = task & kCellMask, device = cells[cell].device, kind = task & ~kCellMask;
  uint64_t priority;
  if (orders == Orders::Timed) {
    if (kind == kForwardTask && !admitted[cell]) { // of the first stage: the others' transfers have waited
      if (blockedAt[cell] == kNone) {
        oldest.push_back({priorityOf(0, cells[cell].sampleBegin, cells[cell].unitBegin), cell});
        std::push_heap(oldest.begin(), oldest.end(), later);
      }
      blockedAt[cell] = kCellMask; // the forward itself
      return;
    }
    priority = kind == kForwardTask ? forwardPriority[cell] : kind == kBackwardTask ? backwardPriority[cell] : weightsPriority[cell];
  } else {
    priority = priorityOf(kind == kForwardTask ? kForwardRank : kind == kBackwardTask ? kBackwardRank : kFillerRank, cells[cell].sampleBegin, cells[cell].unitBegin);
  }
  auto &heap = orders != Orders::AllForwardsFirst && kind == kWeightsTask ? readyWeights[device] : readyTasks[device];
  heap.push_back({priority, task});
  std::push_heap(heap.begin(), heap.end(), later);
}

/// A transfer between devices whose bytes are there.
void QuickSimulation::readyTransfer(uint32_t t, bool gradient) {
  const Transfer &transfer = gradient ? gradients[t] : transfers[t];
  uint32_t op = (gradient ? kGradientOp : kTransferOp) | t;
  if (orders != Orders::Timed) {
    const step::Cell &from = cells[transfer.from], &to = cells[transfer.to];
    addCandidate(priorityOf(gradient ? kBackwardRank : kForwardRank, std::max(from.sampleBegin, to.sampleBegin), to.unitBegin), op);
    return;
  }
  if (!gradient && !admitted[transfer.to]) {
    if (blockedAt[transfer.to] == kNone) {
      oldest.push_back({priorityOf(0, cells[transfer.to].sampleBegin, cells[transfer.to].unitBegin), transfer.to});
      std::push_heap(oldest.begin(), oldest.end(), later);
    }
    blockedNext[t] = blockedAt[transfer.to];
    blockedAt[transfer.to] = t;
    return;
  }
  addCandidate(gradient ? gradientPriority[t] : transferPriority[t], op);
}

// ---- Admission, as the expansion's simulation has it.

void QuickSimulation::enter(uint32_t cell) {
  uint32_t device = cells[cell].device;
  admitted[cell] = 1;
  rowsInFlight[device] += cells[cell].rows();
  heldBytes[device] += kinds[kindOf[cell]].bytes.hold;
  uint32_t t = blockedAt[cell];
  blockedAt[cell] = kNone;
  if (double bytes = kinds[kindOf[cell]].inputBytes) { // inputs come once there is room for them
    loadFree[device] = std::max(loadFree[device], now) + problem.costs.load(device, static_cast<uint64_t>(bytes));
    push(loadFree[device], what(kLoaded, cell));
  }
  if (t == kCellMask) {
    readyTask(kForwardTask | cell);
    touched.push_back(device);
    return;
  }
  for (; t != kNone; t = blockedNext[t])
    addCandidate(transferPriority[t], kTransferOp | t);
}

void QuickSimulation::admit(uint32_t device) {
  while (true) {
    uint32_t &next = admitNext[device];
    while (next < cellsOfBegin[device + 1] && admitted[cellsOf[next]])
      ++next;
    if (next == cellsOfBegin[device + 1])
      return;
    uint32_t cell = cellsOf[next];
    if (rowsInFlight[device] > 0 && static_cast<double>(rowsInFlight[device] + cells[cell].rows()) > mostRows[device])
      return;
    if (heldBytes[device] > 0 && heldBytes[device] + kinds[kindOf[cell]].bytes.hold > budget[device])
      return;
    enter(cell);
  }
}

void QuickSimulation::leave(uint32_t cell, bool backward, bool last) {
  uint32_t device = cells[cell].device;
  if (backward)
    rowsInFlight[device] -= cells[cell].rows();
  if (last)
    heldBytes[device] -= kinds[kindOf[cell]].bytes.hold;
  admit(device);
}

bool QuickSimulation::admitOldest() {
  while (!oldest.empty()) {
    uint32_t cell = oldest.front().op;
    std::pop_heap(oldest.begin(), oldest.end(), later);
    oldest.pop_back();
    if (admitted[cell])
      continue;
    enter(cell);
    return true;
  }
  return false;
}

void QuickSimulation::endCompute(uint32_t device) {
  uint32_t task = current[device], cell = task & kCellMask;
  const CellBytes &bytes = kinds[kindOf[cell]].bytes;
  current[device] = kNone;
  computeEnd[device] = now;
  ++tasksDone;
  touched.push_back(device);
  bool last = false;
  switch (task & ~kCellMask) {
  case kForwardTask:
    alive[device] -= bytes.freedByForward;
    if (sends[cell].begin == sends[cell].end)
      alive[device] -= bytes.freedBySend;
    for (uint32_t t = sends[cell].begin; t < sends[cell].end; ++t) {
      if (cells[transfers[t].to].device == device || mode.freeLinks) {
        uint32_t to = transfers[t].to, target = cells[to].device;
        if (!received[to]) {
          received[to] = 1;
          take(target, kinds[kindOf[to]].bytes.takenByReceive);
        }
        sent(t, false);
        arrived(t, false);
      } else {
        readyTransfer(t, false);
      }
    }
    if (orders == Orders::Timed && pendingBackward[cell] == 0)
      readyTask(kBackwardTask | cell); // the last stage
    if (orders == Orders::AllForwardsFirst && --forwardsLeft[device] == 0)
      for (uint32_t i = cellsOfBegin[device]; i < cellsOfBegin[device + 1]; ++i)
        if (pendingBackward[cellsOf[i]] == 0)
          readyTask(kBackwardTask | cellsOf[i]);
    break;
  case kBackwardTask:
    alive[device] -= bytes.freedByBackward;
    if (gradientSends[cell].begin == gradientSends[cell].end)
      alive[device] -= bytes.freedByGradientSend;
    for (uint32_t t = gradientSends[cell].begin; t < gradientSends[cell].end; ++t) {
      if (cells[gradients[t].to].device == device || mode.freeLinks) {
        uint32_t to = gradients[t].to, target = cells[to].device;
        if (!gradientReceived[to]) {
          gradientReceived[to] = 1;
          take(target, kinds[kindOf[to]].bytes.takenByGradientReceive);
        }
        sent(t, true);
        arrived(t, true);
      } else {
        readyTransfer(t, true);
      }
    }
    if (split)
      readyTask(kWeightsTask | cell);
    last = !split;
    break;
  default:
    alive[device] -= bytes.freedByWeights;
    ++weightsDone[device];
    last = true;
  }
  if (orders == Orders::Timed && (task & ~kCellMask) != kForwardTask)
    leave(cell, (task & ~kCellMask) == kBackwardTask, last);
  if (last && --stages[stageOf[cell]].cellsLeft == 0)
    stageDone(stageOf[cell]);
}

void QuickSimulation::sent(uint32_t transfer, bool gradient) {
  uint32_t from = gradient ? gradients[transfer].from : transfers[transfer].from;
  const CellBytes &bytes = kinds[kindOf[from]].bytes;
  if (gradient ? --gradientSendsLeft[from] == 0 : --sendsLeft[from] == 0)
    alive[cells[from].device] -= gradient ? bytes.freedByGradientSend : bytes.freedBySend;
}

void QuickSimulation::arrived(uint32_t transfer, bool gradient) {
  ++tasksDone;
  uint32_t to = gradient ? gradients[transfer].to : transfers[transfer].to;
  uint32_t device = cells[to].device;
  if (gradient) {
    if (--pendingBackward[to] == 0) {
      if (orders == Orders::Timed || (orders == Orders::AllForwardsFirst && forwardsLeft[device] == 0))
        readyTask(kBackwardTask | to);
      touched.push_back(device);
    }
  } else if (--pendingForward[to] == 0) {
    if (!chained)
      readyTask(kForwardTask | to);
    touched.push_back(device);
  }
}

void QuickSimulation::offer(size_t queue) {
  auto &list = waiting[queue];
  if (busyQueue[queue] || list.empty())
    return;
  candidates.push_back(list.front());
  std::push_heap(candidates.begin(), candidates.end(), later);
  std::pop_heap(list.begin(), list.end(), later);
  list.pop_back();
}

void QuickSimulation::startTransfers() {
  size_t devices = problem.cluster.devices.size();
  auto wait = [&](size_t queue, const Waiting &key) {
    waiting[queue].push_back(key);
    std::push_heap(waiting[queue].begin(), waiting[queue].end(), later);
  };
  while (!candidates.empty()) {
    Waiting key = candidates.front();
    std::pop_heap(candidates.begin(), candidates.end(), later);
    candidates.pop_back();
    uint32_t kind = key.op & ~kCellMask, index = key.op & kCellMask;
    if (kind == kCollectiveOp) {
      Collective &collective = collectives[index];
      const OwnerShares &set = shares[collective.shares];
      size_t blocker = SIZE_MAX;
      for (uint32_t d : set.readers)
        if (busyQueue[2 * devices + d]) {
          blocker = 2 * devices + d;
          break;
        }
      if (blocker != SIZE_MAX) {
        wait(blocker, key);
        for (uint32_t d : set.readers)
          offer(2 * devices + d);
        continue;
      }
      for (uint32_t d : set.readers)
        busyQueue[2 * devices + d] = 1;
      double size = static_cast<double>(collective.gather ? tables.groups()[collective.group].computeSize : tables.groups()[collective.group].elementSize);
      pieces(set, collective.group);
      for (sim::Piece &piece : pieceList)
        piece.bytes *= size;
      sim::Passage passage = collective.gather ? traffic.allGather(pieceList, set.readers, now, problem.costs.gatherAlgorithm())
                                               : traffic.reduceScatter(set.readers, pieceList, now, problem.costs.reduceAlgorithm());
      push(passage.sent, what(kCollectiveSent, index));
      push(passage.arrived, what(kCollectiveArrived, index));
      continue;
    }
    bool gradient = kind == kGradientOp;
    const Transfer &transfer = gradient ? gradients[index] : transfers[index];
    uint32_t from = cells[transfer.from].device, to = cells[transfer.to].device;
    if (busyQueue[from]) {
      wait(from, key);
      offer(devices + to);
      continue;
    }
    if (busyQueue[devices + to]) {
      wait(devices + to, key);
      offer(from);
      continue;
    }
    busyQueue[from] = busyQueue[devices + to] = 1;
    uint8_t &first = gradient ? gradientReceived[transfer.to] : received[transfer.to];
    if (!first) {
      first = 1;
      const CellBytes &bytes = kinds[kindOf[transfer.to]].bytes;
      take(to, gradient ? bytes.takenByGradientReceive : bytes.takenByReceive);
    }
    sim::Passage passage = traffic.send(from, to, transfer.bytes, now);
    push(passage.sent, what(gradient ? kGradientSent : kSent, index));
    push(passage.arrived, what(gradient ? kGradientArrived : kArrived, index));
  }
}

/// Every gradient of a stage has been added up.
void QuickSimulation::stageDone(uint32_t stage) {
  tables.groupsOf(stages[stage].stage->unitBegin, stages[stage].stage->unitEnd, scratchGroups);
  for (uint32_t g : scratchGroups) {
    const OwnerShares &set = shares[sharesOfGroup[g]];
    if (!tables.groups()[g].trainable)
      continue;
    if (set.readers.size() == 1) {
      uint32_t d = set.readers.front();
      normEnd[d] = std::max(normEnd[d], now) + problem.costs.norm(d, tables.groups()[g].elements);
      updateSeconds[d] += problem.costs.update(d, tables.groups()[g].elements);
      continue;
    }
    for (uint32_t i = 0; i < collectives.size(); ++i)
      if (collectives[i].group == g && !collectives[i].gather && --collectives[i].pending == 0) {
          if (mode.freeLinks)
          continue;
        const auto &units = tables.groups()[g].units;
        addCandidate(priorityOf(kShortRank, 0, units.empty() ? 0 : -static_cast<int32_t>(units.back())), kCollectiveOp | i); // gradients of late units first
      }
  }
}

void QuickSimulation::collectiveDone(uint32_t index) {
  const Collective &collective = collectives[index];
  uint32_t g = collective.group;
  if (collective.gather) {
    for (uint32_t s : stagesOfGroup[g])
      if (--stages[s].gathers == 0)
        for (uint32_t c = stages[s].cellBegin; c < stages[s].cellEnd; ++c)
          if (--pendingForward[c] == 0) {
            if (!chained)
              readyTask(kForwardTask | c);
            touched.push_back(cells[c].device);
          }
    return;
  }
  for (const sim::Piece &piece : pieces(shares[collective.shares], g)) {
    uint32_t d = piece.device;
    int64_t elements = static_cast<int64_t>(piece.bytes);
    normEnd[d] = std::max(normEnd[d], now) + problem.costs.norm(d, elements);
    updateSeconds[d] += problem.costs.update(d, elements);
  }
}

void QuickSimulation::start() {
  size_t devices = problem.cluster.devices.size();
  traffic.reset();
  now = 0;
  tasksDone = 0;
  events.clear();
  candidates.clear();
  touched.clear();
  received.assign(cells.size(), 0);
  gradientReceived.assign(cells.size(), 0);
  std::fill(current.begin(), current.end(), kNone);
  std::fill(computeEnd.begin(), computeEnd.end(), 0);
  std::fill(normEnd.begin(), normEnd.end(), 0);
  std::fill(updateSeconds.begin(), updateSeconds.end(), 0);
  std::fill(result.busy.begin(), result.busy.end(), 0);
  std::fill(busyQueue.begin(), busyQueue.end(), 0);
  std::fill(alive.begin(), alive.end(), 0);
  std::fill(peak.begin(), peak.end(), 0);
  for (auto &list : waiting)
    list.clear();
  for (size_t d = 0; d < devices; ++d) {
    readyTasks[d].clear();
    readyWeights[d].clear();
    weightsDone[d] = forwardsBegun[d] = 0;
    accumulates[d] = 0;
    loadFree[d] = 0;
    forwardsLeft[d] = cellsOfBegin[d + 1] - cellsOfBegin[d];
    position[d] = chained ? chainBegin[d] : 0;
  }
  collectives.clear();
  for (uint32_t i = 0; i < shares.size(); ++i)
    for (uint32_t g : shares[i].groups) {
      const GroupTable &group = tables.groups()[g];
      const auto &readers = shares[i].readers;
      if (!group.trainable || readers.size() < 2 || group.elements == 0)
        continue;
      collectives.push_back({g, i, true, 0, 0});
      collectives.push_back({g, i, false, 0, static_cast<uint32_t>(stagesOfGroup[g].size())});
      if (mode.freeLinks)
        continue;
      for (uint32_t s : stagesOfGroup[g])
        ++stages[s].gathers;
      candidates.push_back({priorityOf(kShortRank, 0, group.units.empty() ? 0 : static_cast<int32_t>(group.units.front())), static_cast<uint32_t>(collectives.size() - 2)});
    }
  std::make_heap(candidates.begin(), candidates.end(), later);
  for (const StageInfo &info : stages)
    if (info.gathers)
      for (uint32_t c = info.cellBegin; c < info.cellEnd; ++c)
        ++pendingForward[c];
  if (orders == Orders::Timed) {
    oldest.clear();
    admitted.assign(cells.size(), 0);
    blockedAt.assign(cells.size(), kNone);
    blockedNext.resize(transfers.size());
    for (uint32_t c = 0; c < cells.size(); ++c)
      pendingForward[c] += kinds[kindOf[c]].inputBytes > 0;
    for (uint32_t d : devicesUsed) {
      admitNext[d] = cellsOfBegin[d];
      rowsInFlight[d] = 0;
      heldBytes[d] = 0;
    }
    for (uint32_t d : devicesUsed)
      admit(d);
    for (uint32_t c = 0; c < cells.size(); ++c)
      if (!admitted[c] && kinds[kindOf[c]].inputBytes > 0) // its inputs could be loaded
        oldest.push_back({priorityOf(0, cells[c].sampleBegin, cells[c].unitBegin), c});
    std::make_heap(oldest.begin(), oldest.end(), later);
  }
  if (!chained)
    for (uint32_t c = 0; c < cells.size(); ++c)
      if (pendingForward[c] == 0)
        readyTask(kForwardTask | c);
  for (uint32_t d : devicesUsed)
    startCompute(d);
  touched.clear();
  startTransfers();
}

void QuickSimulation::loop() {
  size_t devices = problem.cluster.devices.size();
  while (true) {
    if (events.empty()) {
      if (orders != Orders::Timed || !admitOldest())
        break;
      for (uint32_t d : touched)
        startCompute(d);
      touched.clear();
      startTransfers();
      continue;
    }
    now = events.front().time;
    while (!events.empty() && events.front().time == now) {
      Event event = pop();
      uint32_t index = event.what & ((1u << kWhatBits) - 1);
      switch (event.what >> kWhatBits) {
      case kComputeEnd:
        endCompute(index);
        break;
      case kSent:
      case kGradientSent: {
        bool gradient = event.what >> kWhatBits == kGradientSent;
        const Transfer &transfer = gradient ? gradients[index] : transfers[index];
        size_t from = cells[transfer.from].device, to = devices + cells[transfer.to].device;
        busyQueue[from] = busyQueue[to] = 0;
        offer(from);
        offer(to);
        sent(index, gradient);
        break;
      }
      case kArrived:
      case kGradientArrived:
        arrived(index, event.what >> kWhatBits == kGradientArrived);
        break;
      case kLoaded:
        if (--pendingForward[index] == 0) {
          readyTask(kForwardTask | index);
          touched.push_back(cells[index].device);
        }
        break;
      case kCollectiveSent:
        for (uint32_t d : shares[collectives[index].shares].readers)
          busyQueue[2 * devices + d] = 0;
        for (uint32_t d : shares[collectives[index].shares].readers)
          offer(2 * devices + d);
        break;
      default:
        collectiveDone(index);
      }
    }
    for (uint32_t d : touched)
      startCompute(d);
    touched.clear();
    startTransfers();
  }
}

/// Norms, the sums of all, the decision, updates.
void QuickSimulation::commit() {
  double summed = 0, end = 0;
  std::vector<uint32_t> members;
  for (uint32_t d : devicesUsed) {
    end = std::max(end, computeEnd[d]);
    if (mode.freeLinks)
      continue;
    summed = std::max(summed, normEnd[d]);
    members.push_back(d);
  }
  for (const StageInfo &info : stages)
    if (tables.hasLoss(info.stage->unitBegin, info.stage->unitEnd))
      for (const Member &member : info.stage->members)
        summed = std::max(summed, computeEnd[member.device] * 0); // forwards are long done
  if (!mode.freeLinks) {
    summed = std::max(summed, traffic.allReduce(members, static_cast<double>(kSumsBytes), summed, problem.costs.reduceAlgorithm()).arrived);
    for (uint32_t d : devicesUsed)
      end = std::max(end, std::max(summed, computeEnd[d]) + updateSeconds[d]);
  }
  result.step = std::max(end, now);
}

const QuickSimulation::Result &QuickSimulation::run(const Layout &layout, Mode runMode) {
  mode = runMode;
  prepare(layout);
  connect();
  if (orders == Orders::Timed)
    orderByTime(layout);
  else if (chained && split)
    boundWeights();
  start();
  loop();
  uint32_t expected = static_cast<uint32_t>((split ? 3 : 2) * cells.size() + transfers.size() + gradients.size());
  result.ran = tasksDone == expected;
  result.tasks = tasksDone;
  commit();
  result.excess = 0;
  for (size_t d = 0; d < resident.size(); ++d)
    result.memory[d] = 0;
  for (uint32_t d : devicesUsed)
    result.memory[d] = problem.cluster.devices[d].reserve + resident[d] + owned[d] + peak[d] + (peak[d] - accumulators[d]) / kGaps;
  for (uint32_t d : devicesUsed) {
    uint64_t memory = problem.cluster.devices[d].memory;
    if (memory && result.memory[d] > memory)
      result.excess += result.memory[d] - memory;
  }
  return result;
}
