#include "Options.h"

#include "ModelFlags.h"
#include "Numbers.h"

#include "zorse/Baselines/Baselines.h"
#include "zorse/Step/Schedules.h"

#include <filesystem>

using namespace zorse;

namespace {

/// Adds the options that restrict or direct the search for a plan.
void addSearchOptions(CLI::App &app, plan::Options &o) {
  const char *search = "Search";
  app.add_option("--objective", o.objective,
                 "search objective: throughput (default) or cost (lowest price per token)")
      ->group(search)
      ->check(CLI::IsMember({"throughput", "cost"}));
  app.add_option("--min-throughput", o.search.minThroughput,
                 "with --objective=cost: minimum throughput in samples/s")
      ->group(search);
  app.add_option("--max-price", o.search.maxPrice, "maximum price per hour of the devices in use")
      ->group(search);
  app.add_option("--pipeline-stages", o.search.stages,
                 "number of pipeline stages (default: chosen)")
      ->group(search);
  app.add_option("--num-pipelines", o.search.pipelines, "number of pipelines (default: chosen)")
      ->group(search);
  app.add_option("--tensor-parallel-size", o.maxGroup,
                 "maximum number of devices of a node that divide units among them (tensor "
                 "parallelism), where that is faster (default: 1)")
      ->check(CLI::Range(1, 64))
      ->group(search);
  app.add_option("--max-micro-batch-size", o.search.maxMicroBatchSize,
                 "maximum micro-batch size (default: chosen)")
      ->group(search);
  std::vector<std::string> schedules;
  for (step::ScheduleKind kind : planning::searchedSchedules())
    schedules.push_back(step::scheduleRule(kind).name);
  app.add_option("--pipeline-schedule", o.schedule, "pipeline schedule (default: chosen)")
      ->group(search)
      ->check(CLI::IsMember(schedules));
  app.add_option("--split-backward", o.split,
                 "whether weight gradients are separate tasks (split backward): yes or no "
                 "(default: chosen)")
      ->group(search)
      ->check(CLI::IsMember({"yes", "no"}));
  app.add_flag_function(
         "--overlap-comm,!--no-overlap-comm", [&o](int64_t count) { o.overlap = count > 0; },
         "whether devices compute while they send or receive (default: yes, or as in --plan)")
      ->group(search);
  app.add_flag(
         "--optimizer-in-backward", o.optimizerInBackward,
         "parameters are updated inside the backward, as soon as their gradients are reduced: "
         "a shorter step and less memory, without gradient clipping, skipped steps and loss "
         "scaling (default: after the backward, or as in --plan)")
      ->group(search);
  app.add_option("--send-protocol", o.sendProtocol,
                 "with --no-overlap-comm: whether a send waits until the receiver receives "
                 "(rendezvous) or not (eager, to predict other frameworks)")
      ->group(search)
      ->check(CLI::IsMember(
          std::vector<std::string>(step::kSendProtocols.begin(), step::kSendProtocols.end())));
  app.add_option("--exclude", o.exclude, "devices not to use, separated by commas")
      ->group(search)
      ->delimiter(',');
  app.add_option("--search-budget", o.search.candidates,
                 "search budget, in simulated candidates (default: depends on the problem size)")
      ->group(search);
  app.add_option("--search-seconds", o.search.seconds,
                 "time for improving first solutions, in seconds of one core: counted in simulated "
                 "instructions, so that the plan is the same on any machine (default: depends on "
                 "the problem size)")
      ->group(search)
      ->check(CLI::Range(0.01, 1e6))
      ->excludes("--search-budget");
  app.add_option("--seed", o.search.seed,
                 "random seed of the search; the same seed gives the same plan on any machine")
      ->check(wholeNumber())
      ->group(search);
  app.add_option("--num-threads", o.search.threads,
                 "search threads (default: all cores); the plan does not depend on their number")
      ->group(search);
  app.add_flag("!--no-memory-optimizations", o.search.memoryOptimizations,
               "use neither recomputation nor offload to the host, even if memory is insufficient")
      ->group(search);
}

} // namespace

static void addRentOptions(CLI::App &app, zorse::plan::Options &o) {
  const char *rent = "Renting";
  app.add_option("--compare-clusters", o.compareClusters,
                 "cluster files to compare: speed and price of the best plan on each, instead of "
                 "--cluster")
      ->group(rent)
      ->expected(1, 64)
      ->excludes(app.add_flag("--shop", o.shop,
                              "compare selections of the nodes of --cluster, whose prices they "
                              "have: which of them to rent")
                     ->group(rent));
  app.add_option("--total-tokens", o.amount,
                 "tokens (or samples, if a sample has none) of the whole training, for hours and "
                 "total prices")
      ->group(rent)
      ->check(zorse::finiteNumber());
  app.add_option("--max-hours", o.maxHours, "deadline of the whole training, in hours")
      ->group(rent)
      ->check(zorse::finiteNumber());
  app.add_option("--max-total-price", o.maxTotal, "budget of the whole training")
      ->group(rent)
      ->check(zorse::finiteNumber());
}

void zorse::plan::addOptions(CLI::App &app, Options &o) {
  app.add_option("model", o.model,
                 "ONNX file, bundle, table of layers (layers.json, docs/reference/layers-json.md) "
                 "or model summary (summary.pb)");
  app.add_option(
      "--model-shape", o.shape,
      "model dimensions instead of a model: a known model (llama-7b, llama3-8b, gpt2-xl, "
      "mixtral-8x7b, t5-base, vit-base, bert-large, ...), a config.json of transformers, "
      "or family= (llama, gpt, mixtral, bert, vit, t5), layers=, hidden=, ffn=, heads=, "
      "kv_heads=, vocabulary=, precision= (comma-separated)");
  app.add_option("--summary", o.summary, "same as a summary as the model")->group("");
  app.add_option(
      "--cluster", o.cluster,
      "cluster.yaml with sites, nodes, devices and links (docs/reference/cluster-yaml.md)");
  app.add_option(
      "--profile", o.profile,
      "profile with measured times, written by zorse-profile (docs/reference/profile-json.md)");
  app.add_option("--global-batch-size", o.batch, "samples per step");
  app.add_option(
      "--plan", o.plan,
      "plan.json to evaluate instead of searching for a plan (docs/reference/plan-json.md)");
  app.add_option("--near", o.near,
                 "plan.json or bundle of another cluster to adapt to --cluster in about a second: "
                 "devices with equal names are the same, lost and joined ones change the plan, and "
                 "little state moves");
  app.add_option("-o,--output", o.output, "output file for plan.json");
  app.add_option("--html", o.html,
                 "output file for an HTML report with timeline, memory, tiling and reasons");
  app.add_option("--json", o.json,
                 "output file for the report in JSON (docs/reference/report-json.md)");
  app.add_flag("--explain", o.explain,
               "explain what limits the plan, and the effect of one more device, faster links or "
               "more memory");
  app.add_option("--compare", o.compare, "compare two plan files")->expected(2);
  std::vector<std::string> planners = {"zorse", "all"};
  for (const planning::Baseline &baseline : planning::baselines())
    planners.push_back(baseline.name);
  app.add_option("--planner", o.planner,
                 "planner: zorse (default), a reimplementation of another system's planner "
                 "(docs/internals/baselines.md), or all: compare all "
                 "planners in a table")
      ->check(CLI::IsMember(planners));
  app.add_flag("--quiet", o.quiet, "print no tables and no progress");
  app.add_flag("--verbose", o.verbose,
               "print a row for every stage and device; by default equal ones share a row")
      ->excludes("--quiet");
  addGradientWire(app, o.compile);
  addSearchOptions(app, o);
  addRentOptions(app, o);
}

Status zorse::plan::checkNear(const Options &o) {
  if (o.near.empty())
    return Status::success();
  const auto both = [](const std::string &other, const std::string &why) {
    return userError("--near and " + other + " contradict each other: --near " + why +
                     "; leave one of them out");
  };
  if (!o.plan.empty())
    return both("--plan", "makes a plan, --plan evaluates one");
  if (o.planner != "zorse")
    return both("--planner=" + o.planner, "is done by Zorse's planner");
  if (o.shop)
    return both("--shop", "adapts a plan to one cluster");
  if (!o.compareClusters.empty())
    return both("--compare-clusters", "adapts a plan to one cluster");
  if (!o.compare.empty())
    return both("--compare", "makes a plan, --compare evaluates two");
  if (o.maxGroup > 1)
    return both("--tensor-parallel-size=" + std::to_string(o.maxGroup),
                "makes plans without groups of devices");
  if (o.search.candidates > 0)
    return both("--search-budget", "has a fixed budget");
  if (o.search.seconds > 0)
    return both("--search-seconds", "has a fixed budget");
  return Status::success();
}

std::string zorse::plan::nearPlanPath(const Options &o) {
  std::error_code failure;
  return std::filesystem::is_directory(o.near, failure) ? o.near + "/plan.json" : o.near;
}

Result<step::Communication> zorse::plan::communicationOf(const Options &o, const step::Plan *plan) {
  using step::Communication;
  const Communication planned = plan ? plan->communication : Communication::Overlapped;
  const bool overlap = o.overlap.value_or(planned == Communication::Overlapped);
  if (overlap && !o.sendProtocol.empty())
    return userError("--send-protocol applies to devices that do not compute while they send: give "
                     "--no-overlap-comm too");
  const bool eager = o.sendProtocol.empty() ? planned == Communication::Eager
                                            : o.sendProtocol == "eager";
  return overlap ? Communication::Overlapped
         : eager ? Communication::Eager
                 : Communication::Rendezvous;
}
