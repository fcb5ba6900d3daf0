#include "zorse/Planning/DefaultPlan.h"

#include "zorse/Step/Deal.h"
#include "zorse/Step/StepGraph.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

using namespace zorse::planning;
using namespace zorse::step;

namespace {

struct Stage {
  int32_t unitBegin, unitEnd;
  std::vector<uint32_t> devices;
};

/// Costs of contiguous ranges of units and weights of contiguous ranges of devices, as differences of prefix sums. What is a thousand million times
/// smaller than the greatest counts as that small: smaller ones would vanish in the sums, and a device of weight 0 takes for ever.
struct Sums {
  std::vector<double> prefix{0};
  explicit Sums(const std::vector<double> &values) {
    double least = values.empty() ? 0 : 1e-9 * *std::max_element(values.begin(), values.end());
    for (double v : values)
      prefix.push_back(prefix.back() + std::max(v, least));
  }
  double between(size_t begin, size_t end) const { return prefix[end] - prefix[begin]; }
  size_t size() const { return prefix.size() - 1; }
};

/// Groups of devices and ranges of units together, least time of the slowest stage; exact, for small instances.
/// least[s][d][u]: best for the first d devices and u units in s stages.
std::vector<std::pair<size_t, size_t>> cutExactly(const Sums &devices, const Sums &units, size_t stages) {
  size_t D = devices.size(), U = units.size();
  auto index = [&](size_t d, size_t u) { return d * (U + 1) + u; };
  std::vector<std::vector<double>> least(stages + 1, std::vector<double>((D + 1) * (U + 1), INFINITY));
  std::vector<std::vector<std::pair<size_t, size_t>>> from(stages + 1, std::vector<std::pair<size_t, size_t>>((D + 1) * (U + 1)));
  least[0][0] = 0;
  for (size_t s = 1; s <= stages; ++s)
    for (size_t d = s; d <= D; ++d)
      for (size_t u = s; u <= U; ++u)
        for (size_t pd = s - 1; pd < d; ++pd)
          for (size_t pu = s - 1; pu < u; ++pu) {
            double time = std::max(least[s - 1][index(pd, pu)], units.between(pu, u) / devices.between(pd, d));
            if (time < least[s][index(d, u)]) {
              least[s][index(d, u)] = time;
              from[s][index(d, u)] = {pd, pu};
            }
          }
  std::vector<std::pair<size_t, size_t>> ends(stages); // (devices, units) before the end of each stage
  size_t d = D, u = U;
  for (size_t s = stages; s > 0; --s) {
    ends[s - 1] = {d, u};
    std::tie(d, u) = from[s][index(d, u)];
  }
  return ends;
}

/// The same for many devices: groups of about equal weight first, then the best cuts of the units for them.
std::vector<std::pair<size_t, size_t>> cutByGroups(const Sums &devices, const Sums &units, size_t stages) {
  size_t D = devices.size(), U = units.size();
  std::vector<size_t> deviceEnds(stages);
  size_t d = 0;
  for (size_t s = 0; s < stages; ++s) {
    double target = devices.prefix[D] * static_cast<double>(s + 1) / static_cast<double>(stages);
    ++d;
    while (d < D - (stages - 1 - s) && devices.prefix[d] < target - 1e-12 * devices.prefix[D])
      ++d;
    deviceEnds[s] = s + 1 == stages ? D : d;
  }
  std::vector<std::vector<double>> least(stages + 1, std::vector<double>(U + 1, INFINITY));
  std::vector<std::vector<size_t>> from(stages + 1, std::vector<size_t>(U + 1, 0));
  least[0][0] = 0;
  for (size_t s = 1; s <= stages; ++s) {
    double weight = devices.between(s == 1 ? 0 : deviceEnds[s - 2], deviceEnds[s - 1]);
    for (size_t u = s; u <= U; ++u)
      for (size_t pu = s - 1; pu < u; ++pu) {
        double time = std::max(least[s - 1][pu], units.between(pu, u) / weight);
        if (time < least[s][u]) {
          least[s][u] = time;
          from[s][u] = pu;
        }
      }
  }
  std::vector<std::pair<size_t, size_t>> ends(stages);
  size_t u = U;
  for (size_t s = stages; s > 0; --s) {
    ends[s - 1] = {deviceEnds[s - 1], u};
    u = from[s][u];
  }
  return ends;
}

std::vector<Stage> makeStages(const std::vector<uint32_t> &order, const std::vector<double> &weights, const std::vector<double> &costs, size_t stages) {
  std::vector<double> ordered;
  for (uint32_t d : order)
    ordered.push_back(weights[d]);
  Sums devices(ordered), units(costs);
  bool small = devices.size() * units.size() <= 1024;
  auto ends = small ? cutExactly(devices, units, stages) : cutByGroups(devices, units, stages);
  std::vector<Stage> result;
  size_t d = 0, u = 0;
  for (auto [dEnd, uEnd] : ends) {
    result.push_back({static_cast<int32_t>(u), static_cast<int32_t>(uEnd), {order.begin() + d, order.begin() + dEnd}});
    d = dEnd;
    u = uEnd;
  }
  return result;
}

/// Whole samples by device so that the slowest is as fast as possible: what is left after rounding down goes where it takes least time.
std::vector<int64_t> splitBySpeed(int64_t batch, const std::vector<double> &weights) {
  double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> parts;
  int64_t left = batch;
  for (double weight : weights) {
    parts.push_back(std::min(static_cast<int64_t>(static_cast<double>(batch) * weight / sum), left));
    left -= parts.back();
  }
  for (; left > 0; --left) {
    size_t best = 0;
    auto time = [&](size_t i) { return static_cast<double>(parts[i] + 1) / weights[i]; };
    for (size_t i = 1; i < parts.size(); ++i)
      if (time(i) < time(best))
        best = i;
    ++parts[best];
  }
  return parts;
}

std::vector<Cell> makeCells(const std::vector<Stage> &stages, const std::vector<double> &weights, int64_t batch, int64_t microBatches, int64_t most) {
  std::vector<Cell> cells;
  for (const Stage &stage : stages) {
    std::vector<double> w;
    for (uint32_t d : stage.devices)
      w.push_back(weights[d]);
    std::vector<int64_t> samples = splitBySpeed(batch, w);
    std::vector<StageDevice> devices;
    for (size_t i = 0; i < samples.size(); ++i) {
      int64_t rows = std::max<int64_t>(1, (samples[i] + microBatches - 1) / microBatches);
      devices.push_back({stage.devices[i], samples[i], most > 0 ? std::min(rows, most) : rows});
    }
    dealStage(stage.unitBegin, stage.unitEnd, 0, devices, cells);
  }
  return cells;
}

} // namespace

std::optional<Plan> zorse::planning::makeDefaultPlan(const bundle::ModelSummary &summary, const Cluster &cluster, int64_t batch, std::string &error,
                                                     const DefaultPlanOptions &options) {
  error.clear();
  size_t units = summary.units_size(), devices = cluster.devices.size();
  if (units == 0 || devices == 0 || batch < 1) {
    error = units == 0 ? "the model has no units" : devices == 0 ? "the cluster has no devices" : "batch is " + std::to_string(batch) + ", expected at least 1";
    return std::nullopt;
  }
  size_t mostStages = std::min(units, devices);
  if (options.stages > mostStages) {
    error = std::to_string(options.stages) + " stages are asked for; the model has " + std::to_string(units) + " units and the cluster " +
            std::to_string(devices) + " devices, so at most " + std::to_string(mostStages) + " are possible";
    return std::nullopt;
  }

  Plan plan;
  plan.model = summary.content_hash();
  plan.batch = batch;
  const NumberType type = numberType(summary.compute_type());
  plan.devices = planDevices(cluster, type);
  planLinks(cluster, plan);
  plan.schedule.kind = options.schedule;

  std::vector<double> costs, speeds, memories;
  for (const auto &unit : summary.units())
    costs.push_back(std::max(unit.forward_flops_per_row() + unit.backward_flops_per_row(), 1.0));
  bool limited = true;
  for (const ClusterDevice &device : cluster.devices) {
    speeds.push_back(device.speed[size_t(type)] > 0 ? device.speed[size_t(type)] : 1e9);
    memories.push_back(static_cast<double>(device.memory));
    limited &= device.memory > 0;
  }

  std::vector<std::vector<uint32_t>> orders(1, std::vector<uint32_t>(devices));
  std::iota(orders[0].begin(), orders[0].end(), 0);
  orders.push_back(orders[0]);
  std::stable_sort(orders[1].begin(), orders[1].end(), [&](uint32_t a, uint32_t b) { return speeds[a] > speeds[b]; });
  std::vector<uint32_t> fastest = {orders[1][0]};
  if (orders[1] == orders[0])
    orders.pop_back();
  // Links may cost more than further devices bring: each node alone, and the fastest device alone.
  std::map<std::string, std::vector<uint32_t>> nodes;
  for (uint32_t d = 0; d < devices; ++d)
    nodes[plan.devices[d].node].push_back(d);
  if (nodes.size() > 1 && nodes.size() <= 16)
    for (auto &[name, members] : nodes) {
      std::stable_sort(members.begin(), members.end(), [&](uint32_t a, uint32_t b) { return speeds[a] > speeds[b]; });
      orders.push_back(members);
    }
  if (std::find(orders.begin(), orders.end(), fastest) == orders.end())
    orders.push_back(fastest);

  std::vector<size_t> stageCounts;
  if (options.stages > 0)
    stageCounts.push_back(options.stages);
  else
    for (size_t s = 1; s <= mostStages; s = s < 4 ? s + 1 : s * 3 / 2)
      stageCounts.push_back(s);
  if (options.stages == 0 && stageCounts.back() != mostStages && mostStages <= 16)
    stageCounts.push_back(mostStages);

  // Memory limits may bind before speed does: then shares by memory are a second choice of weights, tried only if nothing else fits.
  std::optional<Plan> best;
  double bestTime = INFINITY;
  uint64_t bestExcess = UINT64_MAX;
  Plan leastBad;
  for (const std::vector<double> *weights : {&speeds, &memories}) {
    if (weights == &memories && (best || !limited))
      break;
    for (const auto &order : orders)
      for (size_t s : stageCounts) {
        if (s > order.size())
          continue;
        std::vector<Stage> stages = makeStages(order, *weights, costs, s);
        std::vector<Cell> previous;
        for (int64_t microBatches = 1; microBatches <= std::min<int64_t>(batch, 64); microBatches *= 2) {
          plan.cells = makeCells(stages, *weights, batch, microBatches, options.microBatch);
          auto equal = [](const Cell &a, const Cell &b) { return a.sampleBegin == b.sampleBegin && a.sampleEnd == b.sampleEnd && a.device == b.device; };
          if (plan.cells.size() == previous.size() && std::equal(previous.begin(), previous.end(), plan.cells.begin(), equal))
            continue;
          previous = plan.cells;
          ExpandOptions expandOptions;
          expandOptions.checkMemory = false;
          expandOptions.bodies = options.bodies;
          std::optional<StepGraph> graph = expandPlan(summary, plan, error, expandOptions);
          if (!graph)
            return std::nullopt;
          uint64_t excess = 0;
          for (size_t d = 0; d < devices; ++d)
            if (plan.devices[d].memory && graph->devices[d].plannedBytes > plan.devices[d].memory)
              excess += graph->devices[d].plannedBytes - plan.devices[d].memory;
          if (excess == 0 && graph->stepTime < bestTime * (1 - 1e-9)) {
            bestTime = graph->stepTime;
            best = plan;
          }
          if (!best && excess < bestExcess) {
            bestExcess = excess;
            leastBad = plan;
          }
        }
      }
  }
  if (best)
    return best;
  ExpandOptions strict;
  strict.bodies = options.bodies;
  expandPlan(summary, leastBad, error, strict); // says what does not fit, and where
  error = "no default plan fits the cluster's memory; the closest one:\n" + error;
  return std::nullopt;
}
