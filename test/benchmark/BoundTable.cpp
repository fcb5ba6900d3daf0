// Prints η and its factors for Llama shapes on the clusters of models/clusters, η of other
// planners, and the sensitivity of both to link speeds and efficiencies.
//
//     bound-table [--clusters=abcdef] [--models=7b,13b,33b,65b] [--others=1] [--sensitivity=1]
//                 [--candidates=N] [--seed=N] [--limits=1] [--layouts=1] [--wire=bf16]
//
// Prints Markdown, each row when it is ready. With --limits, fails if a cell is below this
// project's goal or below another planner.
#include "BenchmarkOptions.h"
#include "DescribeStrategy.h"
#include "LlamaOnClusters.h"

#include "zorse/Baselines/Baselines.h"
#include "zorse/Planning/LowerBound.h"
#include "zorse/Planning/Search.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <sstream>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// Minimum η that was set as a goal; 0: none.
double goal(char cluster, const std::string &model) {
  static const std::map<std::string, double> goals = {{"a7b", .91},  {"a13b", .91}, {"b7b", .87},
                                                      {"b13b", .87}, {"c13b", .76}, {"c33b", .76},
                                                      {"d7b", .72},  {"d13b", .72}};
  auto it = goals.find(cluster + model);
  return it == goals.end() ? 0 : it->second;
}

void scaleLinks(Cluster &cluster, double factor) {
  auto scale = [&](bundle::LinkSpec *link) {
    link->set_bandwidth(link->bandwidth() * factor);
    link->set_per_flow_bandwidth(link->per_flow_bandwidth() * factor);
  };
  for (auto &node : *cluster.topology.mutable_nodes()) {
    scale(node.mutable_port());
    scale(node.mutable_bus());
    scale(node.mutable_nic());
  }
  for (auto &site : *cluster.topology.mutable_sites()) {
    scale(site.mutable_fabric());
    scale(site.mutable_uplink());
  }
  scale(cluster.topology.mutable_between_sites());
  for (auto &pair : *cluster.topology.mutable_site_pairs())
    scale(pair.mutable_link());
}

void scaleSpeeds(Cluster &cluster, double factor) {
  for (ClusterDevice &device : cluster.devices)
    for (double &speed : device.flopsPerSecond)
      speed *= factor;
}

struct Outcome {
  std::optional<Efficiency> efficiency;
  std::string why;    ///< the reason if there is none
  double seconds = 0; ///< planning time
  std::string layout; ///< layout found by the search
};

Outcome judge(const Problem &problem, const Baseline *planner, uint32_t candidates, uint64_t seed) {
  Outcome outcome;
  auto start = std::chrono::steady_clock::now();
  std::optional<step::Plan> plan;
  if (planner) {
    if (Result<Strategy> strategy = planner->plan(problem); !strategy.failed())
      plan = makePlan(problem, *strategy);
    else
      outcome.why = strategy.message();
  } else {
    SearchOptions options;
    options.candidates = candidates;
    options.seed = seed;
    if (Result<SearchResult> result = searchPlan(problem, options); !result.failed()) {
      outcome.layout = describeStrategy(problem, result->strategy, result->evaluation.step,
                                        result->evaluation.busy, result->evaluation.memory);
      plan = std::move(result->plan);
    } else {
      outcome.why = result.message();
    }
  }
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!plan)
    return outcome;
  if (Result<Efficiency> found = efficiency(problem, *plan); !found.failed())
    outcome.efficiency = *found;
  else
    outcome.why = found.message();
  return outcome;
}

std::string firstLine(const std::string &text) { return text.substr(0, text.find('\n')); }

} // namespace

int main(int argc, char **argv) {
  std::map<std::string, std::string> options = {
      {"clusters", "abcdef"}, {"models", "7b,13b,33b,65b"},
      {"others", "1"},        {"sensitivity", "0"},
      {"candidates", "0"},    {"seed", "1"},
      {"limits", "0"},        {"layouts", "0"},
      {"wire", "f32"}};
  readOptions(argc, argv, options);
  const uint32_t candidates =
      static_cast<uint32_t>(std::strtoul(options["candidates"].c_str(), nullptr, 10));
  const uint64_t seed = std::strtoull(options["seed"].c_str(), nullptr, 10);
  const bool others = options["others"] == "1";
  const Result<step::GradientWire> wire = step::gradientWireNamed(options["wire"]);
  if (wire.failed()) {
    std::fprintf(stderr, "--wire: %s\n", wire.message().c_str());
    return 2;
  }

  std::printf("| cluster | model | η | with links | idle | kernel | balance | recompute | bubble | "
              "exposed | "
              "step, s | tokens/s | planned in, s |");
  for (const Baseline &b : baselines())
    if (others)
      std::printf(" %s |", b.title);
  std::printf("\n|---|---|---|---|---|---|---|---|---|---|---|---|---|%s\n",
              others ? "---|---|---|---|---|" : "");
  int missed = 0, beaten = 0, cells = 0, infeasible = 0;
  std::string sensitivity;
  for (const ClusterSetting &setting : kClusterSettings) {
    if (options["clusters"].find(setting.letter) == std::string::npos)
      continue;
    std::stringstream models(options["models"]);
    for (std::string model; std::getline(models, model, ',');) {
      const auto made = llamaOnCluster(setting, model);
      Problem problem = made->problem();
      problem.gradientWire = *wire;
      Outcome own = judge(problem, nullptr, candidates, seed);
      ++cells;
      double best = 0;
      if (own.efficiency) {
        const Efficiency &e = *own.efficiency;
        std::printf("| %c | %s | **%.3f** | %.3f | %.3f | %.3f | %.3f | %.3f | %.3f | %.3f | %.2f "
                    "| %.0f | %.1f |",
                    std::toupper(setting.letter), model.c_str(), e.eta, e.bytes / e.step, e.idle,
                    e.kernel, e.balance, e.recompute, e.bubble, e.exposed, e.step,
                    kTokensPerStep / e.step, own.seconds);
        missed += e.eta < goal(setting.letter, model);
      } else {
        ++infeasible;
        missed += goal(setting.letter, model) > 0;
        std::printf("| %c | %s | none: %s | | | | | | | | | | %.1f |", std::toupper(setting.letter),
                    model.c_str(), firstLine(own.why).c_str(), own.seconds);
      }
      std::fflush(stdout);
      if (options["layouts"] == "1")
        std::fputs(own.layout.c_str(), stderr);
      for (const Baseline &b : baselines()) {
        if (!others)
          break;
        Outcome outcome = judge(problem, &b, 0, 0);
        if (outcome.efficiency) {
          std::printf(" %.3f |", outcome.efficiency->eta);
          best = std::max(best, outcome.efficiency->eta);
        } else {
          std::printf(" – |");
          std::fprintf(stderr, "%c %s %s\n", setting.letter, model.c_str(),
                       firstLine(outcome.why).c_str());
        }
        std::fflush(stdout);
      }
      std::printf("\n");
      beaten += best > (own.efficiency ? own.efficiency->eta : 0) * (1 + 1e-9);

      if (options["sensitivity"] != "1")
        continue;
      char line[64];
      std::snprintf(line, sizeof line, "| %c | %s | %.3f |", std::toupper(setting.letter),
                    model.c_str(), own.efficiency ? own.efficiency->eta : 0);
      sensitivity += line;
      struct Change {
        double links, speeds;
      };
      for (Change change : {Change{0.5, 1}, Change{2, 1}, Change{1, 0.8}, Change{1, 1.2}}) {
        Cluster changed = made->cluster;
        scaleLinks(changed, change.links);
        scaleSpeeds(changed, change.speeds);
        Result<CostModel> changedCosts = CostModel::make(made->summary, changed, nullptr, {});
        Problem changedProblem{made->summary, changed, *changedCosts, problem.batch};
        Outcome outcome = judge(changedProblem, nullptr, candidates, seed);
        std::snprintf(line, sizeof line, outcome.efficiency ? " %.3f |" : " – |",
                      outcome.efficiency ? outcome.efficiency->eta : 0);
        sensitivity += line;
      }
      sensitivity += "\n";
    }
  }
  if (!sensitivity.empty())
    std::printf("\n| cluster | model | η | links × ½ | links × 2 | speeds × 0.8 | speeds × 1.2 "
                "|\n|---|---|---|---|---|---|---|\n%s",
                sensitivity.c_str());
  std::printf(
      "\n%d cells, %d without a plan that fits; below their goal: %d; below another planner: %d\n",
      cells, infeasible, missed, beaten);
  return options["limits"] == "1" && (missed > 0 || beaten > 0) ? 1 : 0;
}
