// Compares plans with and without tensor parallelism for Llama shapes on the clusters of
// models/clusters.
//
//     groups-on-clusters [--clusters=abcdef] [--models=7b,13b,33b,65b] [--size=8] [--candidates=N]
//                        [--seed=N] [--least=1]
//
// Prints Markdown, each row when it is ready, and the geometric mean of the gains over all cells
// that have a plan without groups. Fails if a plan is slower than without groups, or if the mean
// is below --least.
#include "BenchmarkOptions.h"
#include "LlamaOnClusters.h"

#include "zorse/Planning/TensorParallel.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <sstream>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// Number of groups by shares, such as "4 × 1:1, 2 × 3:1".
std::string describeGroups(const step::Plan &plan) {
  std::map<std::string, int> counts;
  for (const auto &group : plan.groups) {
    std::string shares;
    double least = 1;
    for (double share : group.shares)
      least = std::min(least, share);
    char number[32];
    for (double share : group.shares) {
      std::snprintf(number, sizeof number, "%s%.3g", shares.empty() ? "" : ":", share / least);
      shares += number;
    }
    ++counts[shares];
  }
  std::string text;
  for (const auto &[shares, count] : counts)
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " × " + shares;
  return text.empty() ? "none" : text;
}

} // namespace

int main(int argc, char **argv) {
  std::map<std::string, std::string> options = {
      {"clusters", "abcdef"}, {"models", "7b,13b,33b,65b"},
      {"size", "8"},          {"candidates", "0"},
      {"seed", "1"},          {"least", "1"}};
  readOptions(argc, argv, options);
  auto number = [&](const char *name) { return std::strtoul(options[name].c_str(), nullptr, 10); };
  std::printf("| cluster | model | step, s | without groups, s | gain | groups | planned in, s |\n"
              "|---|---|---|---|---|---|---|\n");
  double logarithms = 0;
  int cells = 0, compared = 0, slower = 0, only = 0;
  for (const ClusterSetting &setting : kClusterSettings) {
    if (options["clusters"].find(setting.letter) == std::string::npos)
      continue;
    std::stringstream models(options["models"]);
    for (std::string name; std::getline(models, name, ',');) {
      const auto made = llamaOnCluster(setting, name);
      DivisibleLlama model(made->shape);
      SearchOptions search;
      search.candidates = static_cast<uint32_t>(number("candidates"));
      search.seed = number("seed");
      const auto start = std::chrono::steady_clock::now();
      const Result<GroupedResult> found =
          searchWithGroups(made->problem(), search, static_cast<uint32_t>(number("size")), model);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      ++cells;
      std::printf("| %c | %s | ", std::toupper(setting.letter), name.c_str());
      if (found.failed()) {
        std::printf("none | | | | %.1f |\n", seconds.count());
        continue;
      }
      const double step = found->best.evaluation.step;
      const std::string groups = describeGroups(found->best.plan);
      if (const std::optional<double> without = found->stepWithout) {
        const double gain = *without / step;
        std::printf("%.3f | %.3f | %.3f | %s | %.1f |\n", step, *without, gain, groups.c_str(),
                    seconds.count());
        logarithms += std::log(gain);
        slower += gain < 1 - 1e-9;
        ++compared;
      } else {
        std::printf("%.3f | none fits | | %s | %.1f |\n", step, groups.c_str(), seconds.count());
        ++only;
      }
      std::fflush(stdout);
    }
  }
  const double mean = compared ? std::exp(logarithms / compared) : 1;
  const double least = std::strtod(options["least"].c_str(), nullptr);
  std::printf("\n%d cells, %d of them only with groups; gain of %d cells, geometric mean: %.3f "
              "(at least %g); slower: %d\n",
              cells, only, compared, mean, least, slower);
  return slower > 0 || mean < least ? 1 : 0;
}
