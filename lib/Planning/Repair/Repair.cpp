#include "zorse/Planning/Repair.h"

#include "NearPlan.h"

#include "../Search/Candidates.h"

#include <algorithm>
#include <map>
#include <set>

using namespace zorse;
using namespace zorse::planning;

ClusterChange zorse::planning::findClusterChange(const step::Plan &old, const Cluster &cluster,
                                                 const std::vector<uint32_t> &excluded) {
  std::set<std::string> used, usable;
  for (const step::Cell &cell : old.cells)
    used.insert(old.devices[cell.device].name);
  for (uint32_t d = 0; d < cluster.devices.size(); ++d)
    if (std::find(excluded.begin(), excluded.end(), d) == excluded.end())
      usable.insert(cluster.devices[d].name);
  ClusterChange change;
  std::set_difference(used.begin(), used.end(), usable.begin(), usable.end(),
                      std::back_inserter(change.lost));
  std::set_difference(usable.begin(), usable.end(), used.begin(), used.end(),
                      std::back_inserter(change.joined));
  return change;
}

/// Whether plans without the memory optimizations of a result may be better, for example because
/// devices have joined.
static bool paysWithout(const Problem &problem, const SearchOptions &options,
                        const SearchResult &result) {
  const std::optional<double> score = shortSearch(problem, options);
  return score && *score < scoreOf(problem, options, result.strategy, result.evaluation.step, 0);
}

static SearchResult betterOf(const Problem &problem, SearchResult result,
                             Result<SearchResult> other) {
  if (other.failed())
    return result;
  const uint32_t tried = result.tried + other->tried;
  if (other->evaluation.step < result.evaluation.step)
    result = std::move(*other);
  result.tried = tried;
  return result;
}

Result<SearchResult> zorse::planning::repairPlan(const Problem &problem, const step::Plan &old,
                                                 const SearchOptions &options) {
  SearchOptions near = options;
  near.candidates = 0;
  near.seconds = 0;
  const NearPlan plan(problem, old);
  near.near = &plan;
  // The memory optimizations of the plan are probably necessary again.
  if (plan.strategy() && options.memoryOptimizations && !problem.memoryOptimizations.any()) {
    Problem eased = problem;
    eased.memoryOptimizations = plan.strategy()->memoryOptimizations;
    eased.memoryOptimizations.overrides.clear();
    if (eased.memoryOptimizations.any()) {
      SearchOptions quiet = near;
      quiet.memoryHints = false;
      Result<SearchResult> result = searchInCanonicalOrder(eased, quiet);
      if (!result.failed() && !paysWithout(problem, quiet, *result))
        return result;
      if (!result.failed())
        return betterOf(problem, std::move(*result), searchInCanonicalOrder(problem, quiet));
    }
  }
  return searchInCanonicalOrder(problem, near);
}

std::string zorse::planning::whyNotRepaired(const Problem &problem, const step::Plan &old) {
  const NearPlan plan(problem, old);
  return plan.strategy() ? "" : plan.whyNot();
}

Result<Strategy> zorse::planning::strategyOf(const Problem &problem, const step::Plan &plan) {
  if (Status status = step::validatePlan(plan, problem.summary); status.failed())
    return status;
  Result<ReadStrategy> read = readStrategy(problem.summary, plan);
  if (read.failed())
    return read.error();
  if (!read->difference.empty())
    return userError(read->difference);
  std::map<std::string, uint32_t> index;
  for (uint32_t d = 0; d < problem.cluster.devices.size(); ++d)
    index.emplace(problem.cluster.devices[d].name, d);
  std::vector<uint32_t> newDevice;
  for (const step::PlanDevice &device : plan.devices) {
    const auto at = index.find(device.name);
    newDevice.push_back(at == index.end() ? UINT32_MAX : at->second);
  }
  for (const step::Cell &cell : plan.cells)
    if (newDevice[cell.device] == UINT32_MAX)
      return userError("the cluster has no device '" + plan.devices[cell.device].name + "'");
  Strategy strategy = std::move(read->strategy);
  auto &overrides = strategy.memoryOptimizations.overrides;
  overrides.erase(
      std::remove_if(overrides.begin(), overrides.end(),
                     [&](const auto &one) { return newDevice[one.first] == UINT32_MAX; }),
      overrides.end());
  strategy = withDevices(std::move(strategy), newDevice);
  // Owners by free memory follow from the strategy; others do not.
  const step::Plan made = makePlan(problem, strategy);
  const bool alike = std::equal(
      made.owners.begin(), made.owners.end(), plan.owners.begin(), plan.owners.end(),
      [&](const step::GroupOwners &a, const step::GroupOwners &b) {
        return a.group == b.group &&
               std::equal(a.owners.begin(), a.owners.end(), b.owners.begin(), b.owners.end(),
                          [&](const step::Owner &x, const step::Owner &y) {
                            return x.device == newDevice[y.device] && x.fraction == y.fraction &&
                                   x.begin == y.begin && x.end == y.end;
                          });
      });
  if (!alike)
    return userError("the owners of its state are not those that free memory gives");
  return strategy;
}
