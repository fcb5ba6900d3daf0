// Orders of tasks per device, by the rules of zorse/Step/Orders.h, on the flat arrays of the quick simulation.

#include "QuickSimulation.h"

#include <algorithm>
#include <cstring>
#include <numeric>

using namespace zorse;
using namespace zorse::planning;

void QuickSimulation::order(const Layout &layout) {
  orders = layout.schedule.kind == step::ScheduleKind::GPipe   ? Orders::AllForwardsFirst
           : layout.schedule.kind == step::ScheduleKind::Timed ? Orders::Timed
                                                               : Orders::Chain;
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
        tasks[d] = rule.order(d, {cellsOf.data() + cellsOfBegin[d], cellsOfBegin[d + 1] - cellsOfBegin[d]}, behind,
                              d < schedule.ahead.size() ? schedule.ahead[d] : 0);
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

/// 1F1B with a split backward: W fills gaps, but a device keeps no more cells between F and W than the fullest one between F and B, nor more than
/// memory seems to hold.
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
    if (const uint64_t capacity = device.capacity()) {
      uint64_t hold = 1, passing = 0;
      for (uint32_t i = cellsOfBegin[d]; i < cellsOfBegin[d + 1]; ++i) {
        hold = std::max(hold, kinds[kindOf[cellsOf[i]]].bytes.hold);
        passing = std::max(passing, kinds[kindOf[cellsOf[i]]].bytes.passing);
      }
      uint64_t others = resident[d] + accumulators[d] + owned[d] + passing;
      bound = std::min<uint64_t>(bound, (capacity > others ? capacity - others : 0) / hold);
    }
    weightBound[d] = std::max(static_cast<uint32_t>(bound), mostAlive(d));
  }
}

/// Priorities and admission of the timed schedule, as lib/Step/TimedOrder.cpp finds them.
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

  // When tasks would run if nobody waited for a device; a chunk's own tasks of one direction follow each other.
  findChunks();
  forwardTime.assign(cells.size(), 0);
  backwardTime.assign(cells.size(), 0);
  forwardPriority.resize(cells.size());
  backwardPriority.resize(cells.size());
  weightsPriority.resize(cells.size());
  entryTime.assign(cells.size(), 1e300);
  std::vector<step::RecurringSlots> slots(problem.cluster.devices.size());
  std::vector<double> waits(bands.size(), -1), after(chunks.size(), 0); // -1: not known yet
  auto waitForSlot = [&](const Band &band, double ready, double duration) {
    return slots[band.device].reserve(ready, duration, period / static_cast<double>(band.end - band.begin));
  };
  for (uint32_t d : devicesUsed)
    for (uint32_t k = bandsBegin[d]; k < bandsBegin[d + 1]; ++k) {
      int64_t entered = 0;
      for (uint32_t i = bands[k].begin; i < bands[k].end; ++i)
        if (uint32_t c = (oneStageEach ? cellsOf : bandCells)[i]; stages[stageOf[c]].front < 0) {
          forwardTime[c] = period / static_cast<double>(bands[k].rows) * static_cast<double>(entered);
          entered += cells[c].rows();
        }
    }
  // Cells are made stage by stage. Where devices have several, they are passed as the expansion makes them.
  passing.resize(cells.size());
  std::iota(passing.begin(), passing.end(), 0);
  if (!oneStageEach)
    std::stable_sort(passing.begin(), passing.end(), [&](uint32_t a, uint32_t b) {
      return cells[a].unitBegin != cells[b].unitBegin ? cells[a].unitBegin < cells[b].unitBegin : cells[a].sampleBegin < cells[b].sampleBegin;
    });
  for (uint32_t c : passing) {
    const uint32_t k = chunkOf[c], band = bandOf[c];
    const double duration = kinds[kindOf[c]].forward;
    if (c == chunks[k].first && waits[band] < 0)
      waits[band] = waitForSlot(bands[band], forwardTime[c], duration);
    double start = std::max(forwardTime[c] + waits[band], after[k]), end = start + duration;
    forwardTime[c] = start;
    after[k] = end;
    backwardTime[c] = end;
    forwardPriority[c] = step::priorityAt(step::kTimedRank, start);
    for (uint32_t t = sends[c].begin; t < sends[c].end; ++t) {
      double seconds = secondsOf(transferPriority[t]);
      transferPriority[t] = step::priorityAt(step::kTimedRank, end);
      forwardTime[transfers[t].to] = std::max(forwardTime[transfers[t].to], end + seconds);
      entryTime[transfers[t].to] = std::min(entryTime[transfers[t].to], end);
    }
  }
  if (oneStageEach) {
    size_t i = 0;
    for (size_t s = stages.size(); s-- > 0;)
      for (uint32_t c = stages[s].cellBegin; c < stages[s].cellEnd; ++c)
        passing[i++] = c;
  } else {
    std::stable_sort(passing.begin(), passing.end(), [&](uint32_t a, uint32_t b) {
      return cells[a].unitEnd != cells[b].unitEnd ? cells[a].unitEnd > cells[b].unitEnd : cells[a].sampleBegin < cells[b].sampleBegin;
    });
  }
  std::fill(after.begin(), after.end(), 0);
  std::fill(waits.begin(), waits.end(), -1);
  mostRows.assign(bands.size(), 0);
  std::vector<int64_t> largest(bands.size(), 0);
  for (uint32_t c : passing) {
    const uint32_t k = chunkOf[c], band = bandOf[c];
    const Kind &kind = kinds[kindOf[c]];
    if (c == chunks[k].first && waits[band] < 0)
      waits[band] = waitForSlot(bands[band], backwardTime[c], kind.backward);
    double start = std::max(backwardTime[c] + waits[band], after[k]), end = start + kind.backward;
    after[k] = end;
    backwardPriority[c] = step::priorityAt(step::kTimedRank, start);
    double perRow = period / static_cast<double>(bands[band].rows);
    double wait = schedule.weightDelay * perRow * static_cast<double>(cells[c].rows());
    weightsPriority[c] = wait > 0 ? step::priorityAt(step::kTimedRank, end + wait) : step::priorityAt(step::kTimedFillerRank, end);
    for (uint32_t t = gradientSends[c].begin; t < gradientSends[c].end; ++t) {
      double seconds = secondsOf(gradientPriority[t]);
      gradientPriority[t] = step::priorityAt(step::kTimedRank, end);
      backwardTime[gradients[t].to] = std::max(backwardTime[gradients[t].to], end + seconds);
    }
    mostRows[band] = std::max(mostRows[band], end - std::min(entryTime[c], forwardTime[c]));
    largest[band] = std::max(largest[band], cells[c].rows());
  }
  for (size_t k = 0; k < bands.size(); ++k) {
    double perRow = std::max(period / static_cast<double>(bands[k].rows), 1e-30);
    mostRows[k] = schedule.inFlight * mostRows[k] / perRow + static_cast<double>(largest[k]) - 1e-9;
  }
  for (uint32_t d : devicesUsed) {
    const ClusterDevice &device = problem.cluster.devices[d];
    budget[d] = UINT64_MAX;
    aside[d] = 0;
    if (const uint64_t capacity = device.capacity()) {
      uint64_t most = 0;
      for (uint32_t i = cellsOfBegin[d]; i < cellsOfBegin[d + 1]; ++i) {
        const CellBytes &bytes = kinds[kindOf[cellsOf[i]]].bytes;
        most = std::max(most, bytes.passing);
        aside[d] = std::max(aside[d], bytes.deferred);
      }
      uint64_t others = resident[d] + accumulators[d] + owned[d] + most;
      budget[d] = capacity > others ? capacity - others : 0;
      if (gaps)
        budget[d] -= std::min(budget[d], (budget[d] + most) / (gaps + 1));
    }
  }
}
