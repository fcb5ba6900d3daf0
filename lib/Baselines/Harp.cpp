// HARP (EuroSys 2026): homogeneous stages over subclusters, stage boundaries inside blocks, 1F1B
// with launch counts from compute and link times.
#include "Harp.h"

#include "Common.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

using namespace zorse;
using namespace zorse::planning;
using namespace zorse::planning::baseline;

std::vector<int64_t>
zorse::planning::baseline::launchCounts(const std::vector<StageTimes> &stages) {
  double period = 0; // seconds per micro-batch of the pipeline
  for (const StageTimes &s : stages)
    period = std::max(period, (s.forward + s.backward) / static_cast<double>(s.devices));
  std::vector<int64_t> counts(stages.size());
  double wayAndBack = 0;
  for (size_t s = stages.size(); s-- > 0;) {
    wayAndBack += stages[s].forward + stages[s].backward +
                  (s + 1 < stages.size() ? 2 * stages[s].link : 0);
    counts[s] = std::max<int64_t>(
        1, static_cast<int64_t>(
               std::ceil(wayAndBack / (period * static_cast<double>(stages[s].devices)) - 1e-9)));
  }
  return counts;
}

std::vector<int32_t>
zorse::planning::baseline::cutByTime(const std::vector<std::vector<double>> &seconds) {
  const size_t stages = seconds.size(), units = stages ? seconds[0].size() : 0;
  if (stages == 0 || units < stages)
    return {};
  std::vector<std::vector<double>> prefix;
  for (const auto &row : seconds) {
    prefix.push_back({0});
    for (double t : row)
      prefix.back().push_back(prefix.back().back() + t);
  }
  // Each stage gets all units that fit, and leaves at least one for each later stage.
  auto pack = [&](double t, std::vector<int32_t> &ends) {
    ends.clear();
    size_t at = 0;
    for (size_t s = 0; s < stages; ++s) {
      size_t max = units - (stages - 1 - s);
      size_t end = static_cast<size_t>(std::upper_bound(prefix[s].begin(), prefix[s].end(),
                                                        prefix[s][at] + t * (1 + 1e-12)) -
                                       prefix[s].begin()) -
                   1;
      end = std::min(end, max);
      if (end <= at)
        return false;
      ends.push_back(static_cast<int32_t>(at = end));
    }
    return at == units;
  };
  double low = 0, high = 0;
  for (const auto &row : prefix)
    high = std::max(high, row.back());
  std::vector<int32_t> ends, best;
  if (!pack(high, best))
    return {};
  for (int i = 0; i < 50 && high - low > 1e-9 * high; ++i) {
    double middle = (low + high) / 2;
    if (pack(middle, ends)) {
      high = middle;
      best = ends;
    } else {
      low = middle;
    }
  }
  return best;
}

namespace {

/// Devices of one type in one site, grouped by node.
using Subcluster = std::vector<uint32_t>;

struct Search {
  const Problem &problem;
  Shortlist candidates;
  std::map<std::pair<uint32_t, int64_t>, std::vector<double>> unitTimes; ///< by device class and
                                                                         ///< row count

  const std::vector<double> &timesOfUnits(uint32_t device, int64_t rows) {
    auto [it, fresh] = unitTimes.try_emplace({problem.costs.deviceClass(device), rows});
    for (int32_t u = 0; fresh && u < problem.summary.units_size(); ++u)
      it->second.push_back(timesOf(problem, device, u, u + 1, rows).both());
    return it->second;
  }

  void add(const std::vector<std::vector<uint32_t>> &stages, int64_t rows) {
    std::vector<std::vector<double>> seconds;
    for (const auto &devices : stages) {
      if (problem.batch % (static_cast<int64_t>(devices.size()) * rows))
        return;
      seconds.push_back(timesOfUnits(devices[0], rows));
      for (double &t : seconds.back())
        t /= static_cast<double>(devices.size());
    }
    std::vector<int32_t> ends = cutByTime(seconds);
    if (ends.empty())
      return;
    Candidate candidate;
    Pipeline pipeline;
    pipeline.samples = problem.batch;
    std::vector<StageTimes> times;
    double period = 0, latencies = 0, sync = 0;
    for (size_t s = 0; s < stages.size(); ++s) {
      Stage stage;
      stage.unitBegin = s ? ends[s - 1] : 0;
      stage.unitEnd = ends[s];
      int64_t n = static_cast<int64_t>(stages[s].size());
      for (uint32_t d : stages[s])
        stage.members.push_back({d, problem.batch / n, rows});
      Times t = timesOf(problem, stages[s][0], stage.unitBegin, stage.unitEnd, rows);
      double link = 0;
      if (s + 1 < stages.size())
        link = latency(problem, stages[s][0], stages[s + 1][0]) +
               boundaryBytes(problem.summary, stage.unitEnd) * static_cast<double>(rows) /
                   bandwidth(problem, stages[s][0], stages[s + 1][0]);
      times.push_back({t.forward, t.backward, link, n});
      period = std::max(period, t.both() / static_cast<double>(n));
      latencies += t.both() + 2 * link;
      if (n > 1)
        sync = std::max(sync, 2 * (static_cast<double>(n) - 1) / static_cast<double>(n) *
                                  parameterBytes(problem.summary, stage.unitBegin, stage.unitEnd) /
                                  bandwidth(problem, stages[s].front(), stages[s].back()));
      pipeline.stages.push_back(std::move(stage));
    }
    std::vector<int64_t> counts = launchCounts(times);
    candidate.strategy.schedule.warmupForwards.assign(problem.cluster.devices.size(), 0);
    for (size_t s = 0; s < stages.size(); ++s)
      for (uint32_t d : stages[s])
        candidate.strategy.schedule.warmupForwards[d] = static_cast<uint32_t>(counts[s] - 1);
    candidate.cost = latencies + period * (static_cast<double>(problem.batch / rows) - 1) + sync;
    candidate.strategy.pipelines.push_back(std::move(pipeline));
    candidate.strategy.state = ShardSizing::Equal;
    candidates.add(std::move(candidate));
  }

  /// Tries every number of equal stages of every subcluster.
  void choose(const std::vector<Subcluster> &order, size_t at,
              std::vector<std::vector<uint32_t>> &stages) {
    if (candidates.seen() > 200000)
      return;
    if (at == order.size()) {
      if (!stages.empty())
        for (int64_t rows = 1; rows <= std::min<int64_t>(8, problem.batch); rows *= 2)
          add(stages, rows);
      return;
    }
    const Subcluster &devices = order[at];
    for (size_t n = 1; n <= devices.size(); ++n) {
      if (devices.size() % n)
        continue;
      size_t each = devices.size() / n, before = stages.size();
      for (size_t s = 0; s < n; ++s)
        stages.emplace_back(devices.begin() + static_cast<long>(s * each),
                            devices.begin() + static_cast<long>((s + 1) * each));
      if (stages.size() <= static_cast<size_t>(problem.summary.units_size()))
        choose(order, at + 1, stages);
      stages.resize(before);
    }
    choose(order, at + 1, stages); // without this subcluster
  }
};

} // namespace

Result<Strategy> zorse::planning::harp(const Problem &problem) {
  std::map<std::pair<uint32_t, uint32_t>, Subcluster> subclusters;
  for (uint32_t d = 0; d < problem.cluster.devices.size(); ++d)
    subclusters[{problem.costs.network().site(d), problem.costs.deviceClass(d)}].push_back(d);
  std::vector<Subcluster> order;
  for (auto &[key, devices] : subclusters)
    order.push_back(devices);
  Search search{problem, Shortlist(problem), {}};
  std::vector<size_t> permutation(order.size());
  std::iota(permutation.begin(), permutation.end(), 0);
  int permutations = 0;
  do {
    std::vector<Subcluster> ordered;
    for (size_t i : permutation)
      ordered.push_back(order[i]);
    std::vector<std::vector<uint32_t>> stages;
    search.choose(ordered, 0, stages);
  } while (++permutations < 24 && std::next_permutation(permutation.begin(), permutation.end()));
  return search.candidates.choose("harp");
}
