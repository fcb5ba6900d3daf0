#include "zorse/Planning/Layout.h"

#include "LayoutTimer.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::planning;

static auto placeOf(const Techniques &techniques, uint32_t device) {
  return std::lower_bound(techniques.others.begin(), techniques.others.end(), device, [](const auto &other, uint32_t d) { return other.first < d; });
}

const Technique &Techniques::of(uint32_t device) const {
  const auto at = placeOf(*this, device);
  return at != others.end() && at->first == device ? at->second : most;
}

bool Techniques::set(uint32_t device, const Technique &technique) {
  if (of(device) == technique)
    return false;
  auto at = others.begin() + (placeOf(*this, device) - others.begin());
  if (at != others.end() && at->first == device)
    at = others.erase(at);
  if (!(technique == most))
    others.insert(at, {device, technique});
  return true;
}

std::string zorse::planning::showActivations(step::Activations activations) {
  switch (activations) {
  case step::Activations::Keep:
    return "";
  case step::Activations::Recompute:
    return "activations computed again";
  case step::Activations::Offload:
    return "activations on the hosts";
  }
  return "";
}

std::string zorse::planning::showState(StatePlace state) {
  switch (state) {
  case StatePlace::Device:
    return "";
  case StatePlace::MomentsOnHost:
    return "moments on the hosts";
  case StatePlace::OnHost:
    return "state on the hosts";
  case StatePlace::UpdatedOnHost:
    return "state on the hosts and updated there";
  }
  return "";
}

const Techniques &zorse::planning::techniquesOf(const Problem &problem, const Layout &layout) {
  return layout.techniques.any() ? layout.techniques : problem.techniques;
}

step::Plan zorse::planning::makePlan(const Problem &problem, const Layout &layout) { return LayoutTimer(problem).plan(layout); }

uint64_t zorse::planning::hostExcess(const Cluster &cluster, const step::StepGraph &graph) {
  std::vector<uint64_t> used(cluster.nodes.size(), 0);
  for (size_t d = 0; d < graph.devices.size(); ++d)
    if (cluster.devices[d].node < used.size())
      used[cluster.devices[d].node] += graph.devices[d].memory.host;
  uint64_t excess = 0;
  for (size_t n = 0; n < used.size(); ++n)
    if (const uint64_t limit = cluster.nodes[n].hostMemory; limit && used[n] > limit)
      excess += used[n] - limit;
  return excess;
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
  result.excess = hostExcess(problem.cluster, *graph);
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
