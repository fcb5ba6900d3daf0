// Measures the cost of less memory: plans a Llama shape without memory optimizations, then plans it
// for the same cluster with the memory of all devices limited to a fraction of the use of the
// fullest device in the first plan.
//
//     memory-trade [--clusters=ab] [--model=7b] [--less=40] [--limit=5] [--seed=1]
//
// `less`: reduction in percent of the fullest device's bytes. `limit`: maximum increase of the step
// time in percent; the program fails beyond it.
#include "BenchmarkOptions.h"
#include "LlamaOnClusters.h"

#include "zorse/Base/Format.h"
#include "zorse/Planning/Search.h"

#include <algorithm>
#include <cstdio>

using namespace zorse;
using namespace zorse::planning;

namespace {

std::optional<SearchResult> plan(const Problem &problem, bool optimizations, uint64_t seed) {
  SearchOptions options;
  options.memoryOptimizations = optimizations;
  options.seed = seed;
  Result<SearchResult> found = searchPlan(problem, options);
  if (found.failed())
    std::fprintf(stderr, "%s\n", found.message().c_str());
  return found.failed() ? std::nullopt : std::optional(std::move(*found));
}

uint64_t fullest(const SearchResult &result) {
  return *std::max_element(result.evaluation.memory.begin(), result.evaluation.memory.end());
}

/// "optimizer states on the hosts for 12 devices, activation recomputation for 3"
std::string optimizationsIn(const SearchResult &result) {
  std::map<std::string, size_t> devices;
  for (uint32_t d = 0; d < result.evaluation.busy.size(); ++d) {
    if (result.evaluation.busy[d] == 0)
      continue;
    const MemoryOptimization &optimization = result.strategy.memoryOptimizations.of(d);
    for (const std::string &what :
         {showActivations(optimization.activations), showState(optimization.state)})
      if (!what.empty())
        ++devices[what];
  }
  std::string text;
  for (const auto &[what, count] : devices)
    text += (text.empty() ? "" : ", ") + what + " for " + std::to_string(count) +
            (text.empty() && count > 1 ? " devices" : "");
  return text.empty() ? "no technique" : text;
}

} // namespace

int main(int argc, char **argv) {
  std::map<std::string, std::string> options = {
      {"clusters", "ab"}, {"model", "7b"}, {"less", "40"}, {"limit", "5"}, {"seed", "1"}};
  readOptions(argc, argv, options);
  const double less = std::stod(options["less"]) / 100, limit = std::stod(options["limit"]) / 100;
  const uint64_t seed = std::stoull(options["seed"]);
  double worst = 0;
  int failed = 0;
  for (const ClusterSetting &setting : kClusterSettings) {
    if (options["clusters"].find(setting.letter) == std::string::npos)
      continue;
    const auto made = llamaOnCluster(setting, options["model"]);
    const std::optional<SearchResult> before = plan(made->problem(), /*techniques=*/false, seed);
    if (!before)
      return 1;
    const uint64_t max = fullest(*before);
    Cluster smaller = made->cluster;
    for (ClusterDevice &device : smaller.devices)
      if (const auto left = static_cast<uint64_t>(static_cast<double>(max) * (1 - less));
          device.capacity() > left)
        device.memory = left + device.reservedMemory;
    Problem problem = made->problem();
    const Problem eased{problem.summary, smaller, problem.costs, problem.batch};
    const std::optional<SearchResult> after = plan(eased, /*techniques=*/true, seed);
    if (!after) {
      ++failed;
      continue;
    }
    const double longer = after->evaluation.step / before->evaluation.step - 1;
    worst = std::max(worst, longer);
    std::printf("%c, %s: the fullest device takes %s in a step of %.3f s; with %s at most %s in "
                "%.3f s: %+.1f %%\n",
                std::toupper(setting.letter), options["model"].c_str(),
                showBytes(double(max)).c_str(), before->evaluation.step,
                optimizationsIn(*after).c_str(), showBytes(double(fullest(*after))).c_str(),
                after->evaluation.step, 100 * longer);
    std::fflush(stdout);
  }
  std::printf("%.0f %% less memory: steps longer by at most %.1f %% (limit %.0f %%)%s\n",
              100 * less, 100 * worst, 100 * limit, failed ? "; on a cluster no plan fits" : "");
  return failed > 0 || worst > limit;
}
