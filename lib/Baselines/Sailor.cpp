// Sailor (SOSP 2025): stages x equal replicas per stage, types and zones; without tensor
// parallelism.
#include "Common.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

using namespace zorse;
using namespace zorse::planning;
using namespace zorse::planning::baseline;

namespace {

/// Returns the orders in which stages take devices: zones together, then types; by type alone, in
/// both directions; by zone and type.
std::vector<std::vector<uint32_t>> makePools(const Problem &problem, const Layers &layers) {
  const size_t n = problem.cluster.devices.size();
  const sim::Network &network = problem.costs.network();
  std::vector<double> seconds(n);
  for (uint32_t d = 0; d < n; ++d)
    seconds[d] = layerTimes(problem, layers, d, 1).both();
  std::vector<uint32_t> all(n);
  std::iota(all.begin(), all.end(), 0);
  std::vector<std::vector<uint32_t>> pools;
  auto add = [&](std::vector<uint32_t> pool, auto before) {
    std::stable_sort(pool.begin(), pool.end(), before);
    if (!pool.empty() && std::find(pools.begin(), pools.end(), pool) == pools.end())
      pools.push_back(std::move(pool));
  };
  auto faster = [&](uint32_t a, uint32_t b) { return seconds[a] < seconds[b]; };
  auto slower = [&](uint32_t a, uint32_t b) { return seconds[a] > seconds[b]; };
  add(all, faster);
  add(all, slower);
  add(all, [&](uint32_t a, uint32_t b) {
    return network.site(a) != network.site(b) ? network.site(a) < network.site(b) : faster(a, b);
  });
  add(all, [&](uint32_t a, uint32_t b) {
    return network.site(a) != network.site(b) ? network.site(a) > network.site(b) : faster(a, b);
  });
  std::map<uint32_t, std::vector<uint32_t>> bySite;
  std::map<double, std::vector<uint32_t>> byType;
  for (uint32_t d : all) {
    bySite[network.site(d)].push_back(d);
    byType[seconds[d]].push_back(d);
  }
  for (auto &[site, devices] : bySite) {
    add(devices, faster);
    add(devices, slower);
  }
  for (auto &[type, devices] : byType)
    add(devices, [](uint32_t, uint32_t) { return false; });
  return pools;
}

/// Seconds of ring all-reduces between neighbors in the pool's order.
double syncSeconds(const Problem &problem, const Stage &stage,
                   const std::vector<uint32_t> &devices) {
  if (devices.size() < 2)
    return 0;
  double min = kUnlimited;
  for (size_t i = 0; i < devices.size(); ++i)
    min = std::min(min, bandwidth(problem, devices[i], devices[(i + 1) % devices.size()]));
  const double replicas = static_cast<double>(devices.size());
  return 2 * (replicas - 1) / replicas *
         parameterBytes(problem.summary, stage.unitBegin, stage.unitEnd) / min;
}

/// Returns one pipeline of equal stages, each with the pool's next `replicas` devices.
Candidate makeCandidate(const Problem &problem, const Layers &layers,
                        const std::vector<uint32_t> &pool, int64_t stages, int64_t replicas,
                        int64_t rows) {
  const int64_t total = static_cast<int64_t>(layers.count()),
                microBatches = problem.batch / (replicas * rows);
  Candidate candidate;
  Pipeline pipeline;
  pipeline.samples = problem.batch;
  double straggler = 0, latencies = 0, sync = 0;
  for (int64_t s = 0; s < stages; ++s) {
    Stage stage;
    stage.unitBegin = layers.cuts[total * s / stages];
    stage.unitEnd = layers.cuts[total * (s + 1) / stages];
    double worst = 0;
    std::vector<uint32_t> devices(pool.begin() + s * replicas, pool.begin() + (s + 1) * replicas);
    for (uint32_t device : devices) {
      stage.members.push_back({device, problem.batch / replicas, rows});
      worst =
          std::max(worst, timesOf(problem, device, stage.unitBegin, stage.unitEnd, rows).both());
    }
    double link = 0;
    if (s + 1 < stages)
      link = 2 * (latency(problem, devices[0], pool[(s + 1) * replicas]) +
                  boundaryBytes(problem.summary, stage.unitEnd) * static_cast<double>(rows) /
                      bandwidth(problem, devices[0], pool[(s + 1) * replicas]));
    straggler = std::max(straggler, worst);
    latencies += worst + link;
    sync = std::max(sync, syncSeconds(problem, stage, devices));
    pipeline.stages.push_back(std::move(stage));
  }
  candidate.cost = latencies + static_cast<double>(microBatches - 1) * straggler + sync;
  candidate.strategy.pipelines.push_back(std::move(pipeline));
  candidate.strategy.state = ShardSizing::Equal;
  return candidate;
}

} // namespace

Result<Strategy> zorse::planning::sailor(const Problem &problem) {
  const Layers layers(problem.summary);
  Shortlist candidates(problem);
  for (const auto &pool : makePools(problem, layers)) {
    const int64_t devices = static_cast<int64_t>(pool.size());
    for (int64_t stages = 1;
         stages <= std::min<int64_t>(static_cast<int64_t>(layers.count()), devices); ++stages) {
      std::set<int64_t> replicaCounts;
      for (int64_t r = devices / stages; r >= 1 && replicaCounts.size() < 12;
           r = r <= 8 ? r - 1 : r * 3 / 4)
        replicaCounts.insert(std::min(r, problem.batch));
      for (int64_t replicas : replicaCounts)
        for (int64_t rows = 1; rows <= std::min<int64_t>(16, problem.batch); rows *= 2)
          if (problem.batch % (replicas * rows) == 0)
            candidates.add(makeCandidate(problem, layers, pool, stages, replicas, rows));
    }
  }
  return candidates.choose("sailor");
}
