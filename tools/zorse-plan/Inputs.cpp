#include "Inputs.h"

#include "zorse/Pipelines/DivisibleOnnx.h"
#include "zorse/Planning/SelectDevices.h"
#include "zorse/Planning/TensorParallel.h"
#include "zorse/Step/Schedules.h"
#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <unistd.h>

using namespace zorse;
using namespace zorse::plan;

namespace {

/// Completes a plan that was read: devices that it does not list get no work; costs and memory are
/// taken from the cluster.
Result<step::Plan> readPlan(const std::string &path, const bundle::ModelSummary &summary,
                            const planning::Cluster *cluster) {
  Result<step::Plan> plan = step::readPlanFile(path, summary);
  if (plan.failed())
    return plan;
  Status status = cluster ? planning::applyCluster(*plan, *cluster, productType(summary))
                          : Status::success();
  if (status.succeeded())
    status = step::validatePlan(*plan, summary);
  if (status.failed())
    return userError(path + ": " + status.message());
  return plan;
}

/// Creates a cluster from a plan's list of devices, for plans that are given without a cluster.
planning::Cluster clusterOf(const step::Plan &plan) {
  planning::Cluster cluster;
  cluster.name = "plan";
  cluster.topology.add_sites()->mutable_fabric()->set_latency(plan.interNode.latency);
  for (const step::PlanDevice &device : plan.devices) {
    auto node = std::find_if(cluster.nodes.begin(), cluster.nodes.end(),
                             [&](const planning::ClusterNode &n) { return n.name == device.node; });
    planning::ClusterDevice described;
    described.name = device.name;
    described.node = static_cast<uint32_t>(node - cluster.nodes.begin());
    if (node == cluster.nodes.end()) {
      cluster.nodes.emplace_back();
      cluster.nodes.back().name = device.node;
      auto *topologyNode = cluster.topology.add_nodes();
      topologyNode->set_name(device.node);
      topologyNode->mutable_port()->set_bandwidth(plan.intraNode.bandwidth);
      topologyNode->mutable_port()->set_latency(plan.intraNode.latency);
      topologyNode->mutable_nic()->set_bandwidth(plan.interNode.bandwidth);
    }
    std::fill(std::begin(described.flopsPerSecond), std::end(described.flopsPerSecond),
              device.flopsPerSecond > 0 ? device.flopsPerSecond : 1e9);
    described.memory = device.memory;
    cluster.devices.push_back(described);
    cluster.topology.add_node_of_device(described.node);
  }
  return cluster;
}

/// Reads cluster and profile, and checks the batch of a given plan before the model is loaded.
Status readFiles(const Options &o, Inputs &inputs) {
  if (!o.cluster.empty()) {
    Result<planning::Cluster> cluster = planning::readClusterFile(o.cluster);
    if (cluster.failed())
      return cluster.error();
    inputs.cluster = std::move(*cluster);
  }
  if (!o.profile.empty()) {
    Result<planning::Profile> profile = planning::readProfileFile(o.profile);
    if (profile.failed())
      return profile.error();
    inputs.profile = std::move(*profile);
  }
  if (o.plan.empty())
    return Status::success();
  Result<step::PlanHead> head = step::readPlanHead(o.plan);
  if (head.failed())
    return head.error();
  if (o.batch > 0 && head->batch != o.batch)
    return userError(step::otherBatch(o.plan, head->batch, o.batch));
  return Status::success();
}

Status readModel(Options &o, const std::string &path, Inputs &inputs) {
  if (path.empty() == o.shape.empty())
    return userError("expected one model: an ONNX file, a bundle, a table of layers, a summary, or "
                     "--model-shape. --help lists the options");
  o.compile.quiet = o.quiet;
  o.compile.weights = pipelines::Weights::Later; // planning needs only shapes
  o.compile.cluster = o.cluster; // functions are compiled for every architecture in the cluster
  Result<LoadedModel> model =
      o.shape.empty() ? loadModel(path, o.compile)
                      : shapeModel(o.shape, o.compile, o.precisionGiven, inputs.clusterIfAny());
  if (model.failed())
    return model.error();
  inputs.model = std::move(*model);
  return Status::success();
}

/// Adapts cluster and profile to the model, and notes assumptions.
Status adaptToModel(const std::string &path, Inputs &inputs) {
  auto &[cluster, profile, plan, model, divided, assumptions] = inputs;
  if (cluster) {
    Result<std::vector<std::string>> assumed =
        planning::adaptToPrecision(*cluster, precisionOf(model.summary));
    if (assumed.failed())
      return assumed.error();
    assumptions = std::move(*assumed);
  }
  assumptions.insert(assumptions.end(), model.assumptions.begin(), model.assumptions.end());
  if (model.layers) {
    assumptions.insert(assumptions.end(), model.layers->assumptions.begin(),
                       model.layers->assumptions.end());
    planning::Profile own = model.layers->profile;
    if (profile)
      planning::mergeProfile(own, std::move(*profile));
    profile = std::move(own);
    Status status = cluster ? planning::checkLayerTimes(*model.layers, *cluster, *profile)
                            : Status::success();
    if (status.failed())
      return userError(path + ": " + status.message());
  }
  if (profile && cluster)
    for (auto &lines : {planning::limitMemory(*profile, *cluster),
                        planning::raiseWorkspace(*profile, *cluster, model.summary)})
      assumptions.insert(assumptions.end(), lines.begin(), lines.end());
  return Status::success();
}

/// Reads the plan given by the options. Only a given plan may be used without a cluster; a search
/// requires one.
/// \param o  options; o.batch is in rows
Status takePlan(const Options &o, Inputs &inputs) {
  std::optional<step::Plan> &plan = inputs.plan;
  if (!o.plan.empty()) {
    Result<GivenPlan> given = readGivenPlan(o.plan, inputs.model, inputs.clusterIfAny());
    if (given.failed())
      return given.error();
    plan = std::move(given->plan);
    inputs.divided = std::move(given->divided);
    if (o.batch > 0 && o.batch != plan->batch)
      return userError(step::otherBatch(o.plan, plan->batch * plan->samplesPerRow,
                                        o.batch * plan->samplesPerRow));
  } else if (!inputs.cluster) {
    return userError(
        "--cluster is missing: the devices to plan for (docs/reference/cluster-yaml.md)");
  } else if (o.batch < 1 && o.compare.empty()) {
    return userError("--global-batch-size is missing: the samples per step, at least 1");
  }
  if (!inputs.cluster)
    inputs.cluster = clusterOf(*plan);
  return Status::success();
}

/// Prints one line that is overwritten during the search.
void showProgress(uint32_t tried, uint32_t budget, double best) {
  fprintf(stderr, "\r  search: %u of %u candidates, best step %.4g s   ", tried, budget, best);
  fflush(stderr);
}

} // namespace

int zorse::plan::fail(const std::string &message) {
  size_t begin = 0;
  while (begin <= message.size() && !message.empty()) {
    size_t end = std::min(message.find('\n', begin), message.size());
    std::string line = message.substr(begin, end - begin);
    std::cerr << (line.rfind("  ", 0) == 0 ? "" : "error: ") << line << "\n";
    begin = end + 1;
  }
  return 1;
}

Result<GivenPlan> zorse::plan::readGivenPlan(const std::string &path, const LoadedModel &model,
                                             const planning::Cluster *cluster) {
  GivenPlan given;
  const Result<step::Plan> undivided = step::readPlanFile(path, model.summary);
  if (!undivided.failed() && !undivided->groups.empty() && !model.summary.device_groups_size() &&
      model.divisible) {
    Result<planning::DividedModel> divided =
        model.divisible->divide(planning::unitGroupsOf(*undivided));
    if (divided.failed())
      return userError(divided.message().empty() ? "" : path + ": " + divided.message());
    given.divided = std::make_unique<planning::DividedModel>(std::move(*divided));
  }
  Result<step::Plan> plan =
      readPlan(path, given.divided ? given.divided->summary : model.summary, cluster);
  if (plan.failed())
    return plan.error();
  given.plan = std::move(*plan);
  return given;
}

Status zorse::plan::readInputs(Options &o, Inputs &inputs) {
  const std::string path = o.model.empty() ? o.summary : o.model;
  if (o.batch == 0 && !o.compare.empty()) { // the plans contain it
    Result<step::PlanHead> head = step::readPlanHead(o.compare.front());
    if (head.failed())
      return head.error();
    o.batch = head->batch;
  }
  if (o.batch == 0 && !o.near.empty()) {
    Result<step::PlanHead> head = step::readPlanHead(nearPlanPath(o));
    if (head.failed())
      return head.error();
    o.batch = head->batch;
  }
  Status status = readFiles(o, inputs);
  o.compile.batch = o.batch;
  if (status.succeeded())
    status = readModel(o, path, inputs);
  if (status.succeeded())
    status = adaptToModel(path, inputs);
  if (status.failed())
    return status;
  const int64_t group = samplesPerRow(inputs.model.summary);
  if (o.batch % group != 0)
    return userError(step::brokenGroups(o.batch, group));
  o.batch /= group; // in rows from here on
  return takePlan(o, inputs);
}

Status zorse::plan::applyPlanOptions(const Options &o, planning::Problem &problem,
                                     std::optional<step::Plan> &plan) {
  const Result<step::Communication> communication = communicationOf(o, plan ? &*plan : nullptr);
  if (communication.failed())
    return communication.error();
  problem.communication = *communication;
  if (plan) {
    problem.gradientWire = plan->gradientWire;
    problem.optimizerStep = plan->optimizerStep;
  }
  if (!o.compile.gradientWire.empty()) // checked by its option
    problem.gradientWire = *step::gradientWireNamed(o.compile.gradientWire);
  if (o.optimizerInBackward) {
    for (const std::string &reason : step::whyNotInBackward(problem.summary))
      return userError("--optimizer-in-backward: " + reason + ", or leave the option out");
    problem.optimizerStep = step::OptimizerStep::InBackward;
  }
  if (plan) {
    plan->communication = problem.communication;
    plan->gradientWire = problem.gradientWire;
    plan->optimizerStep = problem.optimizerStep;
  }
  return Status::success();
}

Result<planning::SearchOptions> zorse::plan::searchOptions(const Options &o,
                                                           const planning::Cluster &cluster) {
  planning::SearchOptions search = o.search;
  search.objective = o.objective == "cost" ? planning::Objective::CostPerSample
                                           : planning::Objective::Throughput;
  if (!o.schedule.empty())
    search.schedule = step::findSchedule(o.schedule)->kind;
  if (!o.split.empty())
    search.splitBackward = o.split == "yes";
  Result<std::vector<uint32_t>> excluded = planning::devicesNamed(cluster, o.exclude);
  if (excluded.failed())
    return userError("--exclude: " + excluded.message());
  search.excluded = std::move(*excluded);
  if (!o.quiet && isatty(2))
    search.progress = showProgress;
  return search;
}
