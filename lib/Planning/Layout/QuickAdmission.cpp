// Timed schedules take samples in as memory lasts, as the expansion's simulation does.

#include "QuickSimulation.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::planning;

void QuickSimulation::enter(uint32_t cell) {
  uint32_t device = cells[cell].device;
  admitted[cell] = 1;
  rowsInFlight[bandOf[cell]] += cells[cell].rows();
  const CellBytes &bytes = kinds[kindOf[cell]].bytes;
  heldBytes[device] += bytes.hold - bytes.deferred;
  uint32_t t = blockedAt[cell];
  blockedAt[cell] = kNone;
  if (double inputs = kinds[kindOf[cell]].inputBytes) { // inputs come once there is room for them
    loadFree[device] = std::max(loadFree[device], now) + problem.costs.load(device, static_cast<uint64_t>(inputs));
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
  const std::vector<uint32_t> &lists = oneStageEach ? cellsOf : bandCells;
  while (true) {
    uint32_t best = kNone;
    for (uint32_t k = bandsBegin[device]; k < bandsBegin[device + 1]; ++k) {
      uint32_t &next = admitNext[k];
      while (next < bands[k].end && admitted[lists[next]])
        ++next;
      if (next == bands[k].end)
        continue;
      uint32_t cell = lists[next];
      if (rowsInFlight[k] > 0 && static_cast<double>(rowsInFlight[k] + cells[cell].rows()) > mostRows[k])
        continue;
      if (best == kNone || forwardPriority[cell] < forwardPriority[best])
        best = cell;
    }
    if (best == kNone)
      return;
    const CellBytes &bytes = kinds[kindOf[best]].bytes;
    if (heldBytes[device] > 0 && heldBytes[device] + bytes.hold - bytes.deferred + std::max(deferring[device], aside[device]) > budget[device])
      return;
    enter(best);
  }
}

void QuickSimulation::leave(uint32_t cell, bool backward, bool last) {
  uint32_t device = cells[cell].device;
  if (backward)
    rowsInFlight[bandOf[cell]] -= cells[cell].rows();
  if (last) {
    const CellBytes &bytes = kinds[kindOf[cell]].bytes;
    heldBytes[device] -= bytes.hold - bytes.deferred;
    if (!backward)
      deferring[device] -= bytes.deferred;
    for (const Waiting &waiting : heldBack[device]) {
      readyTasks[device].push_back(waiting);
      std::push_heap(readyTasks[device].begin(), readyTasks[device].end(), later);
    }
    heldBack[device].clear();
  }
  admit(device);
}

/// Whether a backward has to wait for a W, as what it leaves for its own has no room (Admission::aside).
bool QuickSimulation::defers(uint32_t device, uint32_t task) const {
  if (!split || (task & ~kCellMask) != kBackwardTask || deferring[device] == 0)
    return false;
  return heldBytes[device] + std::max(deferring[device] + kinds[kindOf[task & kCellMask]].bytes.deferred, aside[device]) > budget[device];
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
