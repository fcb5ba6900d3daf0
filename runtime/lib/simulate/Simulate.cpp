#include "ProgramSimulator.h"

#include <algorithm>
#include <cmath>

using namespace zorse;
using namespace zorse::runtime;
using namespace zorse::runtime::simulation;

const char *zorse::runtime::activityName(Activity activity) {
  constexpr const char *names[kActivities] = {
      "forward", "backward", "weight gradients", "recompute", "loss", "update",    "copy",   "load",
      "report",  "transfer", "gather",           "reduction", "sum",  "busy link", "nothing"};
  return names[size_t(activity)];
}

double SimulatedDevice::compute() const {
  double seconds = 0;
  for (size_t a = 0; a < size_t(Activity::Transfer); ++a)
    seconds += busy[a];
  return seconds;
}

namespace {

/// Multiplies bandwidths by `times`; latencies are unchanged.
bundle::Topology scaled(bundle::Topology topology, double times) {
  auto scale = [&](bundle::LinkSpec *link) {
    link->set_bandwidth(link->bandwidth() * times);
    link->set_per_flow_bandwidth(link->per_flow_bandwidth() * times);
  };
  for (auto &node : *topology.mutable_nodes())
    for (bundle::LinkSpec *link : {node.mutable_port(), node.mutable_bus(), node.mutable_nic()})
      scale(link);
  for (auto &site : *topology.mutable_sites())
    for (bundle::LinkSpec *link : {site.mutable_fabric(), site.mutable_uplink()})
      scale(link);
  for (auto &pair : *topology.mutable_site_pairs())
    scale(pair.mutable_link());
  scale(topology.mutable_between_sites());
  return topology;
}

/// Follows the causes from the last end of the step back to the end of the previous step.
Seconds criticalPath(const Tasks &tasks, const ProgramSimulator &simulator) {
  Seconds path = {};
  uint64_t step = simulator.stepEnds.size() - 1;
  uint32_t task = simulator.lastTasks[step];
  double at = simulator.stepEnds[step], from = step == 0 ? 0 : simulator.stepEnds[step - 1];
  uint64_t last = step;
  while (task != UINT32_MAX && at > from) {
    const Run &run = simulator.ran(task, step);
    double begin = std::max(run.start, from), took = at - begin;
    Activity activity = tasks.tasks[task].activity;
    if (activity == Activity::Transfer) {
      double alone = std::min(took, std::max(0.0, simulator.alone(tasks.tasks[task])));
      path[size_t(Activity::BusyLink)] += took - alone;
      took = alone;
    }
    path[size_t(activity)] += took;
    at = begin;
    if (run.cause == UINT32_MAX || step < run.causeSteps || last - (step - run.causeSteps) > 2)
      break;
    step -= run.causeSteps;
    task = run.cause;
    double end = std::min(at, simulator.ran(task, step).end);
    if (end > from)
      path[size_t(Activity::Nothing)] += at - end;
    else
      break;
    at = end;
  }
  if (at > from)
    path[size_t(Activity::Nothing)] += at - from;
  return path;
}

} // namespace

Result<Simulation> zorse::runtime::simulatePrograms(const Bundle &bundle,
                                                    const SimulationOptions &options) {
  Tasks tasks(bundle, options);
  Simulation result;
  result.instructions = tasks.instructions.size() - 1;
  for (const bundle::Program &program : bundle.programs)
    for (const bundle::Instruction &instruction : program.instructions()) {
      if (!std::isfinite(instruction.planned_start()) ||
          !std::isfinite(instruction.planned_end()) ||
          instruction.planned_end() < instruction.planned_start())
        return userError(bundle.directory + ": instruction " + std::to_string(instruction.id()) +
                         " of device " + program.device_name() +
                         " has no planned duration; compile the model again");
      result.planned = std::max(result.planned, instruction.planned_end());
    }
  result.usesTopology = bundle.topology.nodes_size() > 0;
  sim::Network network;
  if (result.usesTopology)
    network = sim::Network(options.linkTimes == 1 ? bundle.topology
                                                  : scaled(bundle.topology, options.linkTimes));
  ProgramSimulator simulator(tasks, options, result.usesTopology ? &network : nullptr);
  if (Status status = simulator.run(); status.failed())
    return status;

  size_t last = options.steps - 1, half = options.steps / 2;
  result.stepEnds = simulator.stepEnds;
  result.firstStep = simulator.stepEnds[0];
  result.step = half > 0 ? (simulator.stepEnds[last] - simulator.stepEnds[half - 1]) /
                               double(last - half + 1)
                         : result.firstStep;
  result.devices = std::move(simulator.devices);
  for (SimulatedDevice &device : result.devices)
    for (Seconds *seconds : {&device.busy, &device.waiting})
      for (double &s : *seconds)
        s /= double(options.steps - simulator.countedFrom);
  result.criticalPath = criticalPath(tasks, simulator);
  result.trace = std::move(simulator.trace);
  return result;
}
