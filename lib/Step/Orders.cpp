#include "zorse/Step/Orders.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace zorse::step;

/// Doubles that are not negative sort like their bits.
uint64_t zorse::step::priorityAt(uint8_t priorityClass, double seconds) {
  uint64_t bits;
  seconds = std::max(seconds, 0.0);
  std::memcpy(&bits, &seconds, sizeof bits);
  return static_cast<uint64_t>(priorityClass) << 61 | bits >> 3;
}

double ModuloReservationTable::reserve(double ready, double duration, double cycle) {
  double at = std::fmod(ready, cycle), wait = 0;
  for (size_t tries = 0; tries <= 2 * slots.size(); ++tries) {
    double end = at + duration, until = at;
    for (auto [begin, length] : slots)
      for (double shift : {-cycle, 0.0, cycle})
        if (begin + shift < end - 1e-12 * cycle && at < begin + shift + length - 1e-12 * cycle)
          until = std::max(until, begin + shift + length);
    if (until == at) {
      slots.push_back({at, duration});
      return wait;
    }
    wait += until - at;
    at = std::fmod(until, cycle);
  }
  return 0;
}

std::vector<TaskId> OneForwardOneBackward::order(uint32_t device, CellIndices mine,
                                                 CellIndices behind, size_t warmupForwards) {
  next.clear(); // devices of the next stage that share samples
  for (uint32_t c : mine) {
    const uint32_t *it = std::partition_point(behind.begin(), behind.end(), [&](uint32_t o) {
      return cells[o].sampleEnd <= cells[c].sampleBegin;
    });
    for (; it != behind.end() && cells[*it].sampleBegin < cells[c].sampleEnd; ++it)
      if (seen[cells[*it].device] != device) {
        seen[cells[*it].device] = device;
        next.push_back(cells[*it].device);
      }
  }

  std::vector<TaskId> tasks;
  tasks.reserve(2 * mine.count);
  size_t forwards = 0;
  cursor.assign(next.size(), 0);
  int64_t reach = 0;
  behindReach.clear(); // per backward
  for (uint32_t c : mine) {
    int64_t until = cells[c].sampleEnd;
    for (size_t i = 0; i < next.size(); ++i)
      for (auto &list = limits[next[i]]; cursor[i] < list.size() && list[cursor[i]].sample < until;
           ++cursor[i])
        reach = std::max(reach, list[cursor[i]].reach);
    // The cell of the next stage with the last of these samples needs all of that cell's samples.
    const uint32_t *last = std::partition_point(
        behind.begin(), behind.end(), [&](uint32_t o) { return cells[o].sampleEnd < reach; });
    if (reach > 0 && last != behind.end() && cells[*last].sampleBegin < reach)
      reach = cells[*last].sampleEnd;
    while (forwards < mine.count && (cells[mine.cells[forwards]].sampleBegin < reach ||
                                     cells[mine.cells[forwards]].sampleBegin < until ||
                                     forwards < behindReach.size() + warmupForwards))
      tasks.push_back({TaskKind::Forward, mine.cells[forwards++]});
    tasks.push_back({TaskKind::Backward, c});
    behindReach.push_back(reach);
  }

  // Backwards through the order: the forward that follows each backward. Forwards are by sample, so
  // it has the largest reach.
  following.assign(tasks.size() + 1, 0);
  for (size_t i = tasks.size(); i-- > 0;)
    following[i] = tasks[i].kind == TaskKind::Backward ? following[i + 1]
                                                       : cells[tasks[i].cell].sampleEnd;
  int64_t high = 0;
  std::vector<ForwardLimit> &own = limits[device];
  for (size_t i = 0; i < tasks.size(); ++i) {
    const Cell &cell = cells[tasks[i].cell];
    if (tasks[i].kind == TaskKind::Backward)
      own.push_back({cell.sampleBegin, std::max({high, following[i], behindReach[own.size()]})});
    else
      high = std::max(high, cell.sampleEnd);
  }
  return tasks;
}

size_t zorse::step::maxInFlight(const std::vector<TaskId> &tasks) {
  size_t alive = 0, max = 0;
  for (TaskId task : tasks) {
    task.kind == TaskKind::Forward ? ++alive : --alive;
    max = std::max(max, alive);
  }
  return max;
}
