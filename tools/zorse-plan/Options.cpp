#include "Options.h"

#include "Numbers.h"

#include "zorse/Baselines/Baselines.h"
#include "zorse/Step/Schedules.h"

using namespace zorse;

void zorse::plan::addOptions(CLI::App &app, Options &o) {
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
}
