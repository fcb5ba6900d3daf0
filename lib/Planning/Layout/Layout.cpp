#include "zorse/Planning/Layout.h"

#include "DealLayout.h"
#include "QuickSimulation.h"

#include <algorithm>
#include <memory>
#include <numeric>

using namespace zorse;
using namespace zorse::planning;

step::Plan zorse::planning::makePlan(const Problem &problem, const Layout &layout) {
  step::Plan plan;
  plan.model = problem.summary.content_hash();
  plan.batch = problem.batch;
  plan.devices = planDevices(problem.cluster, productType(problem.summary));
  plan.hostMemory = hostMemory(problem.cluster);
  planLinks(problem.cluster, plan);
  plan.schedule = layout.schedule;
  int64_t base = 0;
  std::vector<step::StageDevice> devices;
  for (const Pipeline &pipeline : layout.pipelines) {
    for (const Stage &stage : pipeline.stages)
      dealLayoutStage(layout, stage, base, devices, plan.cells);
    base += pipeline.samples;
  }
  plan.defaultOwners = layout.state == StateRule::Equal ? step::DefaultOwners::Equal : step::DefaultOwners::Proportional;
  if (layout.state != StateRule::FreeMemory)
    return plan;
  UnitTables tables(problem);
  QuickSimulation quick(problem, tables);
  quick.prepare(layout);
  for (const OwnerShares &set : quick.owners())
    for (uint32_t g : set.groups) {
      if (!problem.summary.groups(static_cast<int>(g)).trainable() || set.readers.size() < 2)
        continue;
      step::GroupOwners owners;
      owners.group = g;
      double sum = std::accumulate(set.weights.begin(), set.weights.end(), 0.0);
      for (size_t i = 0; i < set.readers.size(); ++i)
        owners.owners.push_back({set.readers[i], 100 * set.weights[i] / sum});
      plan.owners.push_back(std::move(owners));
    }
  std::sort(plan.owners.begin(), plan.owners.end(), [](const auto &a, const auto &b) { return a.group < b.group; });
  return plan;
}

std::optional<Evaluation> zorse::planning::evaluate(const Problem &problem, const step::Plan &plan, std::string &error, bool timeOnly) {
  step::ExpandOptions options;
  options.bodies = problem.bodies;
  options.costs = &problem.costs;
  options.checkMemory = false;
  options.timeOnly = timeOnly;
  std::optional<step::StepGraph> graph = step::expandPlan(problem.summary, plan, error, options);
  if (!graph)
    return std::nullopt;
  Evaluation result;
  result.step = graph->stepTime;
  for (size_t d = 0; d < graph->devices.size(); ++d) {
    uint64_t planned = timeOnly ? graph->devices[d].memory.least : graph->devices[d].plannedBytes, limit = problem.cluster.devices[d].capacity();
    result.memory.push_back(planned);
    result.busy.push_back(graph->devices[d].busy);
    result.cellsAlive.push_back(graph->devices[d].memory.cellsAlive);
    if (limit && planned > limit)
      result.excess += planned - limit;
  }
  return result;
}
