// Megatron-LM's uniform grid, without tensor parallelism. Megatron-LM has no planner: its users
// measure configurations. The simulator therefore chooses.
#include "Common.h"

#include <algorithm>
#include <map>

using namespace zorse;
using namespace zorse::planning;
using namespace zorse::planning::baseline;

Result<Strategy> zorse::planning::megatron(const Problem &problem) {
  const Layers layers(problem.summary);
  const int64_t total = static_cast<int64_t>(layers.count());
  // Pools: all devices in rank order, or those of one type.
  std::vector<std::vector<uint32_t>> pools(1);
  std::map<uint32_t, std::vector<uint32_t>> byClass;
  for (uint32_t d = 0; d < problem.cluster.devices.size(); ++d) {
    pools[0].push_back(d);
    byClass[problem.costs.deviceClass(d)].push_back(d);
  }
  if (byClass.size() > 1)
    for (auto &[type, devices] : byClass)
      pools.push_back(devices);

  Shortlist candidates(problem);
  for (const auto &pool : pools)
    for (int64_t stages = 1; stages <= std::min<int64_t>(total, static_cast<int64_t>(pool.size()));
         ++stages) {
      if (total % stages)
        continue;
      int64_t replicas = static_cast<int64_t>(pool.size()) / stages;
      while (replicas > 1 && problem.batch % replicas)
        --replicas;
      for (int64_t rows = 1; rows <= std::min<int64_t>(16, problem.batch / replicas); rows *= 2)
        for (int64_t chunks = 1; chunks <= (stages > 1 ? std::min<int64_t>(4, total / stages) : 1);
             ++chunks) {
          if (problem.batch / replicas % rows || total % (stages * chunks) ||
              (chunks > 1 && problem.batch / replicas / rows % stages))
            continue;
          const int64_t each = total / (stages * chunks);
          Candidate candidate;
          Pipeline pipeline;
          pipeline.samples = problem.batch;
          double slowest = 0, fill = 0;
          for (int64_t s = 0; s < stages * chunks; ++s) {
            Stage stage;
            stage.unitBegin = layers.cuts[s * each];
            stage.unitEnd = layers.cuts[(s + 1) * each];
            double worst = 0;
            for (int64_t r = 0; r < replicas; ++r) {
              uint32_t device = pool[(s % stages) * replicas + r]; // ranks of a stage are adjacent
              stage.members.push_back({device, problem.batch / replicas, rows});
              worst = std::max(
                  worst, timesOf(problem, device, stage.unitBegin, stage.unitEnd, rows).both());
            }
            slowest = std::max(slowest, worst);
            fill += s < stages ? worst : 0;
            pipeline.stages.push_back(std::move(stage));
          }
          candidate.cost =
              slowest * static_cast<double>(chunks * (problem.batch / replicas / rows) - 1) + fill;
          candidate.strategy.pipelines.push_back(std::move(pipeline));
          candidate.strategy.state = ShardSizing::Equal;
          candidates.add(std::move(candidate));
        }
    }
  return candidates.choose("megatron", 24, /*measured=*/true);
}
