#include "QuickSimulation.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::planning;

namespace {} // namespace

QuickSimulation::QuickSimulation(const Problem &problem, const UnitTables &tables, uint64_t gaps)
    : problem(problem), tables(tables), unitTimes(problem, tables), traffic(problem.costs.network()), twins(problem), gaps(gaps) {
  size_t devices = problem.cluster.devices.size();
  result.memory.resize(devices);
  result.gaps.resize(devices);
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
  bandsBegin.resize(devices + 1);
  heldBytes.resize(devices);
  budget.resize(devices);
  deferring.resize(devices);
  aside.resize(devices);
  heldBack.resize(devices);
  busyQueue.resize(3 * devices);
  waiting.resize(3 * devices);
  stagesOfGroup.resize(tables.groups().size());
  sharesOfGroup.resize(tables.groups().size());
}

void QuickSimulation::prepare(const Layout &layout) {
  twins.forget(layout);
  lay(layout);
}

void QuickSimulation::lay(const Layout &layout) {
  std::fill(alive.begin(), alive.end(), 0);
  deal(layout);
  order(layout);
  layOutState(layout);
  staticMemory(layout);
  weighOwners(layout);
  ownedMemory();
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
    if (orders == Orders::Timed && split)
      deferring[device] += kind.bytes.deferred;
    break;
  default:
    seconds = kind.weights;
  }
  if (!accumulates[device] &&
      (task & ~kCellMask) == (split ? kWeightsTask : kBackwardTask)) { // gradients take memory from the first to the step's end
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
  while (true) {
    auto &heap = orders == Orders::Timed && weightsFirst(device) ? readyWeights[device] : readyTasks[device];
    if (heap.empty())
      return;
    const Waiting next = heap.front();
    std::pop_heap(heap.begin(), heap.end(), later);
    heap.pop_back();
    if (orders != Orders::Timed || !defers(device, next.op))
      return begin(device, next.op);
    heldBack[device].push_back(next);
  }
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
        oldest.push_back({step::priorityOf(0, cells[cell].sampleBegin, cells[cell].unitBegin), cell});
        std::push_heap(oldest.begin(), oldest.end(), later);
      }
      blockedAt[cell] = kCellMask; // the forward itself
      return;
    }
    priority = kind == kForwardTask ? forwardPriority[cell] : kind == kBackwardTask ? backwardPriority[cell] : weightsPriority[cell];
  } else {
    priority = step::priorityOf(kind == kForwardTask    ? step::kForwardRank
                                : kind == kBackwardTask ? step::kBackwardRank
                                                        : step::kFillerRank,
                                cells[cell].sampleBegin, cells[cell].unitBegin);
  }
  auto &heap = orders != Orders::AllForwardsFirst && kind == kWeightsTask ? readyWeights[device] : readyTasks[device];
  heap.push_back({priority, task});
  std::push_heap(heap.begin(), heap.end(), later);
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
  stagesLeft.resize(stagesOfGroup.size());
  for (size_t g = 0; g < stagesOfGroup.size(); ++g)
    stagesLeft[g] = static_cast<uint32_t>(stagesOfGroup[g].size());
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
      candidates.push_back({step::priorityOf(step::kShortRank, 0, group.units.empty() ? 0 : static_cast<int32_t>(group.units.front())),
                            static_cast<uint32_t>(collectives.size() - 2)});
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
    admitNext.resize(bands.size());
    for (size_t k = 0; k < bands.size(); ++k)
      admitNext[k] = bands[k].begin;
    rowsInFlight.assign(bands.size(), 0);
    for (uint32_t d : devicesUsed) {
      heldBytes[d] = deferring[d] = 0;
      heldBack[d].clear();
    }
    for (uint32_t d : devicesUsed)
      admit(d);
    for (uint32_t c = 0; c < cells.size(); ++c)
      if (!admitted[c] && kinds[kindOf[c]].inputBytes > 0) // its inputs could be loaded
        oldest.push_back({step::priorityOf(0, cells[c].sampleBegin, cells[c].unitBegin), c});
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
  for (auto [like, twin] : twins.devices()) {
    if (mode.freeLinks)
      break;
    computeEnd[twin] = computeEnd[like];
    summed = std::max(summed, normEnd[twin]);
    members.push_back(twin);
  }
  for (const StageInfo &info : stages)
    if (tables.hasLoss(info.unitBegin, info.unitEnd))
      for (const Member &member : info.stage->members)
        summed = std::max(summed, computeEnd[member.device] * 0); // forwards are long done
  if (!mode.freeLinks) {
    summed = std::max(summed, traffic.allReduce(members, static_cast<double>(kSumsBytes), summed, problem.costs.reduceAlgorithm()).arrived);
    for (uint32_t d : members)
      end = std::max(end, std::max(summed, computeEnd[d]) + updateSeconds[d]);
  }
  result.step = std::max(end, now);
}

const QuickSimulation::Result &QuickSimulation::run(const Layout &layout, Mode runMode) {
  mode = runMode;
  twins.find(layout);
  lay(layout);
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
    result.memory[d] = result.gaps[d] = 0;
  for (uint32_t d : devicesUsed) {
    result.gaps[d] = gaps ? (peak[d] - accumulators[d]) / gaps : 0;
    result.memory[d] = resident[d] + owned[d] + peak[d] + result.gaps[d];
  }
  for (auto [like, twin] : twins.devices()) { // alike but for what they own
    result.memory[twin] = result.memory[like] - owned[like] + owned[twin];
    result.gaps[twin] = result.gaps[like];
    result.busy[twin] = result.busy[like];
  }
  for (size_t d = 0; d < resident.size(); ++d) {
    uint64_t memory = problem.cluster.devices[d].capacity();
    if (memory && result.memory[d] > memory)
      result.excess += result.memory[d] - memory;
  }
  return result;
}
