// HexiScale (formerly FlashFlex): asymmetric pipelines from graph partitions.
#include "HexiScale.h"

#include "Common.h"
#include "Partitions.h"
#include "ZorsePaper.h"

#include "zorse/Base/Apportion.h"
#include "zorse/Step/AssignMicroBatches.h"
#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

using namespace zorse;
using namespace zorse::planning;
using namespace zorse::planning::baseline;

std::vector<int64_t>
zorse::planning::baseline::layersByMemory(int64_t layers, const std::vector<double> &memories) {
  return shareByRate(layers, memories);
}

double zorse::planning::baseline::gpipeTime(const std::vector<double> &stage,
                                            int64_t microBatches) {
  const int64_t n = static_cast<int64_t>(stage.size());
  double sum = 0;
  for (int64_t column = 0; column < microBatches + n - 1; ++column) {
    if (column >= n && column < microBatches - 1) { // the steady state: all stages are busy
      int64_t same = microBatches - 1 - column;
      sum += static_cast<double>(same) * *std::max_element(stage.begin(), stage.end());
      column += same - 1;
      continue;
    }
    double slowest = 0;
    for (int64_t s = std::max<int64_t>(0, column - microBatches + 1); s <= std::min(column, n - 1);
         ++s)
      slowest = std::max(slowest, stage[s]);
    sum += slowest;
  }
  return sum;
}

namespace {

double memoryOf(const ClusterDevice &device) {
  return device.memory ? static_cast<double>(device.memory) : 1e12;
}

/// Greedy paths from every start: the next device has the fastest link. Returns the path with the
/// largest sum of link speeds.
std::vector<uint32_t> pathAlongLinks(const Weights &links, const std::vector<uint32_t> &devices) {
  std::vector<uint32_t> best;
  double max = -1;
  const size_t starts = std::min<size_t>(devices.size(), 16);
  for (size_t s = 0; s < starts; ++s) {
    std::vector<uint32_t> path{devices[s]};
    std::vector<bool> used(devices.size(), false);
    used[s] = true;
    double sum = 0;
    while (path.size() < devices.size()) {
      size_t next = SIZE_MAX;
      for (size_t i = 0; i < devices.size(); ++i)
        if (!used[i] && (next == SIZE_MAX ||
                         links[path.back()][devices[i]] > links[path.back()][devices[next]]))
          next = i;
      sum += links[path.back()][devices[next]];
      used[next] = true;
      path.push_back(devices[next]);
    }
    if (sum > max) {
      max = sum;
      best = path;
    }
  }
  return best;
}

/// Pipelines of one device per stage.
struct Paths {
  std::vector<std::vector<uint32_t>> devices;
  std::vector<std::vector<int64_t>> quotas; ///< layers per device
  std::vector<double> rates;                ///< rate of the slowest device
};

class HexiScale {
public:
  explicit HexiScale(const Problem &problem)
      : problem(problem), links(n, std::vector<double>(n, 0)), reversed(links) {
    double flops = 0;
    for (const auto &unit : problem.summary.units())
      flops += trainingFlops(classOf(problem.summary, unit));
    layerFlops = flops / static_cast<double>(total);
    double fastest = 0, slowest = kUnlimited;
    for (uint32_t i = 0; i < n; ++i)
      for (uint32_t j = 0; j < n; ++j)
        if (i != j) {
          links[i][j] = bandwidth(problem, i, j);
          fastest = std::max(fastest, links[i][j]);
          slowest = std::min(slowest, links[i][j]);
        }
    for (uint32_t i = 0; i < n; ++i)
      for (uint32_t j = 0; j < n; ++j)
        reversed[i][j] = i == j ? 0 : fastest + slowest - links[i][j];
    for (const ClusterDevice &device : problem.cluster.devices)
      memories.push_back(memoryOf(device));
  }

  Result<Strategy> run() const {
    std::set<uint32_t> counts;
    for (uint32_t perPipeline = 1; perPipeline <= n;
         perPipeline = n <= 32 ? perPipeline + 1 : perPipeline + (perPipeline + 3) / 4)
      counts.insert(static_cast<uint32_t>((n + perPipeline - 1) / perPipeline));
    Shortlist candidates(problem);
    for (uint32_t pipelines : counts) {
      if (pipelines > problem.batch)
        continue;
      const Paths paths = makePaths(pipelines);
      const double sync = syncSeconds(paths);
      const std::vector<int64_t> samples = apportion(problem.batch, paths.rates);
      for (int64_t rows = 1; rows <= std::min<int64_t>(16, problem.batch); rows *= 2)
        candidates.add(makeCandidate(paths, samples, rows, sync));
    }
    return candidates.choose("hexiscale");
  }

private:
  double speedOf(uint32_t device) const {
    return problem.cluster.devices[device].flopsPerSecond[type];
  }

  /// Devices that replicate the same layers synchronize gradients: fast links between pipelines,
  /// slow ones inside.
  Paths makePaths(uint32_t pipelines) const {
    std::vector<uint32_t> parts = bisectRecursively(reversed, memories, pipelines);
    Paths paths;
    paths.devices.resize(*std::max_element(parts.begin(), parts.end()) + 1);
    for (uint32_t d = 0; d < n; ++d)
      paths.devices[parts[d]].push_back(d);
    for (auto &path : paths.devices) {
      path = pathAlongLinks(links, path);
      std::vector<double> own;
      for (uint32_t d : path)
        own.push_back(memories[d]);
      std::vector<int64_t> quota = layersByMemory(total, own), kept;
      std::vector<uint32_t> used;
      for (size_t i = 0; i < path.size(); ++i)
        if (quota[i] > 0) {
          used.push_back(path[i]);
          kept.push_back(quota[i]);
        }
      path = used;
      paths.quotas.push_back(kept);
      double worst = 0;
      for (size_t i = 0; i < path.size(); ++i)
        worst = std::max(worst, static_cast<double>(kept[i]) * layerFlops / speedOf(path[i]));
      paths.rates.push_back(1 / worst);
    }
    return paths;
  }

  /// Sums over the layers; devices that have the layer take part.
  double syncSeconds(const Paths &paths) const {
    double sync = 0;
    if (paths.devices.size() > 1)
      for (int64_t l = 0; l < total; ++l) {
        const std::vector<uint32_t> holders = holdersOf(paths, l);
        double worst = 0;
        for (uint32_t i : holders) {
          double sum = 0;
          for (uint32_t j : holders)
            if (i != j)
              sum += layerBytes / (static_cast<double>(holders.size()) * links[i][j]);
          worst = std::max(worst, sum);
        }
        sync += 2 * worst;
      }
    return sync;
  }

  static std::vector<uint32_t> holdersOf(const Paths &paths, int64_t layer) {
    std::vector<uint32_t> holders;
    for (size_t p = 0; p < paths.devices.size(); ++p) {
      int64_t end = 0;
      for (size_t i = 0; i < paths.devices[p].size(); ++i) {
        end += paths.quotas[p][i];
        if (end <= layer)
          continue;
        holders.push_back(paths.devices[p][i]);
        break;
      }
    }
    return holders;
  }

  Candidate makeCandidate(const Paths &paths, const std::vector<int64_t> &samples, int64_t rows,
                          double sync) const {
    Candidate candidate;
    double worst = 0;
    for (size_t p = 0; p < paths.devices.size(); ++p) {
      if (samples[p] == 0)
        continue;
      worst = std::max(worst, gpipeTime(stageSeconds(paths.devices[p], paths.quotas[p], rows),
                                        (samples[p] + rows - 1) / rows));
      candidate.strategy.pipelines.push_back(
          makePipeline(paths.devices[p], paths.quotas[p], samples[p], rows));
    }
    candidate.strategy.state = ShardSizing::Equal;
    candidate.cost = 1.8 * worst + 1.1 * sync;
    return candidate;
  }

  std::vector<double> stageSeconds(const std::vector<uint32_t> &path,
                                   const std::vector<int64_t> &quota, int64_t rows) const {
    std::vector<double> stage;
    for (size_t i = 0; i < path.size(); ++i) {
      double link = i + 1 < path.size() ? 2 * boundary / links[path[i]][path[i + 1]] : 0;
      stage.push_back(static_cast<double>(rows) *
                      (static_cast<double>(quota[i]) * layerFlops / speedOf(path[i]) + link));
    }
    return stage;
  }

  Pipeline makePipeline(const std::vector<uint32_t> &path, const std::vector<int64_t> &quota,
                        int64_t samples, int64_t rows) const {
    Pipeline pipeline;
    pipeline.samples = samples;
    size_t layer = 0;
    for (size_t i = 0; i < path.size(); ++i) {
      Stage s;
      s.unitBegin = layers.cuts[layer];
      layer += static_cast<size_t>(quota[i]);
      s.unitEnd = layers.cuts[layer];
      s.members = {{path[i], samples, rows}};
      pipeline.stages.push_back(std::move(s));
    }
    return pipeline;
  }

  const Problem &problem;
  const Layers layers{problem.summary};
  const int64_t total = static_cast<int64_t>(layers.count());
  const size_t n = problem.cluster.devices.size();
  const size_t type = speedIndex(zorse::productType(problem.summary));
  double layerFlops; ///< embedding and head are distributed over the layers, as in its formula
  const double layerBytes = parameterBytes(problem.summary, layers.typicalBegin, layers.typicalEnd);
  const double boundary = boundaryBytes(problem.summary, layers.cuts[1]);
  Weights links, reversed;
  std::vector<double> memories;
};

} // namespace

Result<Strategy> zorse::planning::hexiscale(const Problem &problem) {
  return HexiScale(problem).run();
}
