#include "Common.h"

#include "zorse/Base/Format.h"
#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <cmath>
#include <map>

using namespace zorse;
using namespace zorse::planning;
using namespace zorse::planning::baseline;

Layers::Layers(const bundle::ModelSummary &summary) {
  const int32_t units = summary.units_size();
  const int32_t first = static_cast<int32_t>(summary.blocks_first_unit()),
                period = static_cast<int32_t>(summary.blocks_period()),
                count = static_cast<int32_t>(summary.blocks_count());
  cuts.push_back(0);
  if (count > 0 && period > 0) {
    for (int32_t i = 1; i < count; ++i)
      cuts.push_back(first + i * period);
    typicalBegin = first;
    typicalEnd = first + period;
  } else {
    for (int32_t u = 1; u < units; ++u)
      cuts.push_back(u);
    typicalBegin = units / 2;
    typicalEnd = typicalBegin + 1;
  }
  cuts.push_back(units);
}

Times zorse::planning::baseline::timesOf(const Problem &problem, uint32_t device, int32_t begin,
                                         int32_t end, int64_t rows) {
  Times times;
  for (int32_t u = begin; u < end; ++u) {
    times.forward += problem.costs.unit(device, u, step::UnitTask::Forward, rows);
    times.backward += problem.costs.unit(device, u, step::UnitTask::Backward, rows);
  }
  return times;
}

Times zorse::planning::baseline::layerTimes(const Problem &problem, const Layers &layers,
                                            uint32_t device, int64_t rows) {
  return timesOf(problem, device, layers.typicalBegin, layers.typicalEnd, rows);
}

double zorse::planning::baseline::boundaryBytes(const bundle::ModelSummary &summary, int32_t cut) {
  double bytes = 0;
  for (const auto &value : summary.values())
    if (static_cast<int32_t>(value.producer()) < cut && value.users_size() > 0 &&
        static_cast<int32_t>(value.users(value.users_size() - 1)) >= cut)
      bytes += static_cast<double>(value.bytes_per_row());
  return bytes;
}

namespace {

/// Whether a strategy may fit. The minimum memory of a device is the gathered parameters and
/// accumulators of its units, and the activations of its largest cell, or of all its samples if all
/// forwards run first.
bool mayFit(const Problem &problem, const Strategy &strategy) {
  std::map<uint32_t, double> needed;
  const auto &summary = problem.summary;
  for (const Pipeline &pipeline : strategy.pipelines)
    for (const Stage &stage : pipeline.stages) {
      double parameters = 0, saved = 0;
      for (int32_t u = stage.unitBegin; u < stage.unitEnd; ++u) {
        saved += static_cast<double>(classOf(summary, summary.units(u)).saved_bytes().per_row());
        for (uint32_t p : summary.units(u).parameters()) {
          const bundle::ParameterInfo &parameter = summary.parameters(static_cast<int>(p));
          parameters += static_cast<double>(elementsOf(parameter)) *
                        (static_cast<double>(elementBytes(parameter.type())) +
                         (parameter.trainable() ? 4 : 0));
        }
      }
      for (const step::StageDevice &m : stage.members) {
        bool all = strategy.schedule.kind == step::ScheduleKind::GPipe;
        needed[m.device] +=
            parameters +
            saved * static_cast<double>(all ? m.samples : std::min(m.microBatchSize, m.samples));
      }
    }
  for (auto [device, bytes] : needed) {
    const uint64_t capacity = problem.cluster.devices[device].capacity();
    if (capacity && bytes > static_cast<double>(capacity))
      return false;
  }
  return true;
}

} // namespace

double zorse::planning::baseline::parameterBytes(const bundle::ModelSummary &summary, int32_t begin,
                                                 int32_t end) {
  double bytes = 0;
  for (int32_t u = begin; u < end; ++u)
    for (uint32_t p : summary.units(u).parameters())
      bytes += static_cast<double>(elementsOf(summary.parameters(static_cast<int>(p)))) *
               static_cast<double>(elementBytes(summary.compute_type()));
  return bytes;
}

double zorse::planning::baseline::bandwidth(const Problem &problem, uint32_t a, uint32_t b) {
  const sim::Network &network = problem.costs.network();
  sim::Route route = network.route(a, b);
  double min = route.perFlowBandwidth > 0 ? route.perFlowBandwidth : kUnlimited;
  for (uint8_t i = 0; i < route.count; ++i)
    min = std::min(min, network.bandwidth(route.resources[i]));
  return min;
}

double zorse::planning::baseline::latency(const Problem &problem, uint32_t a, uint32_t b) {
  return problem.costs.network().route(a, b).latency;
}

double zorse::planning::baseline::minBandwidth(const Problem &problem,
                                               const std::vector<uint32_t> &devices) {
  double min = kUnlimited;
  for (size_t i = 0; i < devices.size(); ++i)
    for (size_t j = i + 1; j < devices.size(); ++j)
      min = std::min(min, bandwidth(problem, devices[i], devices[j]));
  return min;
}

std::vector<step::StageDevice>
zorse::planning::baseline::assignMicroBatches(const std::vector<uint32_t> &devices,
                                              const std::vector<int64_t> &counts, int64_t rows,
                                              int64_t samples) {
  std::vector<step::StageDevice> members;
  for (size_t i = 0; i < devices.size(); ++i) {
    int64_t take = std::min(counts[i] * rows, samples);
    samples -= take;
    if (take > 0)
      members.push_back({devices[i], take, rows});
  }
  return members;
}

namespace {
constexpr size_t kKept = 256;
}

void Shortlist::trim() {
  std::stable_sort(kept.begin(), kept.end(),
                   [](const Candidate &a, const Candidate &b) { return a.cost < b.cost; });
  if (kept.size() > kKept)
    kept.resize(kKept);
  if (kept.size() == kKept)
    worst = kept.back().cost;
}

void Shortlist::add(Candidate candidate) {
  ++count;
  if (candidate.cost >= worst || !mayFit(problem, candidate.strategy))
    return;
  kept.push_back(std::move(candidate));
  if (kept.size() >= 2 * kKept)
    trim();
}

Result<Strategy> Shortlist::choose(const char *name, size_t tried, bool measured) {
  trim();
  std::optional<Strategy> best;
  double bestStep = INFINITY;
  uint64_t minExcess = UINT64_MAX;
  std::string closest;
  for (size_t i = 0; i < std::min(tried, kept.size()); ++i) {
    const Candidate &candidate = kept[i];
    Result<Evaluation> e = evaluate(problem, makePlan(problem, candidate.strategy));
    if (e.failed()) {
      closest = closest.empty() ? e.message() : closest;
      continue;
    }
    if (e->shortfallBytes > 0) {
      if (e->shortfallBytes < minExcess) {
        minExcess = e->shortfallBytes;
        closest.clear();
        for (size_t d = 0; d < e->memory.size(); ++d) {
          const ClusterDevice &device = problem.cluster.devices[d];
          if (device.capacity() && e->memory[d] > device.capacity() && closest.empty())
            closest = "device '" + device.name + "' exceeds its memory by " +
                      showBytes(static_cast<double>(e->memory[d] - device.capacity()));
        }
      }
      continue;
    }
    if (!measured)
      return candidate.strategy;
    if (e->step < bestStep) {
      bestStep = e->step;
      best = candidate.strategy;
    }
  }
  if (best)
    return std::move(*best);
  const std::string prefix = std::string(name) + ": ";
  if (count == 0)
    return userError(prefix + "this planner has no plan for such a model, batch and cluster");
  if (kept.empty())
    return userError(prefix + "in each of its " + std::to_string(count) +
                     " plans the parameters, gradients and activations of one micro-batch exceed "
                     "some device's memory");
  return userError(prefix + "none of its plans fits in memory; the closest: " + closest);
}

const std::vector<Baseline> &zorse::planning::baselines() {
  static const std::vector<Baseline> all = {{"zorse-paper", "Zorse's planner", zorsePaper},
                                            {"hexiscale", "HexiScale-like", hexiscale},
                                            {"megatron", "Megatron-like", megatron},
                                            {"sailor", "Sailor-like", sailor},
                                            {"harp", "HARP-like", harp}};
  return all;
}

const Baseline *zorse::planning::findBaseline(const std::string &name) {
  for (const Baseline &b : baselines())
    if (name == b.name)
      return &b;
  return nullptr;
}
