// Memory optimizations if memory is insufficient. The cheapest are first:
//
// - moments: optimizer states on the hosts, copied to and from the device once a step, overlapping
//   the updates
// - state: also parameters and reduced gradients on the hosts
// - offload: activations on the hosts between forward and backward, copied while the device
//   computes
// - recompute: activation recomputation, which costs one more forward
// - offload or recompute, each together with moments or state
// - phases: parameters gathered twice a step, per chunk, if nothing else suffices (Phases.cpp)
//
// If a plan fits without them, a short search with unlimited memory first determines whether free
// memory could pay at all.
//
// A short search determines which memory optimizations fit, and their speed. The fastest is
// searched in full. Descents (Neighborhood::MemoryOptimizations) then change or drop the memory
// optimizations of classes, stages and devices. With too many devices for descents, stages drop
// their memory optimizations one at a time.

#include "Candidates.h"

#include <algorithm>
#include <cmath>

using namespace zorse;
using namespace zorse::planning;

std::vector<MemoryOptimization> zorse::planning::memoryOptimizationCandidates() {
  std::vector<MemoryOptimization> list;
  for (step::Activations activations :
       {step::Activations::Keep, step::Activations::Offload, step::Activations::Recompute})
    for (StateOffload state :
         {StateOffload::None, StateOffload::OptimizerStates, StateOffload::AllStates})
      if (const MemoryOptimization optimization{activations, state}; optimization.any())
        list.push_back(optimization);
  return list;
}

namespace {

/// Whether a short search with unlimited memory finds a better score than `toBeat`. Memory
/// optimizations cost time, so no plan with them is better than with unlimited memory.
bool wouldFreeMemoryPay(const Problem &problem, const SearchOptions &options, double toBeat) {
  Cluster unlimited = problem.cluster;
  for (ClusterDevice &device : unlimited.devices)
    device.memory = 0;
  const Problem roomy = problem.on(unlimited, problem.costs);
  const std::optional<double> score = shortSearch(roomy, options);
  return score && *score < toBeat;
}

/// Drops the memory optimizations of stages with enough free memory, those with the most free
/// memory first; `maxStages` are tried.
void dropUnneededOptimizations(const Problem &problem, size_t maxStages, SearchResult &result) {
  std::vector<std::pair<double, std::vector<uint32_t>>> byRoom; // used share of the memory of the
                                                                // fullest device
  for (const Pipeline &pipeline : result.strategy.pipelines)
    for (const Stage &stage : pipeline.stages) {
      double fullest = 0;
      std::vector<uint32_t> devices = devicesOf(stage);
      for (uint32_t d : devices)
        if (const uint64_t capacity = problem.cluster.devices[d].capacity())
          fullest = std::max(fullest, static_cast<double>(result.evaluation.memory[d]) /
                                          static_cast<double>(capacity));
      byRoom.push_back({fullest, std::move(devices)});
    }
  std::sort(byRoom.begin(), byRoom.end());
  byRoom.resize(std::min(byRoom.size(), maxStages));
  StrategySimulator simulator(problem);
  double best = simulator.run(result.strategy).step;
  Strategy strategy = result.strategy;
  for (const auto &[used, devices] : byRoom) {
    Strategy without = strategy;
    for (uint32_t d : devices)
      without.memoryOptimizations.set(d, MemoryOptimization());
    const StrategySimulator::Result &found = simulator.run(without);
    if (found.ran && found.shortfallBytes == 0 && found.step <= best) {
      best = found.step;
      strategy = std::move(without);
    }
  }
  step::Plan plan = makePlan(problem, strategy);
  if (Result<Evaluation> evaluation = evaluate(problem, plan);
      !evaluation.failed() && evaluation->shortfallBytes == 0) {
    result.strategy = std::move(strategy);
    result.plan = std::move(plan);
    result.evaluation = std::move(*evaluation);
  }
}

} // namespace

/// Returns the least estimate of a list.
static double least(const std::vector<Candidate> &list, double Candidate::*estimate) {
  double min = INFINITY;
  for (const Candidate &candidate : list)
    min = std::min(min, candidate.*estimate);
  return min;
}

void zorse::planning::addEasedSolutions(SearchContext &context, std::vector<Candidate> &solutions) {
  if (!context.options.memoryOptimizations || context.problem.memoryOptimizations.any() ||
      solutions.empty())
    return;
  constexpr double kLimits = 1.05; // how much longer steps must be because of memory
  const double now = least(solutions, &Candidate::estimate);
  if (now < kLimits * least(solutions, &Candidate::unlimitedEstimate))
    return;
  for (step::Activations activations : {step::Activations::Recompute, step::Activations::Offload}) {
    if (activations == step::Activations::Offload && context.effort().estimatesRecomputation)
      break; // with many devices, simulating it takes long
    Problem eased = context.problem;
    eased.memoryOptimizations.defaultOptimization.activations = activations;
    SearchContext other(eased, context.options);
    other.devices = context.devices;
    std::vector<Candidate> found = makeInitialSolutions(other, /*thorough=*/false);
    found.resize(std::min(found.size(), context.effort().easedSolutions));
    for (Candidate &candidate : found)
      if (candidate.estimate < now) {
        candidate.strategy.memoryOptimizations = eased.memoryOptimizations;
        candidate.id = context.nextId();
        solutions.insert(solutions.begin(), std::move(candidate));
      }
  }
}

std::optional<Problem> zorse::planning::withRecomputation(SearchContext &context,
                                                          const std::vector<Candidate> &solutions) {
  if (!context.options.memoryOptimizations || context.problem.memoryOptimizations.any() ||
      context.options.near || !context.effort().estimatesRecomputation || solutions.empty())
    return std::nullopt;
  // Recomputing costs at least a fifth of the time.
  constexpr double kCost = 1.2;
  const double now = least(solutions, &Candidate::estimate);
  if (now < kCost * least(solutions, &Candidate::unlimitedEstimate))
    return std::nullopt;
  Problem eased = context.problem;
  eased.memoryOptimizations.defaultOptimization.activations = step::Activations::Recompute;
  SearchContext other(eased, context.options);
  other.devices = context.devices;
  const double then = least(makeInitialSolutions(other, /*thorough=*/false), &Candidate::estimate);
  return then < now ? std::optional(std::move(eased)) : std::nullopt;
}

std::optional<SearchResult>
zorse::planning::searchWithMemoryOptimizations(const Problem &problem, const SearchOptions &options,
                                               double toBeat, const Strategy &start) {
  if (toBeat < INFINITY && !wouldFreeMemoryPay(problem, options, toBeat))
    return std::nullopt;
  const SearchEffort effort = SearchEffort::forRepair(problem.cluster.devices.size());
  std::vector<std::pair<double, MemoryOptimizations>> found;
  for (const MemoryOptimization &optimization : memoryOptimizationCandidates()) {
    Problem eased = problem;
    eased.memoryOptimizations.defaultOptimization = optimization;
    if (const std::optional<double> score = shortSearch(eased, options); score && *score < toBeat)
      found.push_back({*score, eased.memoryOptimizations});
    if (options.near && found.size() >= effort.easedCompared)
      break;
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto &a, const auto &b) { return a.first < b.first; });
  for (const auto &[score, optimizations] : found) { // the next one only if buffers, once placed,
                                                     // do not fit
    Problem eased = problem;
    eased.memoryOptimizations = optimizations;
    SearchOptions further = options;
    further.starts.push_back(start);
    Result<SearchResult> result = searchInOrder(eased, further);
    if (result.failed())
      continue;
    if (scoreOf(eased, options, result->strategy, result->evaluation.step, 0) >= toBeat)
      break;
    if (const size_t stages =
            SearchEffort::forDevices(problem.cluster.devices.size()).relievedStages)
      dropUnneededOptimizations(problem, stages, *result);
    return std::move(*result);
  }
  return toBeat < INFINITY ? std::nullopt
                           : searchReshardAfterForward(problem, options, /*briefly=*/options.ranks);
}
