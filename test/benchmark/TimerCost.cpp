// Cost of timing a layout: nanoseconds per task, over the best initial solutions of models on
// clusters.
//
//     timer-cost [--clusters=A.yaml,B.yaml] [--model=llama-7b] [--sequence=2048] [--seeds=4]
//                [--schedules=4]
#include "Layout/StrategySimulator.h"
#include "Search/Candidates.h"

#include "LlamaShape.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <sstream>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// CPU time of this thread, which other work on the machine affects less.
double cpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

/// Minimum time of several runs.
template <typename Run> double min(int repeats, const Run &run) {
  double best = INFINITY;
  for (int i = 0; i < repeats; ++i) {
    const double begin = cpuSeconds();
    run();
    best = std::min(best, cpuSeconds() - begin);
  }
  return best;
}

} // namespace

int main(int argc, char **argv) {
  std::map<std::string, std::string> options = {{"clusters", "models/clusters/a-4h100-16a100.yaml"},
                                                {"model", "llama-7b"},
                                                {"sequence", "2048"},
                                                {"seeds", "4"},
                                                {"schedules", "4"},
                                                {"repeats", "5"}};
  for (int i = 1; i < argc; ++i) {
    const char *equals = std::strchr(argv[i], '=');
    std::string name = equals ? std::string(argv[i] + 2, static_cast<size_t>(equals - argv[i] - 2))
                              : "";
    if (!options.count(name))
      return std::fprintf(stderr, "unknown option '%s'\n", argv[i]), 2;
    options[name] = equals + 1;
  }
  std::stringstream files(options["clusters"]);
  for (std::string file; std::getline(files, file, ',');) {
    auto cluster = readClusterFile(file);
    auto shape = findLlamaShape(options["model"]);
    if (cluster.failed() || !shape)
      return std::fprintf(stderr, "%s\n",
                          cluster.failed() ? cluster.message().c_str() : "unknown model"),
             2;
    shape->sequence = std::atol(options["sequence"].c_str());
    shape->computeType = bundle::F16;
    auto summary = makeSummary(*shape);
    auto costs = CostModel::make(*summary, *cluster, nullptr, {});
    Problem problem{*summary, *cluster, *costs, (1 << 20) / shape->sequence};
    SearchOptions search;
    SearchContext context(problem, search);
    std::vector<Candidate> seeds = makeInitialSolutions(context, false);
    std::vector<step::Schedule> schedules = scheduleChoices(context, false);
    StrategySimulator simulator(problem, 0);
    const int repeats = std::atoi(options["repeats"].c_str());
    double seconds = 0, tasks = 0;
    size_t layouts = 0;
    const size_t max = std::min<size_t>(seeds.size(), size_t(std::atol(options["seeds"].c_str())));
    for (size_t s = 0; s < max; ++s)
      for (size_t k = 0;
           k < schedules.size() && k < size_t(std::atol(options["schedules"].c_str())); ++k) {
        Strategy strategy = seeds[s].strategy;
        strategy.schedule =
            schedules[k * schedules.size() /
                      std::min<size_t>(schedules.size(),
                                       size_t(std::atol(options["schedules"].c_str())))];
        StrategySimulator::Result timed;
        seconds += min(repeats, [&] { timed = simulator.run(strategy); });
        tasks += timed.tasks;
        ++layouts;
      }
    std::printf("%s: %zu layouts, %.0f tasks each, %.0f ns a task\n", file.c_str(), layouts,
                tasks / double(layouts), 1e9 * seconds / tasks);
  }
  return 0;
}
