#include "StrategySimulator.h"

#include "AssignStageCells.h"

#include "zorse/Summary/StateLayout.h"
#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <map>
#include <numeric>

using namespace zorse;
using namespace zorse::planning;

namespace {

step::Plan emptyPlan(const Problem &problem) {
  step::Plan plan;
  plan.model = problem.summary.content_hash();
  plan.batch = problem.batch;
  plan.samplesPerRow = samplesPerRow(problem.summary);
  plan.optimizerStep = problem.optimizerStep;
  plan.gradientWire = problem.gradientWire;
  plan.communication = problem.communication;
  plan.devices = planDevices(problem.cluster, productType(problem.summary));
  plan.hostMemory = hostMemory(problem.cluster);
  planLinks(problem.cluster, plan);
  return plan;
}

/// Returns the weights by which `bytes` are assigned to readers so that the smallest remaining
/// memory is maximal. All owners end with equal remaining memory; a reader with less than that owns
/// nothing. `left` is the remaining memory of each reader in bytes.
std::vector<double> fillUp(const std::vector<double> &left, double bytes) {
  std::vector<double> sorted(left), weights;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  double sum = 0, level = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    sum += sorted[i];
    level = (sum - bytes) / static_cast<double>(i + 1);
    if (i + 1 == sorted.size() || level >= sorted[i + 1])
      break;
  }
  for (double own : left)
    weights.push_back(std::max(0.0, own - level));
  return weights;
}

void applyOptimizations(const MemoryOptimizations &optimizations, step::Plan &plan) {
  plan.offload.clear();
  if (!optimizations.any())
    return;
  for (step::Cell &cell : plan.cells)
    cell.activations = optimizations.of(cell.device).activations;
  for (StateOffload offload :
       {StateOffload::OptimizerStates, StateOffload::AllStates, StateOffload::CpuOptimizer}) {
    step::OffloadRule rule;
    for (uint32_t d = 0; d < plan.devices.size(); ++d)
      if (optimizations.of(d).state == offload)
        rule.devices.push_back(d);
    if (rule.devices.empty())
      continue;
    if (rule.devices.size() == plan.devices.size())
      rule.devices.clear(); // all
    rule.optimizerStates = step::MemoryTier::Host;
    if (!keepsMasters(offload))
      rule.parameters = step::MemoryTier::Host;
    if (offload == StateOffload::AllStates)
      rule.gradients = step::MemoryTier::Host;
    if (offload == StateOffload::CpuOptimizer)
      rule.optimizer = step::MemoryTier::Host;
    plan.offload.push_back(std::move(rule));
  }
  if (optimizations.reshardAfterForward) {
    step::OffloadRule rule;
    rule.reshardAfterForward = true;
    plan.offload.push_back(std::move(rule));
  }
}

void addStrategy(const MemoryOptimizations &optimizations, const Strategy &strategy, MemoKey &key) {
  key.add(strategy.pipelines.size());
  for (const Pipeline &pipeline : strategy.pipelines) {
    key.add(pipeline.samples).add(pipeline.stages.size());
    for (const Stage &stage : pipeline.stages) {
      key.add(stage.unitBegin).add(stage.unitEnd).add(stage.members.size());
      for (const step::StageDevice &member : stage.members)
        key.add(member.device).add(member.samples).add(member.microBatchSize);
    }
  }
  key.add(strategy.boundaryDenominator).add(strategy.samplesPerVariant).add(strategy.state);
  const step::Schedule &schedule = strategy.schedule;
  key.add(schedule.kind).add(schedule.splitBackward).add(schedule.inFlightFactor);
  key.add(schedule.maxWeightGradDelay).add(schedule.microbatchGroupSize);
  key.add(schedule.warmupForwards.size());
  for (uint32_t forwards : schedule.warmupForwards)
    key.add(forwards);
  auto addOptimization = [&](const MemoryOptimization &optimization) {
    key.add(optimization.activations).add(optimization.state);
  };
  key.add(optimizations.reshardAfterForward);
  addOptimization(optimizations.defaultOptimization);
  for (const auto &[device, optimization] : optimizations.overrides) {
    key.add(device);
    addOptimization(optimization);
  }
}

} // namespace

StrategySimulator::StrategySimulator(const Problem &problem, uint64_t gaps, int tries)
    : problem(problem), fragmentationDivisor(gaps), tries(tries),
      tables(step::makeLoweringTables(problem.summary, problem.functions, &problem.costs)),
      functions(problem.summary, problem.functions), replicas(problem), reused(emptyPlan(problem)) {
}

void StrategySimulator::assignCells(const Strategy &strategy, bool withReplicas,
                                    step::Plan &plan) const {
  plan.schedule = strategy.schedule;
  plan.defaultSharding = strategy.state == ShardSizing::Proportional ? ShardSizing::Proportional
                                                                     : ShardSizing::Equal;
  plan.cells.clear();
  plan.owners.clear();
  int64_t base = 0;
  std::vector<step::StageDevice> devices;
  for (size_t p = 0; p < strategy.pipelines.size(); ++p) {
    if (withReplicas || !replicas.isReplica(p))
      for (const Stage &stage : strategy.pipelines[p].stages)
        assignStageCells(strategy, stage, base, devices, plan.cells);
    base += strategy.pipelines[p].samples;
  }
  applyOptimizations(memoryOptimizationsOf(problem, strategy), plan);
}

zorse::Result<step::StepTimes> StrategySimulator::time(const step::Plan &plan) const {
  step::TimeOptions options;
  options.functions = problem.functions;
  options.costs = &problem.costs;
  options.tables = tables;
  options.checked = true;
  options.replicas = &replicas.devices();
  options.fragmentationDivisor = fragmentationDivisor;
  options.tries = tries;
  options.simulatedUpdateParts = 4;
  return step::timeStep(problem.summary, plan, options);
}

/// Returns the result with equal shares of state, from which ownByMemory derives others; null if
/// the strategy has other shares.
const StrategySimulator::Result *StrategySimulator::withEqualShares(const Strategy &strategy) {
  if (strategy.state != ShardSizing::ByFreeMemory)
    return nullptr;
  Strategy equal = strategy;
  equal.state = ShardSizing::Equal;
  return &run(equal);
}

/// ShardSizing::ByFreeMemory: assigns master parameters and optimizer states to the devices with
/// the most free memory when all own equal shares. Parameters and gradients stay on their readers.
void StrategySimulator::ownByMemory(const Result *equal, bool withReplicas,
                                    step::Plan &plan) const {
  if (!equal || !equal->ran)
    return;
  const auto &devices = problem.cluster.devices;
  // Groups by their readers.
  const int groups = problem.summary.groups_size();
  std::vector<std::vector<uint32_t>> readers(static_cast<size_t>(groups));
  std::vector<uint8_t> seen(devices.size());
  std::vector<std::vector<uint32_t>> groupsOf;
  for (const bundle::UnitInfo &unit : problem.summary.units())
    groupsOf.push_back(groupsOfUnit(problem.summary, unit));
  std::map<std::tuple<uint32_t, int32_t, int32_t>, bool> ranges;
  for (const step::Cell &cell : plan.cells)
    ranges[{cell.device, cell.unitBegin, cell.unitEnd}] = true;
  auto add = [](std::vector<uint32_t> &list, uint32_t device) {
    if (list.empty() || list.back() != device)
      list.push_back(device);
  };
  for (const auto &[range, is] : ranges)
    for (int32_t u = std::get<1>(range); u < std::get<2>(range); ++u)
      for (uint32_t g : groupsOf[static_cast<size_t>(u)])
        add(readers[g], std::get<0>(range));
  if (!withReplicas)
    for (auto &list : readers) {
      const size_t own = list.size();
      for (auto [like, replica] : replicas.devices())
        if (std::binary_search(list.begin(), list.begin() + static_cast<long>(own), like))
          list.push_back(replica);
      std::sort(list.begin(), list.end());
    }
  std::map<std::vector<uint32_t>, std::vector<uint32_t>> sets;
  for (int g = 0; g < groups; ++g)
    if (problem.summary.groups(g).trainable() && readers[static_cast<size_t>(g)].size() > 1)
      sets[readers[static_cast<size_t>(g)]].push_back(static_cast<uint32_t>(g));
  auto ownedBytes = [&](uint32_t g) {
    const bundle::FlatGroupInfo &group = problem.summary.groups(static_cast<int>(g));
    const double size = static_cast<double>(elementBytes(group.type()));
    const bundle::UpdateRule *rule = ruleOf(problem.summary, group);
    return static_cast<double>(group.elements()) *
           ((rule ? stateBytesPerElement(*rule, group.type()) : 0) +
            (computeType(group) != group.type() ? size : 0));
  };
  // Free memory without the state that they own now, which is equal for all.
  std::vector<double> left(devices.size());
  for (size_t d = 0; d < devices.size(); ++d) {
    const uint64_t used = equal->memory[d] - equal->fragmentationDivisor[d];
    if (used > 0 && devices[d].capacity() == 0)
      return; // memory is unlimited
    left[d] = static_cast<double>(devices[d].capacity()) - static_cast<double>(used);
  }
  for (const auto &[set, members] : sets)
    for (uint32_t g : members)
      for (uint32_t d : set)
        left[d] += ownedBytes(g) / static_cast<double>(set.size());
  for (const auto &[set, members] : sets) {
    double bytes = 0;
    for (uint32_t g : members)
      bytes += ownedBytes(g);
    std::vector<double> of;
    for (uint32_t d : set)
      of.push_back(left[d]);
    const std::vector<double> weights = fillUp(of, bytes);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    if (sum <= 0)
      continue;
    for (size_t i = 0; i < set.size(); ++i)
      left[set[i]] -= weights[i] / sum * bytes;
    for (uint32_t g : members) {
      step::GroupOwners owners;
      owners.group = g;
      for (size_t i = 0; i < set.size(); ++i)
        owners.owners.push_back({set[i], weights[i] / sum});
      plan.owners.push_back(std::move(owners));
    }
  }
  std::sort(plan.owners.begin(), plan.owners.end(),
            [](const auto &a, const auto &b) { return a.group < b.group; });
}

const StrategySimulator::Result &StrategySimulator::run(const Strategy &strategy) {
  MemoKey key;
  addStrategy(memoryOptimizationsOf(problem, strategy), strategy, key);
  if (const Result *known = simulated.find(key))
    return *known;
  return simulated.keep(key, simulate(strategy));
}

zorse::Result<step::StepTimes> StrategySimulator::timeWithReplicas(const Strategy &strategy,
                                                                   const Result *equal) {
  replicas.find(strategy);
  assignCells(strategy, /*withReplicas=*/false, reused);
  if (!functions.canRun(reused))
    return userError("functions that the plan calls are not compiled");
  ownByMemory(equal, /*withReplicas=*/false, reused);
  return time(reused);
}

zorse::Result<Evaluation> StrategySimulator::estimate(const Strategy &strategy) {
  const zorse::Result<step::StepTimes> times =
      timeWithReplicas(strategy, withEqualShares(strategy));
  if (times.failed())
    return times.error();
  return evaluationOf(problem, *times);
}

StrategySimulator::Result StrategySimulator::simulate(const Strategy &strategy) {
  const Result *equal = withEqualShares(strategy);
  const zorse::Result<step::StepTimes> times = timeWithReplicas(strategy, equal);
  Result result;
  const size_t devices = problem.cluster.devices.size();
  result.memory.resize(devices);
  result.fragmentationDivisor.resize(devices);
  result.busy.resize(devices);
  result.ran = !times.failed();
  if (!result.ran)
    return result;
  result.step = times->stepTime;
  result.tasks = times->numInstructions;
  result.work = times->listed + (equal ? equal->work : 0);
  std::vector<uint64_t> host(devices); // bytes in the memory of each device's host
  for (size_t d = 0; d < devices; ++d) {
    const step::DeviceUse &device = times->devices[d];
    host[d] = device.memory.host;
    result.fragmentationDivisor[d] =
        fragmentationDivisor ? device.memory.activations / fragmentationDivisor : 0;
    result.memory[d] = device.memory.peakLiveBytes + result.fragmentationDivisor[d];
    result.busy[d] = device.busy;
    if (const uint64_t memory = problem.cluster.devices[d].capacity();
        memory && result.memory[d] > memory)
      result.shortfallBytes += result.memory[d] - memory;
  }
  result.shortfallBytes += hostShortfallBytes(problem.cluster, host);
  return result;
}

step::Plan StrategySimulator::plan(const Strategy &strategy) {
  const Result *equal = withEqualShares(strategy);
  step::Plan plan = reused;
  assignCells(strategy, /*withReplicas=*/true, plan);
  ownByMemory(equal, /*withReplicas=*/true, plan);
  return plan;
}
