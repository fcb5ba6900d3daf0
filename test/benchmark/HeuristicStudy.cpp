// Measures the loss without each heuristic of the search (listed in Heuristics.cpp;
// docs/internals/search.md): the ratio of the step time of the plan found without it to that of the
// plan found with all heuristics, for the same problem and seed.
//
//     heuristic-study [--only=NAME,NAME] [--clusters=abcdef] [--models=7b] [--small=24] [--seeds=5]
//
// The problems are Llama shapes on the clusters of models/clusters, as in bound-table, and random
// small instances, as in compare-optima. Prints Markdown, each row when it is ready: the mean loss
// on every cluster, mean and worst loss on all clusters and on small instances, and the number of
// plans that are no longer found. A dash marks heuristics that a search never reaches. The first
// row omits no heuristic but changes the seed and shows random variation.
#include "BenchmarkOptions.h"
#include "Heuristics.h"
#include "Instances.h"
#include "LlamaOnClusters.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <map>
#include <sstream>

using namespace zorse;
using namespace zorse::planning;

namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<std::string> split(const std::string &text) {
  std::vector<std::string> list;
  std::stringstream stream(text);
  for (std::string one; std::getline(stream, one, ',');)
    list.push_back(one);
  return list;
}

/// A problem and a seed, and the result with all heuristics.
struct Case {
  char group; ///< the cluster's letter, or kSmall
  const Problem *problem;
  uint64_t seed;
  double step = 0;             ///< seconds; 0: nothing fits
  std::vector<bool> used = {}; ///< heuristics that this search reaches
};
constexpr char kSmall = 's';

class Study {
public:
  void addCluster(const ClusterSetting &setting, const std::string &model, uint64_t seeds) {
    shapes.push_back(llamaOnCluster(setting, model));
    problems.push_back(std::make_unique<Problem>(shapes.back()->problem()));
    addCases(setting.letter, *problems.back(), seeds);
  }
  void addSmall(uint64_t instance, uint64_t seeds) {
    instances.push_back(optimality::makeInstance(instance));
    addCases(kSmall, *instances.back()->problem, seeds);
  }

  /// Searches with all heuristics.
  void begin() {
    const double start = seconds();
    for (Case &one : cases)
      one.step = stepWithout(heuristicNames().size(), one, &one.used);
    std::fprintf(stderr, "%zu searches with all heuristics: %.0f s\n", cases.size(),
                 seconds() - start);
  }

  void printHead() const {
    std::printf("| without |");
    for (char group : groups())
      std::printf(" %c |", std::toupper(group));
    std::printf(" mean | worst | small | worst of these | no plan |\n|---|");
    for (size_t i = 0; i < groups().size() + 5; ++i)
      std::printf("---|");
    std::printf("\n");
  }

  void printRow(size_t heuristic) const {
    const double start = seconds();
    std::map<char, Losses> ofGroup;
    Losses ofClusters;
    int lost = 0;
    for (const Case &one : cases) {
      if (one.step <= 0)
        continue;
      const bool used = one.used[heuristic];
      const double step = used ? stepWithout(heuristic, one, nullptr) : one.step;
      if (step <= 0) {
        ++lost;
        continue;
      }
      ofGroup[one.group].add(step / one.step - 1, used);
      if (one.group != kSmall)
        ofClusters.add(step / one.step - 1, used);
    }
    std::printf("| %s |", heuristicNames()[heuristic].c_str());
    for (char group : groups())
      std::printf(" %s |", ofGroup[group].showMean().c_str());
    std::printf(" %s | %s | %s | %s | %d |\n", ofClusters.showMean().c_str(),
                ofClusters.showWorst().c_str(), ofGroup[kSmall].showMean().c_str(),
                ofGroup[kSmall].showWorst().c_str(), lost);
    std::fflush(stdout);
    std::fprintf(stderr, "%s: %.0f s\n", heuristicNames()[heuristic].c_str(), seconds() - start);
  }

private:
  class Losses {
  public:
    void add(double loss, bool wasUsed) {
      sum += loss;
      worst = std::max(worst, loss);
      ++count;
      used |= wasUsed;
    }
    std::string showMean() const { return used ? show(sum / count) : "–"; }
    std::string showWorst() const { return used ? show(worst) : "–"; }

  private:
    static std::string show(double loss) {
      char text[32];
      std::snprintf(text, sizeof text, "%+.1f %%", 100 * loss);
      return text;
    }
    double sum = 0, worst = -1;
    int count = 0;
    bool used = false;
  };

  void addCases(char group, const Problem &problem, uint64_t seeds) {
    for (uint64_t seed = 1; seed <= seeds; ++seed)
      cases.push_back({group, &problem, seed});
  }

  std::string groups() const {
    std::string letters;
    for (const Case &one : cases)
      if (one.group != kSmall && letters.find(one.group) == std::string::npos)
        letters += one.group;
    return letters;
  }

  /// Seconds of the plan's step; 0: nothing fits.
  static double stepWithout(size_t heuristic, const Case &one, std::vector<bool> *used) {
    SearchOptions options;
    options.seed = one.seed;
    options.memoryHints = false;
    Trial trial = searchWithout(heuristic, *one.problem, options);
    if (used)
      *used = std::move(trial.used);
    return trial.result ? trial.result->evaluation.step : 0;
  }

  std::vector<std::unique_ptr<LlamaOnCluster>> shapes;
  std::vector<std::unique_ptr<Problem>> problems;
  std::vector<std::unique_ptr<optimality::Instance>> instances;
  std::vector<Case> cases;
};

} // namespace

int main(int argc, char **argv) {
  std::map<std::string, std::string> options = {
      {"only", ""}, {"clusters", "abcdef"}, {"models", "7b"}, {"small", "24"}, {"seeds", "5"}};
  readOptions(argc, argv, options);
  const std::vector<std::string> only = split(options["only"]), &names = heuristicNames();
  for (const std::string &name : only)
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      std::fprintf(stderr, "no heuristic '%s'; known are:", name.c_str());
      for (const std::string &known : names)
        std::fprintf(stderr, " %s", known.c_str());
      std::fprintf(stderr, "\n");
      return 2;
    }
  const uint64_t seeds = std::strtoull(options["seeds"].c_str(), nullptr, 10),
                 small = std::strtoull(options["small"].c_str(), nullptr, 10);
  Study study;
  for (const ClusterSetting &setting : kClusterSettings)
    if (options["clusters"].find(setting.letter) != std::string::npos)
      for (const std::string &model : split(options["models"]))
        study.addCluster(setting, model, seeds);
  for (uint64_t instance = 0; instance < small; ++instance)
    study.addSmall(instance, seeds);
  study.begin();
  study.printHead();
  for (size_t heuristic = 0; heuristic < names.size(); ++heuristic)
    if (only.empty() || std::find(only.begin(), only.end(), names[heuristic]) != only.end())
      study.printRow(heuristic);
  return 0;
}
