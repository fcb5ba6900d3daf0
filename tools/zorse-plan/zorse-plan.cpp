// zorse-plan: chooses a plan for a model on a cluster and reports step time, memory and the
// reasons. Parses options; lib/Planning does the work.
#include "DeepStack.h"
#include "Inputs.h"
#include "ModelFlags.h"
#include "ParseFlags.h"
#include "Rent.h"
#include "TrainingFlags.h"

#include "zorse/Base/Format.h"
#include "zorse/Baselines/Baselines.h"
#include "zorse/Pipelines/DivisibleOnnx.h"
#include "zorse/Planning/Repair.h"
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
#include <map>
#include <unistd.h>

using namespace zorse;
using namespace zorse::plan;

namespace {

/// Returns the problem of a model that is divided.
planning::Problem dividedProblem(const planning::Problem &whole,
                                 const planning::DividedModel &model,
                                 const planning::CostModel &costs) {
  planning::Problem made =
      whole.of(model.summary, model.functions ? &*model.functions : nullptr, whole.cluster, costs);
  made.assumptions = whole.assumptions;
  return made;
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
  constexpr uint32_t kMax = 8;
  uint32_t size = planning::groupSizeThatFits(problem, quick, kMax, *model);
  for (uint32_t smaller : {2u, 4u})
    if (smaller < size && planning::groupSizeThatFits(problem, quick, smaller, *model) > 0)
      size = smaller;
  return size == 0 ? ""
                   : "\n--tensor-parallel-size=" + std::to_string(size) +
                         " would make it fit: devices of a node then divide units";
}

/// \param found  receives how the plan was chosen, for the report
/// \param search  receives the strategy that was found as a further start
Result<step::Plan> choosePlan(const std::string &planner, const planning::Problem &problem,
                              planning::SearchOptions &search, std::string &found) {
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
  search.starts.push_back(std::move(result->strategy));
  return std::move(result->plan);
}

/// Adapts the plan of --near.
Result<step::Plan> repair(const Options &o, const planning::Problem &problem,
                          planning::SearchOptions &search, std::string &found) {
  if (problem.summary.device_groups_size())
    return userError("the bundle's units are divided by the groups of its plan (tensor "
                     "parallelism), which --near cannot adapt: pass the ONNX file instead");
  Result<step::Plan> old = step::readPlanFile(nearPlanPath(o), problem.summary);
  if (old.failed())
    return old.error();
  Result<planning::SearchResult> result = planning::repairPlan(problem, *old, search);
  if (search.progress)
    fputs("\r\x1b[K", stderr);
  if (result.failed())
    return result.error();
  const planning::ClusterChange change =
      planning::findClusterChange(*old, problem.cluster, search.excluded);
  auto devices = [](size_t count) {
    return std::to_string(count) + (count == 1 ? " device" : " devices");
  };
  const uint64_t moved = planning::redistributionBytes(problem, *old, result->plan);
  found = "repaired from " + o.near + ": " + devices(change.lost.size()) + " lost, " +
          std::to_string(change.joined.size()) + " joined, " +
          showBytes(static_cast<double>(moved)) + " of state to move; best of " +
          std::to_string(result->tried) + " candidates";
  if (const std::string why = planning::whyNotRepaired(problem, *old); !why.empty())
    found += ", without the structure of the old plan: " + why;
  search.starts.push_back(std::move(result->strategy));
  return std::move(result->plan);
}

/// A problem without groups of devices, and how they could divide its model.
struct WholeProblem {
  const planning::Problem &problem;
  planning::DivisibleModel *divisible; ///< nullptr: groups cannot divide it
};

/// Returns, per device of `part`, its index in a larger cluster: that of the same name.
std::vector<uint32_t> devicesIn(const planning::Cluster &larger, const planning::Cluster &part) {
  std::map<std::string, uint32_t> index;
  for (uint32_t d = 0; d < larger.devices.size(); ++d)
    index[larger.devices[d].name] = d;
  std::vector<uint32_t> devices;
  devices.reserve(part.devices.size());
  for (const planning::ClusterDevice &device : part.devices)
    devices.push_back(index.at(device.name));
  return devices;
}

/// Returns what limits the plan, and the effect of other clusters. The search is repeated for
/// those from the strategies `search.starts`, briefly unless the plan was given, unless devices are
/// excluded; with groups if the plan has some.
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
    const planning::Problem changed = whole.on(other, *otherCosts);
    planning::SearchOptions quick = search;
    quick.progress = nullptr;
    quick.excluded.clear();
    quick.ranks = !given; // a search that starts from the best plan is short
    for (planning::Strategy &start : quick.starts)
      start = planning::withDevices(std::move(start), devicesIn(other, whole.cluster));
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
  if (Status status = checkNear(o); status.failed())
    return fail(status.message());
  if (!o.compareClusters.empty())
    return compareClusters(o);
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
  if (Status status = applyPlanOptions(o, problem, plan); status.failed())
    return fail(status.message());
  if (!o.compare.empty())
    return compare(o, problem, inputs.model);
  Result<planning::SearchOptions> search = searchOptions(o, *inputs.cluster);
  if (search.failed())
    return fail(search.message());
  if (o.shop)
    return shop(o, inputs, problem, *search);
  if (!plan && o.planner == "all")
    return compareAll(problem, *search);
  std::string found;
  planning::GroupedResult groups;
  if (!plan) {
    Result<step::Plan> chosen =
        !o.near.empty() ? repair(o, problem, *search, found)
        : o.maxGroup > 1 && o.planner == "zorse"
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
           {"--plan", o.plan},
           {"--near", o.near.empty() ? o.near : nearPlanPath(o)}},
          {{"--output", o.output}, {"--html", o.html}, {"--json", o.json}});
      status.failed())
    return fail(status.message());
  for (auto [option, path] :
       {std::make_pair("--output", &o.output), {"--html", &o.html}, {"--json", &o.json}})
    if (!path->empty())
      if (runtime::Status status = runtime::checkWritable(*path); status.failed())
        return fail(std::string(option) + ": " + status.message());
  o.precisionGiven = app.count("--precision") > 0;
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
