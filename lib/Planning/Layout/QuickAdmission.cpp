// Timed schedules take samples in as memory lasts, as the expansion's simulation does.

#include "QuickSimulation.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::planning;

void QuickSimulation::enter(uint32_t cell) {
  uint32_t device = cells[cell].device;
  admitted[cell] = 1;
  rowsInFlight[bandOf[cell]] += cells[cell].rows();
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
    if (best == kNone || (heldBytes[device] > 0 && heldBytes[device] + kinds[kindOf[best]].bytes.hold > budget[device]))
      return;
    enter(best);
  }
}

void QuickSimulation::leave(uint32_t cell, bool backward, bool last) {
  uint32_t device = cells[cell].device;
  if (backward)
    rowsInFlight[bandOf[cell]] -= cells[cell].rows();
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
