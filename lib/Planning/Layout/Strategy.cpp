#include "zorse/Planning/Strategy.h"

#include "StrategySimulator.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::planning;

Problem Problem::of(const bundle::ModelSummary &model,
                    const bundle::FunctionLibrary *modelFunctions, const Cluster &other,
                    const CostModel &otherCosts) const {
  return {model, other,         otherCosts,   batch,        modelFunctions, memoryOptimizations,
          {},    communication, gradientWire, optimizerStep};
}

Problem Problem::on(const Cluster &other, const CostModel &otherCosts) const {
  return of(summary, functions, other, otherCosts);
}

Strategy zorse::planning::withDevices(Strategy strategy, const std::vector<uint32_t> &newDevice) {
  for (Pipeline &pipeline : strategy.pipelines)
    for (Stage &stage : pipeline.stages)
      for (step::StageDevice &member : stage.members)
        member.device = newDevice[member.device];
  auto &others = strategy.memoryOptimizations.overrides;
  for (auto &other : others)
    other.first = newDevice[other.first];
  std::sort(others.begin(), others.end(),
            [](const auto &a, const auto &b) { return a.first < b.first; });
  return strategy;
}

static auto placeOf(const MemoryOptimizations &optimizations, uint32_t device) {
  return std::lower_bound(optimizations.overrides.begin(), optimizations.overrides.end(), device,
                          [](const auto &other, uint32_t d) { return other.first < d; });
}

const MemoryOptimization &MemoryOptimizations::of(uint32_t device) const {
  const auto at = placeOf(*this, device);
  return at != overrides.end() && at->first == device ? at->second : defaultOptimization;
}

bool MemoryOptimizations::set(uint32_t device, const MemoryOptimization &optimization) {
  if (of(device) == optimization)
    return false;
  auto at = overrides.begin() + (placeOf(*this, device) - overrides.begin());
  if (at != overrides.end() && at->first == device)
    at = overrides.erase(at);
  if (!(optimization == defaultOptimization))
    overrides.insert(at, {device, optimization});
  return true;
}

std::string zorse::planning::showActivations(step::Activations activations) {
  switch (activations) {
  case step::Activations::Keep:
    return "";
  case step::Activations::Recompute:
    return "activation recomputation";
  case step::Activations::Offload:
    return "activations offloaded to the hosts";
  }
  return "";
}

std::string zorse::planning::showState(StateOffload state) {
  switch (state) {
  case StateOffload::None:
    return "";
  case StateOffload::OptimizerStates:
    return "optimizer states on the hosts";
  case StateOffload::AllStates:
    return "state on the hosts";
  case StateOffload::CpuOptimizer:
    return "state on the hosts and updated there";
  }
  return "";
}

const MemoryOptimizations &zorse::planning::memoryOptimizationsOf(const Problem &problem,
                                                                  const Strategy &strategy) {
  return strategy.memoryOptimizations.any() ? strategy.memoryOptimizations
                                            : problem.memoryOptimizations;
}

step::Plan zorse::planning::makePlan(const Problem &problem, const Strategy &strategy) {
  return StrategySimulator(problem).plan(strategy);
}

uint64_t zorse::planning::hostShortfallBytes(const Cluster &cluster,
                                             const std::vector<uint64_t> &host) {
  std::vector<uint64_t> used(cluster.nodes.size(), 0);
  for (size_t d = 0; d < host.size(); ++d)
    if (cluster.devices[d].node < used.size())
      used[cluster.devices[d].node] += host[d];
  uint64_t excess = 0;
  for (size_t n = 0; n < used.size(); ++n)
    if (const uint64_t limit = cluster.nodes[n].hostMemory; limit && used[n] > limit)
      excess += used[n] - limit;
  return excess;
}

/// \param held  returns the bytes of a device
template <typename Step, typename Held>
static Evaluation evaluationWith(const Problem &problem, const Step &step, Held held) {
  Evaluation result;
  result.step = step.stepTime;
  std::vector<uint64_t> host;
  for (const auto &device : step.devices) {
    const uint64_t bytes = held(device), limit = problem.cluster.devices[host.size()].capacity();
    host.push_back(device.memory.host);
    result.memory.push_back(bytes);
    result.busy.push_back(device.busy);
    result.peakInFlightCells.push_back(device.memory.peakInFlightCells);
    if (limit && bytes > limit)
      result.shortfallBytes += bytes - limit;
  }
  result.shortfallBytes += hostShortfallBytes(problem.cluster, host);
  return result;
}

Result<Evaluation> zorse::planning::evaluate(const Problem &problem, const step::Plan &plan) {
  step::LoweringOptions options;
  options.functions = problem.functions;
  options.costs = &problem.costs;
  options.checkMemory = false;
  const Result<step::StepGraph> graph = step::lowerPlan(problem.summary, plan, options);
  if (graph.failed())
    return graph.error();
  return evaluationWith(problem, *graph,
                        [](const step::DeviceProgram &device) { return device.plannedBytes; });
}

Evaluation zorse::planning::evaluationOf(const Problem &problem, const step::StepTimes &times) {
  return evaluationWith(problem, times,
                        [](const step::DeviceUse &device) { return device.memory.peakLiveBytes; });
}

Result<Evaluation> zorse::planning::estimate(const Problem &problem, const step::Plan &plan) {
  step::TimeOptions options;
  options.functions = problem.functions;
  options.costs = &problem.costs;
  const Result<step::StepTimes> times = step::timeStep(problem.summary, plan, options);
  if (times.failed())
    return times.error();
  return evaluationOf(problem, *times);
}
