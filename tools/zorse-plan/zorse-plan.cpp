// zorse-plan: which device does what, how fast, in how much memory, and why. Options are read here; lib/Planning does the work.
#include "DeepStack.h"
#include "LoadModel.h"
#include "ModelFlags.h"
#include "Numbers.h"
#include "ParseFlags.h"
#include "TrainingFlags.h"

#include "zorse/Baselines/Baselines.h"
#include "zorse/Planning/Report.h"
#include "zorse/Planning/Search.h"
#include "zorse/Step/Plan.h"
#include "zorse/Step/RandomPlan.h"
#include "zorse/Step/Schedules.h"
#include "zorse/Step/ShowBytes.h"
#include "zorse/Summary/Summary.h"
#include "zorse/runtime/OutputFile.h"
#include "zorse/runtime/Overwrites.h"
#include "zorse/runtime/StandardStreams.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <unistd.h>

using namespace zorse;

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

struct Options {
  std::string model, summary, shape, cluster, profile, plan, output, html, json, schedule, objective = "throughput", split, communication,
                                                                                           planner = "zorse";
  std::vector<std::string> exclude, compare;
  int64_t batch = 0, random = -1, devices = 0;
  bool quiet = false, explain = false;
  planning::SearchOptions search;
  pipelines::CompileOptions compile;
};

void addOptions(CLI::App &app, Options &o) {
  app.add_option("model", o.model, "an ONNX file, a bundle, a table of layers (layers.json, docs/layers.md), or a model summary (summary.pb)");
  app.add_option("--shape", o.shape,
                 "plan for a model by its dimensions: llama-7b ... llama-70b, and layers=, hidden=, ffn=, heads=, kv_heads=, vocabulary=, "
                 "precision=f16 (comma-separated)");
  app.add_option("--summary", o.summary, "the same as giving a summary as the model")->group("");
  app.add_option("--cluster", o.cluster, "sites, nodes, devices, links (docs/cluster.md)");
  app.add_option("--profile", o.profile, "measured times (docs/profile.md), as zorse-profile writes them");
  app.add_option("--batch", o.batch, "samples per step");
  app.add_option("--plan", o.plan, "describe this plan instead of choosing one (docs/plan.md)");
  app.add_option("-o,--output", o.output, "write plan.json");
  app.add_option("--html", o.html, "write a page with timeline, memory, tiling and reasons");
  app.add_option("--json", o.json, "write the report for machines (docs/planning.md)");
  app.add_flag("--explain", o.explain, "say what binds, and what one more device, other links or more memory would bring");
  app.add_option("--compare", o.compare, "two plans (files) side by side")->expected(2);
  std::vector<std::string> planners = {"zorse", "all"};
  for (const planning::Baseline &baseline : planning::baselines())
    planners.push_back(baseline.name);
  app.add_option("--planner", o.planner, "another system's way to choose a plan (docs/baselines.md), or all: a table of what each would make of it")
      ->check(CLI::IsMember(planners));
  app.add_flag("--quiet", o.quiet, "no tables, no progress");

  const char *search = "Search";
  app.add_option("--objective", o.objective, "throughput (default) or cost: least price per token")
      ->group(search)
      ->check(CLI::IsMember({"throughput", "cost"}));
  app.add_option("--least-throughput", o.search.leastThroughput, "with --objective=cost: samples/s that must be reached")->group(search);
  app.add_option("--most-price", o.search.mostPrice, "most to pay per hour for the devices in use")->group(search);
  app.add_option("--stages", o.search.stages, "number of pipeline stages (default: chosen)")->group(search);
  app.add_option("--pipelines", o.search.pipelines, "number of pipelines (default: chosen)")->group(search);
  app.add_option("--microbatch", o.search.rows, "most rows of a micro-batch (default: chosen)")->group(search);
  std::vector<std::string> schedules;
  for (step::ScheduleKind kind : planning::searchedSchedules())
    schedules.push_back(step::scheduleRule(kind).name);
  app.add_option("--schedule", o.schedule, "the order of tasks (default: chosen)")->group(search)->check(CLI::IsMember(schedules));
  app.add_option("--split-backward", o.split, "yes or no: weight gradients as tasks of their own (default: chosen)")
      ->group(search)
      ->check(CLI::IsMember({"yes", "no"}));
  app.add_option("--communication", o.communication,
                 "blocking: devices do not compute while they send or receive, as in other systems (default: overlapped)")
      ->group(search)
      ->check(CLI::IsMember({"overlapped", "blocking"}));
  app.add_option("--exclude", o.exclude, "devices to leave out")->group(search)->delimiter(',');
  app.add_option("--candidates", o.search.candidates, "search budget, in simulated candidates (default: by the size of the problem)")->group(search);
  app.add_option("--seed", o.search.seed, "of the search; the same seed gives the same plan on any machine")->check(wholeNumber())->group(search);
  app.add_option("--threads", o.search.threads, "default: all cores; the plan does not depend on it")->group(search);
  app.add_flag("!--no-techniques", o.search.techniques, "neither recomputation nor state on hosts, also where memory lacks")->group(search);

  app.add_option("--random", o.random, "draw a random valid plan from this seed, for tests")->check(wholeNumber())->group("Tests");
  app.add_option("--devices", o.devices, "with --random: number of devices")->group("Tests");
}

/// Finishes a plan that was read: devices it does not list get no work; costs and memory come from the cluster.
std::optional<step::Plan> readPlan(const std::string &path, const LoadedModel &model, const planning::Cluster *cluster, std::string &error) {
  std::optional<step::Plan> plan = step::readPlanFile(path, model.summary, error);
  if (!plan)
    return std::nullopt;
  if (!model.summary.content_hash().empty() && !plan->model.empty() && plan->model != model.summary.content_hash()) {
    error = path + ": was made for another model (" + plan->model + "; this one is " + model.summary.content_hash() + ")";
    return std::nullopt;
  }
  if ((cluster && !planning::applyCluster(*plan, *cluster, productType(model.summary), error)) || !step::validatePlan(*plan, model.summary, error)) {
    error = path + ": " + error;
    return std::nullopt;
  }
  return plan;
}

/// A cluster of what a plan says about its devices, for plans that stand alone.
planning::Cluster clusterOf(const step::Plan &plan) {
  planning::Cluster cluster;
  cluster.name = "plan";
  cluster.topology.add_sites()->mutable_fabric()->set_latency(plan.interNode.latency);
  for (const step::PlanDevice &device : plan.devices) {
    auto node = std::find_if(cluster.nodes.begin(), cluster.nodes.end(), [&](const planning::ClusterNode &n) { return n.name == device.node; });
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
    std::fill(std::begin(described.speed), std::end(described.speed), device.speed > 0 ? device.speed : 1e9);
    described.memory = device.memory;
    cluster.devices.push_back(described);
    cluster.topology.add_node_of_device(described.node);
  }
  return cluster;
}

/// One line that is written over while the search runs.
void showProgress(uint32_t tried, uint32_t budget, double best) {
  fprintf(stderr, "\r  search: %u of %u candidates, best step %.4g s   ", tried, budget, best);
  fflush(stderr);
}

int compare(const Options &o, const planning::Problem &problem, const LoadedModel &model, const planning::Cluster *cluster) {
  std::vector<planning::Report> reports;
  for (const std::string &path : o.compare) {
    std::string error;
    std::optional<step::Plan> plan = readPlan(path, model, cluster, error);
    std::optional<planning::Report> report = plan ? planning::makeReport(problem, *plan, error) : std::nullopt;
    if (!report)
      return fail(plan ? path + ": " + error : error);
    reports.push_back(std::move(*report));
  }
  std::cout << planning::compareReports(reports[0], o.compare[0], reports[1], o.compare[1]);
  return 0;
}

/// The plan of another system's planner.
std::optional<step::Plan> planAs(const planning::Baseline &baseline, const planning::Problem &problem, std::string &error) {
  std::optional<planning::Layout> layout = baseline.plan(problem, error);
  return layout ? std::optional<step::Plan>(planning::makePlan(problem, *layout)) : std::nullopt;
}

/// Ours and every other planner's, side by side.
int compareAll(const planning::Problem &problem, const planning::SearchOptions &search) {
  std::vector<planning::PlannerOutcome> outcomes(1);
  outcomes[0].name = "zorse";
  if (std::optional<planning::SearchResult> ours = planning::searchPlan(problem, search, outcomes[0].why))
    outcomes[0].step = ours->evaluation.step;
  for (const planning::Baseline &baseline : planning::baselines()) {
    planning::PlannerOutcome outcome{baseline.name, baseline.title, 0, ""};
    std::optional<step::Plan> plan = planAs(baseline, problem, outcome.why);
    if (std::optional<planning::Evaluation> evaluation = plan ? planning::evaluate(problem, *plan, outcome.why) : std::nullopt)
      outcome.step = evaluation->step;
    outcomes.push_back(std::move(outcome));
  }
  bool any = std::any_of(outcomes.begin(), outcomes.end(), [](const auto &o) { return o.step > 0; });
  if (search.progress)
    fputs("\r\x1b[K", stderr);
  std::cout << planning::printOutcomes(std::move(outcomes), problem.batch * samplesPerRow(problem.summary),
                                       planning::tokensPerSample(problem.summary));
  return any ? 0 : fail("no planner has a plan");
}

int run(Options &o) {
  std::string error;
  std::optional<planning::Cluster> cluster;
  if (!o.cluster.empty())
    cluster = planning::readClusterFile(o.cluster, error);
  if (!o.cluster.empty() && !cluster)
    return fail(error);
  std::optional<planning::Profile> profile;
  if (!o.profile.empty())
    profile = planning::readProfileFile(o.profile, error);
  if (!o.profile.empty() && !profile)
    return fail(error);
  if (!o.plan.empty()) {
    std::optional<step::PlanHead> head = step::readPlanHead(o.plan, error);
    if (!head)
      return fail(error);
    if (o.batch > 0 && head->batch != o.batch)
      return fail(step::otherBatch(o.plan, head->batch, o.batch));
  }
  const std::string path = o.model.empty() ? o.summary : o.model;
  if (path.empty() == o.shape.empty())
    return fail("expects one model: an ONNX file, a bundle, a table of layers, a summary, or --shape. --help lists the options");
  o.compile.quiet = o.quiet;
  o.compile.weights = pipelines::Weights::Later; // planning asks for shapes alone
  o.compile.cluster = o.cluster;                 // and for bodies of every architecture in the cluster
  std::optional<LoadedModel> model =
      o.shape.empty() ? loadModel(path, o.compile, error) : shapeModel(o.shape, o.compile.sequence, cluster ? &*cluster : nullptr, error);
  if (!model)
    return fail(error);
  std::vector<std::string> assumptions;
  if (cluster) {
    std::optional<std::vector<std::string>> assumed = planning::adaptToPrecision(*cluster, precisionOf(model->summary), error);
    if (!assumed)
      return fail(error);
    assumptions = std::move(*assumed);
  }
  if (model->layers) {
    assumptions.insert(assumptions.end(), model->layers->assumptions.begin(), model->layers->assumptions.end());
    planning::Profile own = model->layers->profile;
    if (profile)
      planning::mergeProfile(own, std::move(*profile));
    profile = std::move(own);
    if (cluster && !planning::checkLayerTimes(*model->layers, *cluster, *profile, error))
      return fail(path + ": " + error);
  }
  if (profile && cluster)
    for (auto &lines : {planning::limitMemory(*profile, *cluster), planning::raiseWorkspace(*profile, *cluster, model->summary)})
      assumptions.insert(assumptions.end(), lines.begin(), lines.end());
  const bundle::ModelSummary &summary = model->summary;
  if (o.batch % samplesPerRow(summary) != 0)
    return fail(step::brokenGroups(o.batch, samplesPerRow(summary)));
  o.batch /= samplesPerRow(summary); // from here on in rows

  // A plan that is given may stand alone; to choose one takes a cluster.
  std::optional<step::Plan> plan;
  if (!o.plan.empty()) {
    if (!(plan = readPlan(o.plan, *model, cluster ? &*cluster : nullptr, error)))
      return fail(error);
    if (o.batch > 0 && o.batch != plan->batch)
      return fail(step::otherBatch(o.plan, plan->batch * plan->samplesPerRow, o.batch * plan->samplesPerRow));
  } else if (o.random >= 0) {
    if (o.devices < 1 || o.devices > 4096 || o.batch < 1)
      return fail("--random expects --devices (1 to 4096) and --batch of at least 1");
    plan = step::randomPlan(summary, o.batch, static_cast<uint32_t>(o.devices), static_cast<uint64_t>(o.random));
  } else if (!cluster) {
    return fail("--cluster is missing: the devices to plan for (docs/cluster.md)");
  } else if (o.batch < 1 && o.compare.empty()) {
    return fail("--batch is missing: the samples per step, at least 1");
  }
  if (!cluster)
    cluster = clusterOf(*plan);

  std::optional<planning::CostModel> costs = planning::CostModel::make(summary, *cluster, profile ? &*profile : nullptr, {}, error);
  if (!costs)
    return fail(error);
  const bundle::BodyLibrary *bodies = model->bodies ? &*model->bodies : nullptr;
  planning::Problem problem{summary, *cluster, *costs, plan ? plan->batch : o.batch, bodies};
  problem.profile = profile ? &*profile : nullptr;
  problem.assumptions = assumptions;
  problem.blocking = o.communication == "blocking";
  if (plan && !o.communication.empty())
    plan->blocking = problem.blocking;
  if (!o.compare.empty())
    return compare(o, problem, *model, &*cluster);

  planning::SearchOptions search = o.search;
  search.objective = o.objective == "cost" ? planning::Objective::CostPerSample : planning::Objective::Throughput;
  if (!o.schedule.empty())
    search.schedule = step::findSchedule(o.schedule)->kind;
  if (!o.split.empty())
    search.splitBackward = o.split == "yes";
  for (const std::string &name : o.exclude) {
    auto it = std::find_if(cluster->devices.begin(), cluster->devices.end(), [&](const planning::ClusterDevice &d) { return d.name == name; });
    if (it == cluster->devices.end())
      return fail("--exclude: the cluster has no device '" + name + "'");
    search.excluded.push_back(static_cast<uint32_t>(it - cluster->devices.begin()));
  }
  const bool progress = !o.quiet && isatty(2);
  if (progress)
    search.progress = showProgress;

  std::string found;
  if (!plan && o.planner == "all")
    return compareAll(problem, search);
  if (!plan && o.planner != "zorse") {
    const planning::Baseline &baseline = *planning::findBaseline(o.planner);
    if (!(plan = planAs(baseline, problem, error)))
      return fail(error);
    found = std::string("by ") + baseline.title;
  } else if (!plan) {
    std::optional<planning::SearchResult> result = planning::searchPlan(problem, search, error);
    if (progress)
      fputs("\r\x1b[K", stderr);
    if (!result)
      return fail(error);
    plan = std::move(result->plan);
    found = "best of " + std::to_string(result->tried) + " candidates";
  }
  if (!o.output.empty())
    if (runtime::Status status = runtime::writeOutput(o.output, step::writePlan(*plan, summary)); status.failed())
      return fail(status.message());
  if (o.quiet && o.html.empty() && o.json.empty() && !o.explain)
    return 0;

  step::StepGraph graph;
  std::optional<planning::Report> report = planning::makeReport(problem, *plan, error, &graph);
  if (!report)
    return fail(o.plan.empty() ? error : o.plan + ": " + error);
  std::vector<planning::Reason> reasons;
  if (o.explain || !o.html.empty()) {
    planning::PlanAgain again = [&](const planning::Cluster &other) -> std::optional<planning::Replanned> {
      std::string ignored;
      std::optional<planning::CostModel> otherCosts = planning::CostModel::make(summary, other, problem.profile, {}, ignored);
      if (!otherCosts)
        return std::nullopt;
      planning::Problem changed{summary, other, *otherCosts, problem.batch, bodies};
      changed.profile = problem.profile;
      planning::SearchOptions quick = search;
      quick.progress = nullptr;
      quick.excluded.clear();
      std::optional<planning::SearchResult> result = planning::searchPlan(changed, quick, ignored);
      return result ? std::optional(planning::Replanned{result->evaluation.step, result->price}) : std::nullopt;
    };
    reasons = planning::explain(problem, *plan, *report, search.excluded.empty() ? again : planning::PlanAgain(),
                                search.objective == planning::Objective::CostPerSample);
  }
  if (!o.quiet) {
    std::cout << planning::drawPlan(*plan, summary.units_size()) << "\n" << planning::printReport(*report);
    if (!found.empty())
      std::cout << "found           " << found << "\n";
  }
  if (o.explain)
    std::cout << "\nWhy, and what would change it\n" << planning::printReasons(reasons);
  if (!o.html.empty())
    if (runtime::Status status = runtime::writeOutput(o.html, planning::writeReportPage(*report, *plan, graph, reasons)); status.failed())
      return fail(status.message());
  if (!o.json.empty())
    if (runtime::Status status = runtime::writeOutput(o.json, planning::writeReportJson(*report)); status.failed())
      return fail(status.message());

  // A plan that does not fit is described above, and still an error.
  std::string lacking;
  for (const auto &device : report->devices)
    if (device.available && device.memory > device.available)
      lacking += (lacking.empty() ? "" : ", ") + device.name + " (" + step::showBytes(double(device.memory - device.available)) + ")";
  return lacking.empty() ? 0 : fail("the plan does not fit: memory is missing on " + lacking);
}

} // namespace

static int runTool(int argc, char **argv) {
  zorse::runtime::openStandardStreams();
  CLI::App app("Chooses a plan for a model on a cluster (or reads one), and shows who does what, how fast, in how much memory, and why.\n"
               "  zorse-plan model.onnx --cluster cluster.yaml --batch 64 --seq 512 -o plan.json --html plan.html\n"
               "  zorse-plan --shape llama-7b --seq 4096 --cluster cluster.yaml --batch 256\n");
  Options o;
  addOptions(app, o);
  ModelFlags model;
  model.addTo(app, o.compile);
  TrainingFlags training;
  training.addStateTo(app);
  if (std::optional<int> done = parseFlags(app, argc, argv, "zorse-plan"))
    return *done;
  if (runtime::Status status = runtime::checkOverwrites(
          {{"the model", o.model}, {"--summary", o.summary}, {"--cluster", o.cluster}, {"--profile", o.profile}, {"--plan", o.plan}},
          {{"--output", o.output}, {"--html", o.html}, {"--json", o.json}});
      status.failed())
    return fail(status.message());
  for (auto [option, path] : {std::make_pair("--output", &o.output), {"--html", &o.html}, {"--json", &o.json}})
    if (!path->empty())
      if (runtime::Status status = runtime::checkWritable(*path); status.failed())
        return fail(std::string(option) + ": " + status.message());
  std::string error;
  o.compile.optimizerGiven = app.count("--optimizer") > 0 || app.count("--momentum") > 0;
  if (!model.resolve(o.compile, error) || !training.resolve(o.compile.training, error))
    return fail(error);
  if (const int64_t group = o.compile.batchNormRows; group > 0 && o.batch % group != 0)
    return fail(step::brokenGroups(o.batch, group));
  return run(o);
}

int main(int argc, char **argv) { return zorse::runOnDeepStack(runTool, argc, argv); }
