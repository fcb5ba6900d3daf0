// Orders of tasks per device, on the flat arrays of the quick simulation.

#include "QuickSimulation.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::planning;

namespace {

constexpr uint32_t kNone = UINT32_MAX;
constexpr uint32_t kCellMask = (1u << 30) - 1;
constexpr uint32_t kForwardTask = 0, kBackwardTask = 1u << 30, kWeightsTask = 2u << 30;

} // namespace

/// 1F1B by samples, as lib/Step orders it: before a backward a device forwards whatever the stage behind forwards before the backwards that it waits for.
void QuickSimulation::orderStages() {
  size_t devices = problem.cluster.devices.size();
  struct Mark {
    int64_t sample, reach;
  };
  std::vector<std::vector<uint32_t>> orders(devices);
  std::vector<std::vector<Mark>> marks(devices);
  std::vector<uint32_t> seen(devices, kNone), next;
  std::vector<size_t> cursor;
  std::vector<int64_t> behindReach, following;

  for (size_t s = stages.size(); s-- > 0;) {
    const StageInfo &info = stages[s];
    const StageInfo *behind = info.behind < 0 ? nullptr : &stages[static_cast<size_t>(info.behind)];
    auto behindBegin = behind ? cells.begin() + behind->cellBegin : cells.end(), behindEnd = behind ? cells.begin() + behind->cellEnd : cells.end();
    for (const Member &member : info.stage->members) {
      uint32_t d = member.device;
      if (member.samples == 0 || !orders[d].empty())
        continue;
      const uint32_t *mine = cellsOf.data() + cellsOfBegin[d];
      size_t count = cellsOfBegin[d + 1] - cellsOfBegin[d];
      next.clear();
      for (size_t i = 0; i < count; ++i) {
        const step::Cell &cell = cells[mine[i]];
        auto it = std::partition_point(behindBegin, behindEnd, [&](const step::Cell &o) { return o.sampleEnd <= cell.sampleBegin; });
        for (; it != behindEnd && it->sampleBegin < cell.sampleEnd; ++it)
          if (seen[it->device] != d) {
            seen[it->device] = d;
            next.push_back(it->device);
          }
      }
      auto &order = orders[d];
      size_t forwards = 0;
      cursor.assign(next.size(), 0);
      int64_t reach = 0;
      behindReach.clear();
      for (size_t i = 0; i < count; ++i) {
        int64_t until = cells[mine[i]].sampleEnd;
        for (size_t n = 0; n < next.size(); ++n)
          for (auto &list = marks[next[n]]; cursor[n] < list.size() && list[cursor[n]].sample < until; ++cursor[n])
            reach = std::max(reach, list[cursor[n]].reach);
        auto last = std::partition_point(behindBegin, behindEnd, [&](const step::Cell &o) { return o.sampleEnd < reach; });
        if (reach > 0 && last != behindEnd && last->sampleBegin < reach)
          reach = last->sampleEnd;
        while (forwards < count && (cells[mine[forwards]].sampleBegin < reach || cells[mine[forwards]].sampleBegin < until))
          order.push_back(kForwardTask | mine[forwards++]);
        order.push_back(kBackwardTask | mine[i]);
        behindReach.push_back(reach);
      }
      following.assign(order.size() + 1, 0);
      for (size_t i = order.size(); i-- > 0;)
        following[i] = (order[i] & kBackwardTask) ? following[i + 1] : cells[order[i] & kCellMask].sampleEnd;
      int64_t high = 0;
      for (size_t i = 0; i < order.size(); ++i) {
        const step::Cell &cell = cells[order[i] & kCellMask];
        if (order[i] & kBackwardTask)
          marks[d].push_back({cell.sampleBegin, std::max({high, following[i], behindReach[marks[d].size()]})});
        else
          high = std::max(high, cell.sampleEnd);
      }
    }
  }
  chain.clear();
  for (size_t d = 0; d < devices; ++d) {
    chainBegin[d] = static_cast<uint32_t>(chain.size());
    for (uint32_t task : orders[d]) {
      chain.push_back(task);
      if (split && (task & kBackwardTask))
        chain.push_back(kWeightsTask | (task & kCellMask));
    }
  }
  chainBegin[devices] = static_cast<uint32_t>(chain.size());
}
