// Compares estimates of the initial solutions of the search with simulation. For the best initial
// solutions of a model on a cluster, prints the ratio of the bound to the estimate, to the busiest
// device and to the step, the missing memory, and the stages.
//
//     seed-study --cluster=FILE [--model=llama-7b] [--sequence=N] [--seeds=N] [--pipeline-stages=1]
//                [--on=FILE,FILE]
//
// --on: evaluates the same layouts also on clusters that differ only in links, to find the
// expensive links.
#include "Search/Candidates.h"

#include "DescribeStrategy.h"

#include "LlamaShape.h"
#include "zorse/Planning/LowerBound.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>

using namespace zorse;
using namespace zorse::planning;

int main(int argc, char **argv) {
  std::map<std::string, std::string> options = {{"cluster", ""},      {"model", "llama-7b"},
                                                {"sequence", "2048"}, {"seeds", "20"},
                                                {"stages", "0"},      {"on", ""}};
  for (int i = 1; i < argc; ++i) {
    const char *equals = std::strchr(argv[i], '=');
    std::string name = equals ? std::string(argv[i] + 2, static_cast<size_t>(equals - argv[i] - 2))
                              : "";
    if (!options.count(name)) {
      std::fprintf(stderr, "unknown option '%s'\n", argv[i]);
      return 2;
    }
    options[name] = equals + 1;
  }
  auto cluster = readClusterFile(options["cluster"]);
  auto shape = findLlamaShape(options["model"]);
  if (cluster.failed() || !shape) {
    std::fprintf(stderr, "%s\n", cluster.failed() ? cluster.message().c_str() : "unknown model");
    return 2;
  }
  shape->sequence = std::atol(options["sequence"].c_str());
  shape->computeType = bundle::F16;
  auto summary = makeSummary(*shape);
  auto costs = CostModel::make(*summary, *cluster, nullptr, {});
  Problem problem{*summary, *cluster, *costs, (1 << 20) / shape->sequence};
  const double bound = lowerBound(problem);
  SearchOptions search;
  SearchContext context(problem, search);
  auto begin = std::chrono::steady_clock::now();
  std::vector<Candidate> seeds = makeInitialSolutions(context);
  double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("bound %.3f s; %zu seeds in %.2f s\n", bound, seeds.size(), took);
  size_t max =
      std::min<size_t>(seeds.size(), static_cast<size_t>(std::atol(options["seeds"].c_str())));
  std::vector<step::Schedule> schedules = scheduleChoices(context, false);
  StrategySimulator &simulator = context.simulator(0);
  struct Other {
    Cluster cluster;
    std::optional<CostModel> costs;
    std::optional<Problem> problem;
    std::optional<StrategySimulator> simulator;
  };
  std::vector<std::unique_ptr<Other>> elsewhere;
  std::stringstream files(options["on"]);
  for (std::string file; std::getline(files, file, ',');) {
    auto other = std::make_unique<Other>();
    auto read = readClusterFile(file);
    if (read.failed()) {
      std::fprintf(stderr, "%s\n", read.message().c_str());
      return 2;
    }
    other->cluster = *read;
    other->costs = std::move(*CostModel::make(*summary, other->cluster, nullptr, {}));
    other->problem.emplace(Problem{*summary, other->cluster, *other->costs, problem.batch});
    other->simulator.emplace(*other->problem);
    elsewhere.push_back(std::move(other));
  }
  double pairs = 0, agree = 0;
  std::vector<std::pair<double, double>> all;
  for (size_t i = 0; i < max; ++i) {
    Strategy strategy = seeds[i].strategy;
    strategy.schedule = schedules.front();
    auto start = std::chrono::steady_clock::now();
    StrategySimulator::Result result = simulator.run(strategy);
    double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    double missing = context.missingMemory(result.memory),
           busiest = *std::max_element(result.busy.begin(), result.busy.end());
    all.push_back({seeds[i].estimate, result.step});
    std::string others;
    for (size_t s : {1u, 3u, 11u, 12u})
      if (s < schedules.size()) {
        strategy.schedule = schedules[s];
        const auto &other = simulator.run(strategy);
        char text[40];
        std::snprintf(text, sizeof text, " %.3f%s", bound / other.step,
                      other.shortfallBytes ? "!" : "");
        others += text;
      }
    for (auto &other : elsewhere) {
      char text[40];
      strategy.schedule = schedules[1];
      std::snprintf(text, sizeof text, " on %.3f", bound / other->simulator->run(strategy).step);
      others += text;
    }
    std::printf("%3zu: %zu pipelines, estimate %.3f busy %.3f step %.3f missing %.2f (others%s) "
                "room %.2f, %u tasks %.0f ms\n",
                i, seeds[i].strategy.pipelines.size(), bound / seeds[i].estimate, bound / busiest,
                bound / result.step, missing, others.c_str(), seeds[i].inFlight, result.tasks,
                seconds * 1e3);
    if (options["stages"] == "1")
      std::fputs(
          describeStrategy(problem, seeds[i].strategy, result.step, result.busy, result.memory)
              .c_str(),
          stdout);
  }
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t k = i + 1; k < all.size(); ++k)
      if (all[i].first != all[k].first) {
        pairs += 1;
        agree += (all[i].first < all[k].first) == (all[i].second < all[k].second);
      }
  std::printf("%.0f %% of pairs ranked equally\n", pairs > 0 ? 100 * agree / pairs : 100);
  return 0;
}
