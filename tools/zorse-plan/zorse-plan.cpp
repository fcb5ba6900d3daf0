// zorse-plan: chooses a plan for a model on a cluster and reports step time, memory and the
// reasons. Parses options; lib/Planning does the work.
#include "DeepStack.h"
#include "LoadModel.h"
#include "ModelFlags.h"
#include "Options.h"
#include "ParseFlags.h"
#include "TrainingFlags.h"

#include "zorse/Base/Format.h"
#include "zorse/Baselines/Baselines.h"
#include "zorse/Pipelines/DivisibleOnnx.h"
#include "zorse/Planning/Report.h"
#include "zorse/Planning/Search.h"
#include "zorse/Planning/TensorParallel.h"
#include "zorse/Step/Plan.h"
#include "zorse/Step/Schedules.h"
#include "zorse/Summary/Summary.h"
#include "zorse/runtime/OutputFile.h"
#include "zorse/runtime/Overwrites.h"
#include "zorse/runtime/StandardStreams.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <unistd.h>

using namespace zorse;
using zorse::plan::Options;

namespace {

int fail(const std::string &message) {
  size_t begin = 0;
  while (begin <= message.size() && !message.empty()) {
    size_t end = std::min(message.find('\n', begin), message.size());
    std::string line = message.substr(begin, end - begin);
    std::cerr << (line.rfind("  ", 0) == 0 ? "" : "error: ") << line << "\n";
    begin = end + 1;
  }
  return 1;
}

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

struct GivenPlan {
  step::Plan plan;
  std::unique_ptr<planning::DividedModel> divided; ///< as the plan's groups divide the model;
                                                   ///< nullptr: the plan has none
};

/// Reads a plan, and divides the model as its groups do.
Result<GivenPlan> readGivenPlan(const std::string &path, const LoadedModel &model,
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

/// Returns the problem of a model that is divided.
planning::Problem dividedProblem(const planning::Problem &whole,
                                 const planning::DividedModel &model,
                                 const planning::CostModel &costs) {
  planning::Problem made{model.summary, whole.cluster, costs, whole.batch,
                         model.functions ? &*model.functions : nullptr};
  made.memoryOptimizations = whole.memoryOptimizations;
  made.assumptions = whole.assumptions;
  made.overlapCommunication = whole.overlapCommunication;
  return made;
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

/// Prints one line that is overwritten during the search.
void showProgress(uint32_t tried, uint32_t budget, double best) {
  fprintf(stderr, "\r  search: %u of %u candidates, best step %.4g s   ", tried, budget, best);
  fflush(stderr);
}

Result<planning::Report> reportOn(const GivenPlan &given, const planning::Problem &problem) {
  if (!given.divided)
    return planning::makeReport(problem, given.plan);
  const Result<planning::CostModel> costs = planning::CostModel::make(
      given.divided->summary, problem.cluster, problem.costs.profile(), {});
  if (costs.failed())
    return costs.error();
  return planning::makeReport(dividedProblem(problem, *given.divided, *costs), given.plan);
}

int compare(const Options &o, const planning::Problem &problem, const LoadedModel &model) {
  std::vector<planning::Report> reports;
  for (const std::string &path : o.compare) {
    const Result<GivenPlan> given = readGivenPlan(path, model, &problem.cluster);
    if (given.failed())
      return fail(given.message());
    const step::Plan &plan = given->plan;
    if (plan.batch != problem.batch)
      return fail(step::otherBatch(path, plan.batch * plan.samplesPerRow,
                                   problem.batch * plan.samplesPerRow));
    const Result<planning::Report> report = reportOn(*given, problem);
    if (report.failed())
      return fail(path + ": " + report.message());
    reports.push_back(*report);
  }
  std::cout << planning::compareReports(reports[0], o.compare[0], reports[1], o.compare[1]);
  return 0;
}

/// Returns the plan of another system's planner.
Result<step::Plan> planAs(const planning::Baseline &baseline, const planning::Problem &problem) {
  Result<planning::Strategy> strategy = baseline.plan(problem);
  if (strategy.failed())
    return strategy.error();
  return planning::makePlan(problem, *strategy);
}

/// Prints the plan of our planner and of every other one in a table.
int compareAll(const planning::Problem &problem, const planning::SearchOptions &search) {
  std::vector<planning::PlannerOutcome> outcomes(1);
  outcomes[0].name = "zorse";
  const Result<planning::SearchResult> ours = planning::searchPlan(problem, search);
  outcomes[0].step = ours.failed() ? 0 : ours->evaluation.step;
  outcomes[0].why = ours.message();
  for (const planning::Baseline &baseline : planning::baselines()) {
    Result<step::Plan> plan = planAs(baseline, problem);
    Result<planning::Evaluation> evaluation = plan.failed() ? plan.error()
                                                            : planning::evaluate(problem, *plan);
    outcomes.push_back({baseline.name, baseline.title, evaluation.failed() ? 0 : evaluation->step,
                        evaluation.message()});
  }
  bool any =
      std::any_of(outcomes.begin(), outcomes.end(), [](const auto &o) { return o.step > 0; });
  if (search.progress)
    fputs("\r\x1b[K", stderr);
  std::cout << planning::printOutcomes(std::move(outcomes),
                                       problem.batch * samplesPerRow(problem.summary),
                                       planning::tokensPerSample(problem.summary));
  return any ? 0 : fail("no planner has a plan");
}

/// The inputs of planning.
struct Inputs {
  std::optional<planning::Cluster> cluster;
  std::optional<planning::Profile> profile;
  std::optional<step::Plan> plan; ///< given by the user or found by the search
  LoadedModel model;
  std::unique_ptr<planning::DividedModel> divided; ///< as the given plan's groups divide it
  std::vector<std::string> assumptions;

  const planning::Cluster *clusterIfAny() const { return cluster ? &*cluster : nullptr; }
  const planning::Profile *profileIfAny() const { return profile ? &*profile : nullptr; }
};

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
  Result<LoadedModel> model = o.shape.empty()
                                  ? loadModel(path, o.compile)
                                  : shapeModel(o.shape, o.compile.sequence,
                                               o.compile.training, inputs.clusterIfAny());
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

Status readInputs(Options &o, Inputs &inputs) {
  const std::string path = o.model.empty() ? o.summary : o.model;
  if (o.batch == 0 && !o.compare.empty()) { // the plans contain it
    Result<step::PlanHead> head = step::readPlanHead(o.compare.front());
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

Result<planning::SearchOptions> searchOptions(const Options &o, const planning::Cluster &cluster) {
  planning::SearchOptions search = o.search;
  search.objective = o.objective == "cost" ? planning::Objective::CostPerSample
                                           : planning::Objective::Throughput;
  if (!o.schedule.empty())
    search.schedule = step::findSchedule(o.schedule)->kind;
  if (!o.split.empty())
    search.splitBackward = o.split == "yes";
  for (const std::string &name : o.exclude) {
    auto it = std::find_if(cluster.devices.begin(), cluster.devices.end(),
                           [&](const planning::ClusterDevice &d) { return d.name == name; });
    if (it == cluster.devices.end()) {
      std::string known;
      for (size_t d = 0; d < cluster.devices.size() && d < 8; ++d)
        known += (d ? ", " : "") + cluster.devices[d].name;
      return userError("--exclude: the cluster has no device '" + name + "'; its devices are " +
                       known + (cluster.devices.size() > 8 ? ", ..." : ""));
    }
    search.excluded.push_back(static_cast<uint32_t>(it - cluster.devices.begin()));
  }
  if (!o.quiet && isatty(2))
    search.progress = showProgress;
  return search;
}

/// Searches also with groups of devices. \param result  receives how they divide the model
Result<step::Plan> chooseWithGroups(const Options &o, const planning::Problem &problem,
                                    const planning::SearchOptions &search,
                                    planning::DivisibleModel *model, std::string &found,
                                    planning::GroupedResult &result) {
  if (!model)
    return userError("--tensor-parallel-size needs an ONNX file or --model-shape: units of other "
                     "models cannot be divided");
  Result<planning::GroupedResult> best =
      planning::searchWithGroups(problem, search, o.maxGroup, *model);
  if (search.progress)
    fputs("\r\x1b[K", stderr);
  if (best.failed())
    return best.error();
  result = std::move(*best);
  found = "best of " + std::to_string(result.best.tried) + " candidates, in " +
          std::to_string(result.groupings) + " groupings of devices and without groups";
  if (!result.best.plan.groups.empty())
    found += result.stepWithout
                 ? format("; without groups, a step takes %.4g s", *result.stepWithout)
                 : "; no plan without groups fits";
  return std::move(result.best.plan);
}

/// Returns a line about the number of devices that would have to divide units for a plan to fit;
/// empty: none was found.
std::string groupsThatFit(const Options &o, const planning::Problem &problem,
                          const planning::SearchOptions &search, planning::DivisibleModel *model) {
  if (!model)
    return {};
  planning::SearchOptions quick = search;
  quick.progress = nullptr;
  quick.memoryHints = false;
  quick.candidates = 100;
  for (uint32_t size : {2u, 4u, 8u}) {
    const Result<planning::GroupedResult> found =
        planning::searchWithGroups(problem, quick, size, *model);
    if (!found.failed())
      return "\n--tensor-parallel-size=" + std::to_string(size) +
             " would make it fit: devices of a node then divide units";
  }
  return {};
}

/// \param found  receives how the plan was chosen, for the report
Result<step::Plan> choosePlan(const std::string &planner, const planning::Problem &problem,
                              const planning::SearchOptions &search, std::string &found) {
  if (planner != "zorse") {
    const planning::Baseline &baseline = *planning::findBaseline(planner);
    found = std::string("by ") + baseline.title;
    return planAs(baseline, problem);
  }
  if (problem.summary.device_groups_size())
    return userError("the bundle's units are divided by the groups of its plan (tensor "
                     "parallelism): to search for plans, pass the ONNX file instead");
  Result<planning::SearchResult> result = planning::searchPlan(problem, search);
  if (search.progress)
    fputs("\r\x1b[K", stderr);
  if (result.failed())
    return result.error();
  found = "best of " + std::to_string(result->tried) + " candidates";
  return std::move(result->plan);
}

/// A problem without groups of devices, and how they could divide its model.
struct WholeProblem {
  const planning::Problem &problem;
  planning::DivisibleModel *divisible; ///< nullptr: groups cannot divide it
};

/// Returns what limits the plan, and the effect of other clusters. The search is repeated for
/// those, unless devices are excluded; with groups if the plan has some.
std::vector<planning::Reason> explainPlan(const planning::Problem &problem,
                                          const WholeProblem &undivided, const step::Plan &plan,
                                          const planning::Report &report,
                                          const planning::SearchOptions &search, bool given) {
  const planning::Problem &whole = undivided.problem;
  uint32_t maxGroup = 1;
  for (const step::DeviceGroup &group : plan.groups)
    maxGroup = std::max(maxGroup, static_cast<uint32_t>(group.devices.size()));
  planning::PlanAgain again =
      [&](const planning::Cluster &other) -> std::optional<planning::Replanned> {
    Result<planning::CostModel> otherCosts =
        planning::CostModel::make(whole.summary, other, whole.costs.profile(), {});
    if (otherCosts.failed())
      return std::nullopt;
    planning::Problem changed{whole.summary, other, *otherCosts, whole.batch, whole.functions};
    planning::SearchOptions quick = search;
    quick.progress = nullptr;
    quick.excluded.clear();
    if (maxGroup > 1 && undivided.divisible) {
      const Result<planning::GroupedResult> found =
          planning::searchWithGroups(changed, quick, maxGroup, *undivided.divisible);
      return found.failed() ? std::nullopt
                            : std::optional(planning::Replanned{found->best.evaluation.step,
                                                                found->best.price});
    }
    Result<planning::SearchResult> result = planning::searchPlan(changed, quick);
    return result.failed()
               ? std::nullopt
               : std::optional(planning::Replanned{result->evaluation.step, result->price});
  };
  const bool searches = search.excluded.empty() && !whole.summary.device_groups_size();
  return planning::explain(problem, plan, report, searches ? again : planning::PlanAgain(),
                           search.objective == planning::Objective::CostPerSample, given);
}

/// Prints and writes the requested reports. A plan that does not fit is reported, and is an error.
int describe(const Options &o, const planning::Problem &problem, const WholeProblem &whole,
             const step::Plan &plan, const planning::SearchOptions &search,
             const std::string &found) {
  step::StepGraph graph;
  Result<planning::Report> report = planning::makeReport(problem, plan, &graph);
  if (report.failed())
    return fail(o.plan.empty() ? report.message() : o.plan + ": " + report.message());
  std::vector<planning::Reason> reasons;
  if (o.explain || !o.html.empty())
    reasons = explainPlan(problem, whole, plan, *report, search, !o.plan.empty());
  if (!o.quiet) {
    std::cout << planning::drawPlan(plan, problem.summary.units_size()) << "\n"
              << planning::printReport(*report, 32, !o.verbose);
    if (!found.empty())
      std::cout << "found           " << found << "\n";
  }
  if (o.explain)
    std::cout << "\nWhy, and what would change it\n" << planning::printReasons(reasons);
  if (!o.html.empty())
    if (runtime::Status status =
            runtime::writeOutput(o.html, planning::writeReportPage(*report, plan, graph, reasons));
        status.failed())
      return fail(status.message());
  if (!o.json.empty())
    if (runtime::Status status = runtime::writeOutput(o.json, planning::writeReportJson(*report));
        status.failed())
      return fail(status.message());
  std::string lacking;
  for (const auto &device : report->devices)
    if (device.available && device.memory > device.available)
      lacking += (lacking.empty() ? "" : ", ") + device.name + " (" +
                 showBytes(double(device.memory - device.available)) + ")";
  return lacking.empty() ? 0 : fail("the plan does not fit: insufficient memory on " + lacking);
}

int run(Options &o) {
  Inputs inputs;
  if (Status status = readInputs(o, inputs); status.failed())
    return fail(status.message());
  const bundle::ModelSummary &summary = inputs.model.summary;
  std::optional<step::Plan> &plan = inputs.plan;
  Result<planning::CostModel> costs =
      planning::CostModel::make(summary, *inputs.cluster, inputs.profileIfAny(), {});
  if (costs.failed())
    return fail(costs.message());
  planning::Problem problem{summary, *inputs.cluster, *costs, plan ? plan->batch : o.batch,
                            inputs.model.functions ? &*inputs.model.functions : nullptr};
  problem.assumptions = inputs.assumptions;
  problem.overlapCommunication = o.overlap.value_or(true);
  if (plan && o.overlap)
    plan->overlapCommunication = problem.overlapCommunication;
  if (!o.compare.empty())
    return compare(o, problem, inputs.model);
  Result<planning::SearchOptions> search = searchOptions(o, *inputs.cluster);
  if (search.failed())
    return fail(search.message());
  if (!plan && o.planner == "all")
    return compareAll(problem, *search);
  std::string found;
  planning::GroupedResult groups;
  if (!plan) {
    Result<step::Plan> chosen =
        o.maxGroup > 1 && o.planner == "zorse"
            ? chooseWithGroups(o, problem, *search, inputs.model.divisible.get(), found, groups)
            : choosePlan(o.planner, problem, *search, found);
    if (chosen.failed())
      return fail(chosen.message() +
                  (o.maxGroup == 1 && o.planner == "zorse"
                       ? groupsThatFit(o, problem, *search, inputs.model.divisible.get())
                       : ""));
    plan = std::move(*chosen);
  }
  const std::unique_ptr<planning::DividedModel> &divided = inputs.divided ? inputs.divided
                                                                          : groups.model;
  const bundle::ModelSummary &planned = divided ? divided->summary : summary;
  if (!o.output.empty())
    if (runtime::Status status = runtime::writeOutput(o.output, step::writePlan(*plan, planned));
        status.failed())
      return fail(status.message());
  if (o.quiet && o.html.empty() && o.json.empty() && !o.explain)
    return 0;
  const WholeProblem whole{problem, inputs.model.divisible.get()};
  if (!divided)
    return describe(o, problem, whole, *plan, *search, found);
  const Result<planning::CostModel> dividedCosts =
      planning::CostModel::make(planned, *inputs.cluster, inputs.profileIfAny(), {});
  if (dividedCosts.failed())
    return fail(dividedCosts.message());
  return describe(o, dividedProblem(problem, *divided, *dividedCosts), whole, *plan, *search,
                  found);
}

} // namespace

static int runTool(int argc, char **argv) {
  zorse::runtime::openStandardStreams();
  CLI::App app("Chooses a plan for a model on a cluster (or reads one), and reports its schedule, "
               "step time, memory and reasons.\n"
               "  zorse-plan model.onnx --cluster cluster.yaml --global-batch-size 64 --seq-length "
               "512 -o plan.json --html plan.html\n"
               "  zorse-plan --model-shape llama-7b --seq-length 4096 --cluster cluster.yaml "
               "--global-batch-size 256\n");
  Options o;
  plan::addOptions(app, o);
  ModelFlags model;
  model.addTo(app, o.compile);
  TrainingFlags training;
  training.addStateTo(app);
  if (std::optional<int> done = parseFlags(app, argc, argv, "zorse-plan"))
    return *done;
  if (runtime::Status status = runtime::checkOverwrites(
          {{"the model", o.model},
           {"--summary", o.summary},
           {"--cluster", o.cluster},
           {"--profile", o.profile},
           {"--plan", o.plan}},
          {{"--output", o.output}, {"--html", o.html}, {"--json", o.json}});
      status.failed())
    return fail(status.message());
  for (auto [option, path] :
       {std::make_pair("--output", &o.output), {"--html", &o.html}, {"--json", &o.json}})
    if (!path->empty())
      if (runtime::Status status = runtime::checkWritable(*path); status.failed())
        return fail(std::string(option) + ": " + status.message());
  if (!o.shape.empty() && app.count("--precision") > 0)
    return fail("--precision: is for models that are compiled; add it to --model-shape, as in "
                "--model-shape llama-7b,precision=bf16");
  o.compile.optimizerGiven = app.count("--optimizer") > 0 || app.count("--momentum") > 0;
  Status status = model.resolve(o.compile);
  if (status.succeeded())
    status = training.resolve(o.compile.training);
  if (status.failed())
    return fail(status.message());
  if (const int64_t group = o.compile.groupRows; group > 0 && o.batch % group != 0)
    return fail(step::brokenGroups(o.batch, group));
  return run(o);
}

int main(int argc, char **argv) { return zorse::runOnDeepStack(runTool, argc, argv); }
