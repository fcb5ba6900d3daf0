// Zorse (MLSys 2026): groups by min-k-cut, pipeline parallelism over the groups, data parallelism
// inside.
#include "ZorsePaper.h"

#include "Common.h"
#include "Partitions.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

using namespace zorse;
using namespace zorse::planning;
using namespace zorse::planning::baseline;

std::vector<int64_t> zorse::planning::baseline::shareByRate(int64_t total,
                                                            const std::vector<double> &rates) {
  double sum = std::accumulate(rates.begin(), rates.end(), 0.0);
  std::vector<int64_t> shares;
  int64_t left = total;
  for (double rate : rates) {
    shares.push_back(
        static_cast<int64_t>(std::floor(static_cast<double>(total) * (rate / sum) + 1e-9)));
    left -= shares.back();
  }
  std::vector<size_t> fastest(rates.size());
  std::iota(fastest.begin(), fastest.end(), 0);
  std::stable_sort(fastest.begin(), fastest.end(),
                   [&](size_t a, size_t b) { return rates[a] > rates[b]; });
  for (size_t i = 0; left > 0; ++i, --left)
    ++shares[fastest[i % fastest.size()]];
  return shares;
}

std::vector<std::vector<int64_t>>
zorse::planning::baseline::interleave(const std::vector<int64_t> &layers,
                                      const std::vector<double> &rates, int64_t degree) {
  std::vector<std::vector<int64_t>> chunks;
  int64_t extra = 0;
  for (int64_t n : layers) {
    if (n / degree == 0)
      return {};
    chunks.emplace_back(degree, n / degree);
    extra += n % degree;
  }
  std::vector<size_t> order(layers.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return static_cast<double>(chunks[a][0] + 1) / rates[a] <
           static_cast<double>(chunks[b][0] + 1) / rates[b];
  });
  while (extra > 0)
    for (size_t group : order)
      for (int64_t c = 0; c < degree && extra > 0; ++c, --extra)
        ++chunks[group][c];
  return chunks;
}

namespace {

struct Group {
  std::vector<uint32_t> devices;
  double bandwidth = 0; ///< minimum inside the group
};

/// Orders groups: the best connected one first, then the one with the fastest links to the previous
/// group.
void order(const Problem &problem, std::vector<Group> &groups) {
  auto toOther = [&](const Group &a, const Group &b) {
    double sum = 0;
    for (uint32_t i : a.devices)
      for (uint32_t j : b.devices)
        sum += bandwidth(problem, i, j);
    return sum / static_cast<double>(a.devices.size() * b.devices.size());
  };
  std::stable_sort(groups.begin(), groups.end(),
                   [](const Group &a, const Group &b) { return a.bandwidth > b.bandwidth; });
  for (size_t i = 1; i + 1 < groups.size(); ++i) {
    size_t best = i;
    double max = toOther(groups[i - 1], groups[i]);
    for (size_t j = i + 1; j < groups.size(); ++j)
      if (double b = toOther(groups[i - 1], groups[j]); b > max) {
        best = j;
        max = b;
      }
    std::rotate(groups.begin() + static_cast<long>(i), groups.begin() + static_cast<long>(best),
                groups.begin() + static_cast<long>(best) + 1);
  }
}

struct ZorsePaperPlanner {
  const Problem &problem;
  const Layers layers;
  Shortlist candidates;

  void plan(const std::vector<Group> &all, int64_t rows) {
    const int64_t microBatches = (problem.batch + rows - 1) / rows;
    const int64_t total = static_cast<int64_t>(layers.count());
    std::vector<std::vector<int64_t>> counts;
    std::vector<double> rates; // per group: inverse time of all micro-batches through one layer
    for (const Group &group : all) {
      std::vector<double> own;
      for (uint32_t d : group.devices)
        own.push_back(1 / std::max(layerTimes(problem, layers, d, rows).both(), 1e-30));
      counts.push_back(shareByRate(microBatches, own));
      double slowest = 0;
      for (size_t i = 0; i < own.size(); ++i)
        slowest = std::max(slowest, static_cast<double>(counts.back()[i]) / own[i]);
      rates.push_back(1 / slowest);
    }
    std::vector<int64_t> share = shareByRate(total, rates), kept;
    std::vector<double> keptRates;
    std::vector<size_t> used;
    for (size_t g = 0; g < all.size(); ++g)
      if (share[g] > 0) {
        used.push_back(g);
        kept.push_back(share[g]);
        keptRates.push_back(rates[g]);
      }
    const int64_t maxDegree =
        used.size() == 1 ? 1 : std::min<int64_t>(total / 2, static_cast<int64_t>(used.size())) + 2;
    for (int64_t degree = 1; degree <= maxDegree; ++degree) {
      auto chunks = interleave(kept, keptRates, degree);
      if (chunks.empty())
        break;
      add(all, used, counts, chunks, degree, rows);
    }
  }

  void add(const std::vector<Group> &all, const std::vector<size_t> &used,
           const std::vector<std::vector<int64_t>> &counts,
           const std::vector<std::vector<int64_t>> &chunks, int64_t degree, int64_t rows) {
    const double boundary = boundaryBytes(problem.summary, layers.cuts[1]) *
                            static_cast<double>(rows);
    const double bytes = parameterBytes(problem.summary, layers.typicalBegin, layers.typicalEnd);
    auto send = [&](size_t i) { // to the next group, and back
      if (i + 1 >= used.size())
        return 0.0;
      uint32_t a = all[used[i]].devices[0], b = all[used[i + 1]].devices[0];
      return latency(problem, a, b) + boundary / bandwidth(problem, a, b);
    };
    std::vector<double> rate, slowestForward, slowestBackward, gather;
    std::vector<std::vector<Times>> times;
    for (size_t g : used) {
      times.emplace_back();
      double f = 0, b = 0;
      for (uint32_t d : all[g].devices) {
        times.back().push_back(layerTimes(problem, layers, d, rows));
        f = std::max(f, times.back().back().forward);
        b = std::max(b, times.back().back().backward);
      }
      slowestForward.push_back(f);
      slowestBackward.push_back(b);
      double n = static_cast<double>(all[g].devices.size());
      gather.push_back(n > 1 ? 1.15 * (n - 1) / n * bytes / all[g].bandwidth : 0);
    }
    double start = 0, core = 0, end = 0;
    for (size_t i = 0; i < used.size(); ++i) {
      double first = static_cast<double>(chunks[i][0]),
             last = static_cast<double>(chunks[i][degree - 1]);
      start += (i == 0 ? std::max(slowestForward[i], gather[i]) : slowestForward[i]) * first +
               send(i);
      end += slowestBackward[i] * last + (i > 0 ? send(i - 1) : 0);
      double sum = 0, link = std::max(send(i), i > 0 ? send(i - 1) : 0);
      for (int64_t c = 0; c < degree; ++c) {
        double n = static_cast<double>(chunks[i][c]), forward = 0, backward = 0;
        for (size_t d = 0; d < times[i].size(); ++d) {
          double m = static_cast<double>(counts[used[i]][d]);
          forward = std::max(forward, std::max(times[i][d].forward * n, link) * m);
          backward = std::max(backward, std::max(times[i][d].backward * n, link) * m);
        }
        // Gradients are reduced in twice the bytes.
        sum += std::max(forward, gather[i] * n) + std::max(backward, 3 * gather[i] * n);
      }
      core = std::max(core, sum);
    }
    Pipeline pipeline;
    pipeline.samples = problem.batch;
    size_t layer = 0;
    for (int64_t c = 0; c < degree; ++c)
      for (size_t i = 0; i < used.size(); ++i) {
        Stage stage;
        stage.unitBegin = layers.cuts[layer];
        layer += static_cast<size_t>(chunks[i][c]);
        stage.unitEnd = layers.cuts[layer];
        stage.members =
            assignMicroBatches(all[used[i]].devices, counts[used[i]], rows, problem.batch);
        pipeline.stages.push_back(std::move(stage));
      }
    Candidate candidate;
    candidate.strategy.pipelines.push_back(std::move(pipeline));
    candidate.strategy.state = ShardSizing::Equal;
    candidate.cost = start + core + end;
    // All forwards first, as published. If their activations exceed memory, 1F1B, because this
    // planner neither recomputes nor offloads.
    candidate.strategy.schedule.kind = step::ScheduleKind::GPipe;
    candidates.add(candidate);
    candidate.strategy.schedule.kind = step::ScheduleKind::OneForwardOneBackward;
    candidate.cost *= 1 + 1e-9;
    candidates.add(std::move(candidate));
  }
};

} // namespace

Result<Strategy> zorse::planning::zorsePaper(const Problem &problem) {
  const size_t n = problem.cluster.devices.size();
  Weights weights(n, std::vector<double>(n, 0));
  for (uint32_t i = 0; i < n; ++i)
    for (uint32_t j = 0; j < n; ++j)
      if (i != j)
        weights[i][j] = bandwidth(problem, i, j);
  ZorsePaperPlanner planned{problem, Layers(problem.summary), Shortlist(problem)};
  for (const std::vector<uint32_t> &parts : splitCuts(weights, problem.cluster.nodes.size())) {
    std::vector<Group> groups(*std::max_element(parts.begin(), parts.end()) + 1);
    for (uint32_t d = 0; d < n; ++d)
      groups[parts[d]].devices.push_back(d);
    for (Group &group : groups)
      group.bandwidth = minBandwidth(problem, group.devices);
    order(problem, groups);
    for (int64_t rows = 1; rows <= std::max<int64_t>(1, problem.batch / 2); rows *= 2)
      planned.plan(groups, rows);
  }
  return planned.candidates.choose("zorse-paper");
}
