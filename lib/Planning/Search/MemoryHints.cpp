// Message if no plan fits: the missing memory of each device in the closest plan, and changes that
// were tried and fit.

#include "Candidates.h"

#include "zorse/Base/Format.h"

#include <algorithm>
#include <map>

using namespace zorse;
using namespace zorse::planning;

namespace {

std::string moreDevices(const Problem &problem, const SearchOptions &options) {
  // Adds devices of the type with the most memory.
  uint32_t best = 0;
  for (uint32_t d = 1; d < problem.cluster.devices.size(); ++d)
    if (problem.cluster.devices[d].memory > problem.cluster.devices[best].memory)
      best = d;
  const ClusterDevice &like = problem.cluster.devices[best];
  const size_t max = SearchEffort::forDevices(problem.cluster.devices.size()).addedDevices;
  for (uint32_t more = 1; more <= max; more *= 2) {
    Cluster larger = problem.cluster;
    for (uint32_t i = 0; i < more; ++i) {
      ClusterDevice device = like;
      device.name = "added:" + std::to_string(i);
      larger.devices.push_back(device);
      larger.topology.add_node_of_device(device.node);
    }
    const Result<CostModel> costs =
        CostModel::make(problem.summary, larger, problem.costs.profile(), {});
    if (costs.failed())
      return "";
    if (shortSearchOfParts(problem.on(larger, *costs), options))
      return std::to_string(more) + (more == 1 ? " more device" : " more devices") +
             (like.type.empty() ? " like '" + like.name + "'" : " of type " + like.type);
  }
  return "";
}

std::string show(const MemoryOptimization &optimization) {
  const std::string activations = showActivations(optimization.activations),
                    state = showState(optimization.state);
  return activations + (activations.empty() || state.empty() ? "" : " and ") + state;
}

/// Returns a change that fits: memory optimizations that the user disabled, or hosts with enough
/// memory for memory optimizations.
std::string optimizationThatFits(const Problem &problem, const SearchOptions &options) {
  auto tryOn = [&](const Cluster &cluster) -> std::string {
    Problem eased = problem.on(cluster, problem.costs);
    for (const MemoryOptimization &optimization : memoryOptimizationCandidates()) {
      eased.memoryOptimizations.defaultOptimization = optimization;
      if (shortSearchOfParts(eased, options))
        return show(optimization);
    }
    eased.memoryOptimizations = {};
    if (SearchEffort::forDevices(cluster.devices.size()).triesPhases)
      if (const std::optional<SearchResult> found =
              searchReshardAfterForward(eased, options, /*briefly=*/true)) {
        const std::string rest = show(found->strategy.memoryOptimizations.defaultOptimization);
        return "parameters gathered by phase" + (rest.empty() ? "" : ", " + rest);
      }
    return "";
  };
  if (!options.memoryOptimizations)
    if (const std::string text = tryOn(problem.cluster); !text.empty())
      return text + " (disabled by --no-memory-optimizations)";
  auto withAtLeast = [&](uint64_t bytes) { // minimum memory of hosts with a limit; 0: unlimited
    Cluster roomy = problem.cluster;
    for (ClusterNode &node : roomy.nodes)
      if (node.hostMemory > 0)
        node.hostMemory = bytes ? std::max(node.hostMemory, bytes) : 0;
    return tryOn(roomy);
  };
  uint64_t max = 0;
  for (const ClusterNode &node : problem.cluster.nodes)
    max = std::max(max, node.hostMemory);
  if (max == 0 || withAtLeast(0).empty())
    return "";
  constexpr uint64_t kLargest = uint64_t(64) << 40;
  for (uint64_t bytes = uint64_t(1) << 30; bytes <= kLargest; bytes *= 2)
    if (bytes > max)
      if (const std::string text = withAtLeast(bytes); !text.empty())
        return "hosts with " + showBytes(static_cast<double>(bytes)) +
               " of memory each (host_memory in the cluster file), for " + text;
  return "";
}

} // namespace

std::optional<double> zorse::planning::shortSearch(const Problem &problem,
                                                   const SearchOptions &asked,
                                                   std::vector<uint32_t> *used) {
  SearchOptions options = asked;
  options.progress = nullptr;
  options.stages = options.pipelines = 0;
  SearchContext context(problem, options);
  if (context.devices.empty())
    return std::nullopt;
  const SearchEffort effort = context.effort();
  std::vector<Candidate> solutions = makeInitialSolutions(context, /*thorough=*/effort.shortPieces),
                         pool;
  std::vector<step::Schedule> schedules = scheduleChoices(context, false);
  solutions.resize(std::min(solutions.size(), effort.shortInitialSolutions));
  if (effort.wholeStages)
    addWhole(context, solutions);
  for (size_t i = 0; i < solutions.size(); ++i) {
    solutions[i].strategy.schedule = schedules.empty() ? step::Schedule() : schedules.front();
    solutions[i].strategy.state = ShardSizing::ByFreeMemory;
    pool.push_back(solutions[i]);
  }
  context.simulate(pool);
  std::optional<double> best;
  for (const Candidate &c : pool)
    if (c.score < 1e300 && c.shortfallBytes == 0 && (!best || c.score < *best) &&
        (options.maxPrice <= 0 || context.price(c.strategy) <= options.maxPrice) &&
        static_cast<double>(problem.batch) >= options.minThroughput * c.step) {
      best = c.score;
      if (!used)
        continue;
      used->clear();
      for (const Pipeline &pipeline : c.strategy.pipelines)
        for (const Stage &stage : pipeline.stages)
          for (uint32_t device : devicesOf(stage))
            used->push_back(device);
      std::sort(used->begin(), used->end());
      used->erase(std::unique(used->begin(), used->end()), used->end());
    }
  return best;
}

std::string zorse::planning::explainMemory(const SearchContext &context, const Strategy &strategy,
                                           const Evaluation &closest) {
  const Problem &problem = context.problem;
  std::string text =
      (context.options.memoryOptimizations
           ? "no plan fits the memory of the devices, even with activation recomputation, "
             "activations and state offloaded to the "
             "hosts, and parameters gathered by phase. The best plan without these exceeds it by "
           : "no plan fits the memory of the devices without memory techniques. The best plan "
             "exceeds it by ") +
      showBytes(static_cast<double>(closest.shortfallBytes)) + ":";
  std::vector<std::pair<uint64_t, uint32_t>> lacking;
  for (uint32_t d = 0; d < closest.memory.size(); ++d) {
    uint64_t memory = problem.cluster.devices[d].capacity();
    if (memory && closest.memory[d] > memory)
      lacking.push_back({closest.memory[d] - memory, d});
  }
  std::stable_sort(lacking.begin(), lacking.end(),
                   [](const auto &a, const auto &b) { return a.first > b.first; });
  std::map<uint32_t, const Stage *> stageOf;
  for (const Pipeline &pipeline : strategy.pipelines)
    for (const Stage &stage : pipeline.stages)
      for (const step::StageDevice &member : stage.members)
        stageOf[member.device] = &stage;
  for (size_t i = 0; i < lacking.size() && i < 8; ++i) {
    auto [bytes, d] = lacking[i];
    const ClusterDevice &device = problem.cluster.devices[d];
    text += "\ndevice '" + device.name + "'" +
            (device.type.empty() ? "" : " (" + device.type + ")") + " needs " +
            showBytes(static_cast<double>(closest.memory[d])) + ", " +
            showBytes(static_cast<double>(bytes)) + " more than its " +
            showBytes(static_cast<double>(device.capacity()));
    if (device.reservedMemory)
      text += " (" + showBytes(static_cast<double>(device.memory)) + " minus " +
              showBytes(static_cast<double>(device.reservedMemory)) + " reserved)";
    if (auto it = stageOf.find(d); it != stageOf.end()) {
      const Stage &stage = *it->second;
      double held = context.model.heldBytes(stage.unitBegin, stage.unitEnd),
             each = context.model.activationBytes(stage.unitBegin, stage.unitEnd);
      text += "; units " + std::to_string(stage.unitBegin) + "-" + std::to_string(stage.unitEnd) +
              ": parameters and gradients " + showBytes(held) + ", shard of optimizer states " +
              showBytes(context.model.sharedBytes(stage.unitBegin, stage.unitEnd)) +
              ", activations " + showBytes(each) + " per sample";
    }
  }
  if (lacking.size() > 8)
    text += "\n... and " + std::to_string(lacking.size() - 8) + " more devices";
  std::string remedies;
  auto add = [&](const std::string &remedy) {
    if (!remedy.empty())
      remedies += (remedies.empty() ? "" : "; or ") + remedy;
  };
  add(optimizationThatFits(problem, context.options));
  if (context.options.stages > 0 && shortSearchOfParts(problem, context.options))
    add("another number of stages than " + std::to_string(context.options.stages) +
        " (without --pipeline-stages it is chosen)");
  add(moreDevices(problem, context.options));
  for (int64_t batch = problem.batch / 2; batch >= 1; batch /= 4) {
    Problem smaller = problem.on(problem.cluster, problem.costs);
    smaller.batch = batch;
    if (shortSearchOfParts(smaller, context.options)) {
      add("a batch of at most " + std::to_string(batch) + (batch == 1 ? " sample" : " samples"));
      break;
    }
  }
  if (!context.options.excluded.empty())
    add("fewer excluded devices (" + std::to_string(context.options.excluded.size()) + " are)");
  return text + (remedies.empty()
                     ? "\nNeither a smaller batch nor up to four times the devices would make it "
                       "fit: use more devices, or devices with more memory"
                     : "\nChanges that make it fit: " + remedies);
}
