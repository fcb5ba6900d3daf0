// Orders of tasks per device, on the flat arrays of the quick simulation.

#include "QuickSimulation.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace zorse;
using namespace zorse::planning;

namespace {

constexpr uint32_t kNone = UINT32_MAX;
constexpr uint32_t kCellMask = (1u << 30) - 1;
constexpr uint32_t kForwardTask = 0, kBackwardTask = 1u << 30;

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
    chain.insert(chain.end(), orders[d].begin(), orders[d].end());
  }
  chainBegin[devices] = static_cast<uint32_t>(chain.size());
}

/// 1F1B with a split backward: W fills gaps, but a device keeps no more cells between F and W than the fullest one between F and B, nor more than memory
/// seems to hold.
void QuickSimulation::boundWeights() {
  auto mostAlive = [&](uint32_t d) {
    uint32_t alive = 0, most = 0;
    for (uint32_t i = chainBegin[d]; i < chainBegin[d + 1]; ++i)
      most = std::max(most, (chain[i] & kBackwardTask) ? --alive : ++alive);
    return most;
  };
  uint32_t fullest = 1;
  for (uint32_t d : devicesUsed)
    fullest = std::max(fullest, mostAlive(d));
  for (uint32_t d : devicesUsed) {
    uint64_t bound = fullest;
    const ClusterDevice &device = problem.cluster.devices[d];
    if (device.memory) {
      uint64_t hold = 1, passing = 0;
      for (uint32_t i = cellsOfBegin[d]; i < cellsOfBegin[d + 1]; ++i) {
        hold = std::max(hold, kinds[kindOf[cellsOf[i]]].bytes.hold);
        passing = std::max(passing, kinds[kindOf[cellsOf[i]]].bytes.passing);
      }
      uint64_t others = device.reserve + resident[d] + accumulators[d] + owned[d] + passing;
      bound = std::min<uint64_t>(bound, (device.memory > others ? device.memory - others : 0) / hold);
    }
    weightBound[d] = std::max(static_cast<uint32_t>(bound), mostAlive(d));
  }
}

namespace {

/// Times order like their bits.
uint64_t priorityAt(uint8_t rank, double time) {
  uint64_t bits;
  time = std::max(time, 0.0);
  std::memcpy(&bits, &time, sizeof bits);
  return static_cast<uint64_t>(rank) << 61 | bits >> 3;
}

} // namespace

/// Priorities and admission of the timed schedule, as lib/Step/TimedOrder.cpp finds them. Every device has cells of one stage.
void QuickSimulation::orderByTime(const Layout &layout) {
  const step::Schedule &schedule = layout.schedule;
  const sim::Network &network = problem.costs.network();
  // The steady state's period: the busiest device or link.
  double period = 0;
  for (uint32_t d : devicesUsed) {
    double busy = 0;
    for (uint32_t i = cellsOfBegin[d]; i < cellsOfBegin[d + 1]; ++i) {
      const Kind &kind = kinds[kindOf[cellsOf[i]]];
      busy += kind.forward + kind.backward + kind.weights;
    }
    period = std::max(period, busy);
  }
  loads.assign(network.resources(), 0);
  transferPriority.resize(transfers.size());
  gradientPriority.resize(gradients.size());
  // The idle seconds of every transfer are found on the way; kept as bits until priorities replace them.
  auto weigh = [&](const Transfer &transfer) {
    uint32_t from = cells[transfer.from].device, to = cells[transfer.to].device;
    sim::Route route = network.route(from, to);
    double slowest = route.flow > 0 ? 1 / route.flow : 0;
    for (uint32_t r = 0; r < route.count; ++r) {
      double each = network.secondsPerByte(route.resources[r]);
      slowest = std::max(slowest, each);
      loads[route.resources[r]] += transfer.bytes * each;
    }
    double seconds = from == to ? 0 : transfer.bytes * slowest + route.latency;
    uint64_t bits;
    std::memcpy(&bits, &seconds, sizeof bits);
    return bits;
  };
  auto secondsOf = [](uint64_t bits) {
    double seconds;
    std::memcpy(&seconds, &bits, sizeof seconds);
    return seconds;
  };
  for (size_t t = 0; t < transfers.size(); ++t)
    transferPriority[t] = weigh(transfers[t]);
  for (size_t t = 0; t < gradients.size(); ++t)
    gradientPriority[t] = weigh(gradients[t]);
  for (double load : loads)
    period = std::max(period, load);

  // When tasks would run if nobody waited for a device; a device's own tasks of one direction follow each other.
  constexpr uint8_t kMain = 1, kFiller = 2;
  forwardTime.assign(cells.size(), 0);
  backwardTime.assign(cells.size(), 0);
  forwardPriority.resize(cells.size());
  backwardPriority.resize(cells.size());
  weightsPriority.resize(cells.size());
  std::vector<std::vector<std::pair<double, double>>> slots(problem.cluster.devices.size()); // begin in the cycle, length
  // In the steady state a device's tasks recur with the period of a cell: the first gap in it after `ready`.
  auto waitForSlot = [&](uint32_t d, double ready, double duration) {
    double cycle = period / static_cast<double>(cellsOfBegin[d + 1] - cellsOfBegin[d]);
    auto &taken = slots[d];
    double at = std::fmod(ready, cycle), wait = 0;
    for (size_t tries = 0; tries <= 2 * taken.size(); ++tries) {
      double end = at + duration, until = at;
      for (auto [begin, length] : taken)
        for (double shift : {-cycle, 0.0, cycle})
          if (begin + shift < end - 1e-12 * cycle && at < begin + shift + length - 1e-12 * cycle)
            until = std::max(until, begin + shift + length);
      if (until == at) {
        taken.push_back({at, duration});
        return wait;
      }
      wait += until - at;
      at = std::fmod(until, cycle);
    }
    return 0.0;
  };
  std::vector<double> waits(problem.cluster.devices.size(), 0);
  entryTime.assign(cells.size(), 1e300);
  std::vector<double> &after = computeEnd; // for the moment
  std::fill(after.begin(), after.end(), 0);
  std::vector<int64_t> &rowsOf = rowsInFlight;
  for (uint32_t d : devicesUsed)
    rowsOf[d] = 0;
  for (const step::Cell &cell : cells)
    rowsOf[cell.device] += cell.rows();
  std::vector<int64_t> entered(problem.cluster.devices.size(), 0);
  for (const StageInfo &info : stages)
    for (uint32_t c = info.cellBegin; c < info.cellEnd; ++c) {
      uint32_t d = cells[c].device;
      if (info.front < 0) {
        forwardTime[c] = std::max(forwardTime[c], period / static_cast<double>(rowsOf[d]) * static_cast<double>(entered[d]));
        entered[d] += cells[c].rows();
      }
      if (c == cellsOf[cellsOfBegin[d]])
        waits[d] = waitForSlot(d, forwardTime[c], kinds[kindOf[c]].forward);
      double start = std::max(forwardTime[c] + waits[d], after[d]), end = start + kinds[kindOf[c]].forward;
      forwardTime[c] = start;
      after[d] = end;
      backwardTime[c] = end;
      forwardPriority[c] = priorityAt(kMain, start);
      for (uint32_t t = sends[c].begin; t < sends[c].end; ++t) {
        double seconds = secondsOf(transferPriority[t]);
        transferPriority[t] = priorityAt(kMain, end);
        forwardTime[transfers[t].to] = std::max(forwardTime[transfers[t].to], end + seconds);
        entryTime[transfers[t].to] = std::min(entryTime[transfers[t].to], end);
      }
    }
  std::fill(after.begin(), after.end(), 0);
  for (uint32_t d : devicesUsed)
    mostRows[d] = 0;
  std::vector<int64_t> largest(problem.cluster.devices.size(), 0);
  for (size_t s = stages.size(); s-- > 0;) {
    const StageInfo &info = stages[s];
    for (uint32_t c = info.cellBegin; c < info.cellEnd; ++c) {
      uint32_t d = cells[c].device;
      const Kind &kind = kinds[kindOf[c]];
      if (c == cellsOf[cellsOfBegin[d]])
        waits[d] = waitForSlot(d, backwardTime[c], kind.backward);
      double start = std::max(backwardTime[c] + waits[d], after[d]), end = start + kind.backward;
      after[d] = end;
      backwardPriority[c] = priorityAt(kMain, start);
      double perRow = period / static_cast<double>(rowsOf[d]);
      double wait = schedule.weightDelay * perRow * static_cast<double>(cells[c].rows());
      weightsPriority[c] = wait > 0 ? priorityAt(kMain, end + wait) : priorityAt(kFiller, end);
      for (uint32_t t = gradientSends[c].begin; t < gradientSends[c].end; ++t) {
        double seconds = secondsOf(gradientPriority[t]);
        gradientPriority[t] = priorityAt(kMain, end);
        backwardTime[gradients[t].to] = std::max(backwardTime[gradients[t].to], end + seconds);
      }
      mostRows[d] = std::max(mostRows[d], end - std::min(entryTime[c], forwardTime[c]));
      largest[d] = std::max(largest[d], cells[c].rows());
    }
  }
  for (uint32_t d : devicesUsed) {
    double perRow = std::max(period / static_cast<double>(rowsOf[d]), 1e-30);
    mostRows[d] = schedule.inFlight * mostRows[d] / perRow + static_cast<double>(largest[d]) - 1e-9;
    const ClusterDevice &device = problem.cluster.devices[d];
    budget[d] = UINT64_MAX;
    if (device.memory) {
      uint64_t passing = 0;
      for (uint32_t i = cellsOfBegin[d]; i < cellsOfBegin[d + 1]; ++i)
        passing = std::max(passing, kinds[kindOf[cellsOf[i]]].bytes.passing);
      uint64_t others = device.reserve + resident[d] + accumulators[d] + owned[d] + passing;
      budget[d] = device.memory > others ? device.memory - others : 0;
    }
  }
  std::fill(computeEnd.begin(), computeEnd.end(), 0);
}
