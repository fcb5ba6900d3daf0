// Transfers and collectives: what waits for queues, what starts, what has come.

#include "QuickSimulation.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::planning;

void QuickSimulation::addCandidate(uint64_t priority, uint32_t op) {
  candidates.push_back({priority, op});
  std::push_heap(candidates.begin(), candidates.end(), later);
}

/// A transfer between devices whose bytes are there.
void QuickSimulation::readyTransfer(uint32_t t, bool gradient) {
  const Transfer &transfer = gradient ? gradients[t] : transfers[t];
  uint32_t op = (gradient ? kGradientOp : kTransferOp) | t;
  if (orders != Orders::Timed) {
    const step::Cell &from = cells[transfer.from], &to = cells[transfer.to];
    addCandidate(step::priorityOf(gradient ? step::kBackwardRank : step::kForwardRank, std::max(from.sampleBegin, to.sampleBegin), to.unitBegin), op);
    return;
  }
  if (!gradient && !admitted[transfer.to]) {
    if (blockedAt[transfer.to] == kNone) {
      oldest.push_back({step::priorityOf(0, cells[transfer.to].sampleBegin, cells[transfer.to].unitBegin), transfer.to});
      std::push_heap(oldest.begin(), oldest.end(), later);
    }
    blockedNext[t] = blockedAt[transfer.to];
    blockedAt[transfer.to] = t;
    return;
  }
  addCandidate(gradient ? gradientPriority[t] : transferPriority[t], op);
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
      double size =
          static_cast<double>(collective.gather ? tables.groups()[collective.group].computeSize : tables.groups()[collective.group].elementSize);
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

/// Of an owner's elements: their update, and the cast of their copy, which begins the next step.
double QuickSimulation::secondsOfUpdate(uint32_t device, uint32_t group, int64_t elements) const {
  const GroupTable &table = tables.groups()[group];
  return problem.costs.update(device, elements) + (table.casts ? problem.costs.norm(device, elements) : 0.0);
}

/// Every gradient of a stage has been added up.
void QuickSimulation::stageDone(uint32_t stage) {
  tables.groupsOf(stages[stage].unitBegin, stages[stage].unitEnd, scratchGroups);
  for (uint32_t g : scratchGroups) {
    const OwnerShares &set = shares[sharesOfGroup[g]];
    if (!tables.groups()[g].trainable || --stagesLeft[g] > 0)
      continue;
    if (set.readers.size() == 1) {
      uint32_t d = set.readers.front();
      normEnd[d] = std::max(normEnd[d], now) + problem.costs.norm(d, tables.groups()[g].elements);
      updateSeconds[d] += secondsOfUpdate(d, g, tables.groups()[g].elements);
      continue;
    }
    for (uint32_t i = 0; i < collectives.size(); ++i)
      if (collectives[i].group == g && !collectives[i].gather) {
        if (mode.freeLinks)
          continue;
        const auto &units = tables.groups()[g].units;
        addCandidate(step::priorityOf(step::kShortRank, 0, units.empty() ? 0 : -static_cast<int32_t>(units.back())),
                     kCollectiveOp | i); // gradients of late units first
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
    updateSeconds[d] += secondsOfUpdate(d, g, elements);
  }
}
