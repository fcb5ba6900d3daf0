// Orders of tasks per device, by the rules of zorse/Step/Orders.h, on the flat arrays of the quick simulation.

#include "QuickSimulation.h"

#include <algorithm>
#include <cstring>
#include <numeric>

using namespace zorse;
using namespace zorse::planning;

void QuickSimulation::order(const Layout &layout) {
  orders = layout.schedule.kind == step::ScheduleKind::GPipe ? Orders::AllForwardsFirst : layout.schedule.kind == step::ScheduleKind::Timed ? Orders::Timed : Orders::Chain;
  chained = orders == Orders::Chain;
  chain.clear();
  if (chained)
    orderStages(layout.schedule);
}

/// 1F1B, stage by stage from the last.
void QuickSimulation::orderStages(const step::Schedule &schedule) {
  size_t devices = problem.cluster.devices.size();
  step::OneForwardOneBackward rule(cells.data(), devices);
  std::vector<std::vector<step::TaskName>> tasks(devices);
  std::vector<uint32_t> indices(cells.size()); // cells of a stage follow each other
  std::iota(indices.begin(), indices.end(), 0);
  for (size_t s = stages.size(); s-- > 0;) {
    const StageInfo &info = stages[s];
    step::CellIndices behind;
    if (info.behind >= 0) {
      const StageInfo &next = stages[static_cast<size_t>(info.behind)];
      behind = {indices.data() + next.cellBegin, next.cellEnd - next.cellBegin};
    }
    for (const Member &member : info.stage->members) {
      uint32_t d = member.device;
      if (member.samples > 0 && tasks[d].empty())
        tasks[d] = rule.order(d, {cellsOf.data() + cellsOfBegin[d], cellsOfBegin[d + 1] - cellsOfBegin[d]}, behind, d < schedule.ahead.size() ? schedule.ahead[d] : 0);
    }
  }
  chain.clear();
  for (size_t d = 0; d < devices; ++d) {
    chainBegin[d] = static_cast<uint32_t>(chain.size());
    for (step::TaskName task : tasks[d])
      chain.push_back((task.kind == step::TaskKind::Forward ? kForwardTask : kBackwardTask) | task.cell);
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
  forwardTime.assign(cells.size(), 0);
  backwardTime.assign(cells.size(), 0);
  forwardPriority.resize(cells.size());
  backwardPriority.resize(cells.size());
  weightsPriority.resize(cells.size());
  std::vector<step::RecurringSlots> slots(problem.cluster.devices.size());
  auto waitForSlot = [&](uint32_t d, double ready, double duration) {
    return slots[d].reserve(ready, duration, period / static_cast<double>(cellsOfBegin[d + 1] - cellsOfBegin[d]));
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
      forwardPriority[c] = step::priorityAt(step::kTimedRank, start);
      for (uint32_t t = sends[c].begin; t < sends[c].end; ++t) {
        double seconds = secondsOf(transferPriority[t]);
        transferPriority[t] = step::priorityAt(step::kTimedRank, end);
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
      backwardPriority[c] = step::priorityAt(step::kTimedRank, start);
      double perRow = period / static_cast<double>(rowsOf[d]);
      double wait = schedule.weightDelay * perRow * static_cast<double>(cells[c].rows());
      weightsPriority[c] = wait > 0 ? step::priorityAt(step::kTimedRank, end + wait) : step::priorityAt(step::kTimedFillerRank, end);
      for (uint32_t t = gradientSends[c].begin; t < gradientSends[c].end; ++t) {
        double seconds = secondsOf(gradientPriority[t]);
        gradientPriority[t] = step::priorityAt(step::kTimedRank, end);
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
