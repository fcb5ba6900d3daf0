// Compares plans laid out by hand with those of the search, under the same costs.
//
//     hand-made-plans [--layouts=LAYOUT;LAYOUT...] [--seed=N]
//     hand-made-plans --cluster=FILE --copies=8 [--model=llama-65b] [--tokens=N] [--seed=N]
//
// A layout reads "E 7b 4x(24x4V,8x4A)": cluster E, Llama 7B, four pipelines, each with 24 stages of
// four V100 and then eight stages of four A100. "+" joins pipelines of other forms; "@" takes nodes
// of the sites in turn. Cuts, micro-batch sizes, schedules and memory optimizations are the best of
// all that are tried, and cuts are then moved by single units. --copies searches a fraction of a
// cluster and repeats its plan. Prints Markdown; fails if a layout is more than 1 % faster than the
// plan of the search.
#include "Search/Candidates.h"

#include "BenchmarkOptions.h"
#include "LlamaOnClusters.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <sstream>

using namespace zorse;
using namespace zorse::planning;

namespace {

constexpr const char *kLayouts[] = {
    "F 7b 5x(32x4A)",
    "F 7b 10x(16x4A)",
    "F 7b 2x(20x16A)",
    "F 7b 4x(20x8A)",
    "F 7b @32x(5x4A)",
    "F 13b 2x(20x16A)",
    "F 33b 5x(32x4A)",
    "F 33b 5x(64x2A)",
    "F 65b 5x(32x4A)",
    "E 7b 4x(24x4V,8x4A)",
    "E 7b 8x(12x4V,4x4A)",
    "E 7b 16x(6x4V,2x4A)",
    "E 7b 4x(8x4A,24x4V)",
    "E 7b 8x(4x4A)+16x(6x4V)",
    "E 13b 4x(24x4V,8x4A)",
    "E 33b 8x(12x4V,4x4A)",
    "E 33b 4x(24x4V,8x4A)",
    "E 65b 4x(24x4V,8x4A)",
    "D 7b 1x(24x4V,8x4A)",
    "D 7b 2x(12x4V,4x4A)",
    "D 7b 4x(6x4V,2x4A)",
    "D 13b 2x(12x4V,4x4A)",
    "D 33b 1x(24x4V,8x4A)",
    "A 7b 1x(4x4A,1x4H)",
    "A 13b 2x(4x2A,1x2H)",
    "B 7b 1x(6x4T,4x4V,4x4G,1x8A)",
    "B 13b 1x(3x8T,2x8V,2x8G,1x8A)",
};

/// Stages of equal numbers of devices of one type.
struct StageKind {
  size_t stages = 0, devices = 0;
  char type = 0; ///< A: A100, V: V100, H: H100, T: T4, G: A10G
};
struct PipelineKind {
  size_t pipelines = 0;
  std::vector<StageKind> stages;
};
struct Layout {
  char cluster = 0;
  std::string model;
  bool sitesInTurn = false;
  std::vector<PipelineKind> pipelines;
};

[[noreturn]] void fail(const std::string &message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::exit(2);
}

Layout parse(const std::string &text) {
  Layout layout;
  std::istringstream in(text);
  std::string cluster, form;
  in >> cluster >> layout.model >> form;
  layout.cluster = static_cast<char>(std::tolower(cluster.empty() ? 0 : cluster[0]));
  layout.sitesInTurn = !form.empty() && form[0] == '@';
  std::istringstream kinds(form.substr(layout.sitesInTurn));
  for (std::string kind; std::getline(kinds, kind, '+');) {
    PipelineKind pipelines;
    const size_t open = kind.find("x(");
    if (open == std::string::npos || kind.back() != ')')
      fail("not a layout: " + text);
    pipelines.pipelines = std::strtoul(kind.c_str(), nullptr, 10);
    std::istringstream parts(kind.substr(open + 2, kind.size() - open - 3));
    for (std::string part; std::getline(parts, part, ',');) {
      StageKind stage;
      if (std::sscanf(part.c_str(), "%zux%zu%c", &stage.stages, &stage.devices, &stage.type) != 3)
        fail("not a layout: " + text);
      pipelines.stages.push_back(stage);
    }
    layout.pipelines.push_back(pipelines);
  }
  return layout;
}

char letterOf(const std::string &type) {
  static const std::map<std::string, char> letters = {
      {"A10G", 'G'}, {"T4", 'T'}, {"V1", 'V'}, {"H1", 'H'}, {"A1", 'A'}};
  for (const auto &[prefix, letter] : letters)
    if (type.rfind(prefix, 0) == 0 && (prefix != "A1" || type.rfind("A10G", 0) != 0))
      return letter;
  return '?';
}

/// Devices of each stage of each pipeline; devices are taken in the order of the cluster.
std::vector<std::vector<DeviceSet>> placeDevices(const SearchContext &context,
                                                 const Layout &layout) {
  std::map<char, std::vector<uint32_t>> free; // from the last one
  std::map<uint32_t, uint32_t> nodesSeen;     // per site
  std::vector<std::pair<uint64_t, uint32_t>> order;
  const auto &devices = context.problem.cluster.devices;
  uint32_t lastNode = UINT32_MAX, place = 0;
  for (uint32_t d = 0; d < devices.size(); ++d) {
    if (devices[d].node != lastNode)
      place = nodesSeen[context.model.siteOf(d)]++;
    lastNode = devices[d].node;
    order.emplace_back(layout.sitesInTurn ? place : 0, d);
  }
  std::sort(order.begin(), order.end());
  for (auto it = order.rbegin(); it != order.rend(); ++it)
    free[letterOf(devices[it->second].type)].push_back(it->second);
  std::vector<std::vector<DeviceSet>> pipelines;
  for (const PipelineKind &kind : layout.pipelines)
    for (size_t p = 0; p < kind.pipelines; ++p) {
      std::vector<DeviceSet> &stages = pipelines.emplace_back();
      for (const StageKind &stage : kind.stages)
        for (size_t s = 0; s < stage.stages; ++s) {
          DeviceSet &set = stages.emplace_back();
          for (size_t i = 0; i < stage.devices; ++i) {
            std::vector<uint32_t> &left = free[stage.type];
            if (left.empty())
              fail(std::string("too few devices of type ") + stage.type);
            set.devices.push_back(left.back());
            left.pop_back();
          }
        }
    }
  return pipelines;
}

double rateOf(const StageModel &model, const std::vector<DeviceSet> &stages) {
  double rate = 0;
  for (const DeviceSet &stage : stages)
    for (uint32_t d : stage.devices)
      rate += 1 / model.minPerSample(model.deviceTypeOf(d), 0, model.units());
  return rate;
}

/// Cuts such that no stage takes longer than it must, each with at least one unit; a stage takes
/// units until its time is reached.
std::vector<int32_t> equalCuts(const StageModel &model, const std::vector<DeviceSet> &stages,
                               size_t rows) {
  auto ends = [&](double limit) {
    std::vector<int32_t> result;
    int32_t begin = 0;
    for (size_t s = 0; s < stages.size(); ++s) {
      const auto after = static_cast<int32_t>(stages.size() - 1 - s);
      int32_t end = begin + 1;
      auto seconds = [&](int32_t to) {
        double rate = 0;
        for (uint32_t d : stages[s].devices)
          rate += 1 / model.cell(model.deviceTypeOf(d), rows, begin, to);
        return 1 / rate;
      };
      while (end + after < model.units() && seconds(end + 1) <= limit)
        ++end;
      result.push_back(end);
      begin = end;
    }
    return result;
  };
  double low = 0, high = model.cell(0, rows, 0, model.units()) * 100;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (ends(middle).back() >= model.units() ? high : low) = middle;
  }
  std::vector<int32_t> cuts = ends(high);
  cuts.back() = model.units();
  return cuts;
}

/// The best of what was tried for one layout.
class HandMade {
public:
  HandMade(SearchContext &context, const std::vector<std::vector<DeviceSet>> &stages)
      : context(context), stages(stages) {}

  std::optional<Strategy> find() {
    const StageModel &model = context.model;
    double total = 0;
    for (const auto &pipeline : stages)
      total += rateOf(model, pipeline);
    int64_t given = 0;
    double passed = 0;
    for (const auto &pipeline : stages) {
      passed += rateOf(model, pipeline);
      const auto until = std::llround(static_cast<double>(context.problem.batch) * passed / total);
      samples.push_back(until - given);
      given = until;
      if (samples.back() == 0)
        return std::nullopt;
    }
    for (size_t rows = 0; rows < model.rows().size() && model.rows()[rows] <= 16; ++rows)
      tryCuts(rows);
    if (best)
      improve();
    return best;
  }

private:
  void tryCuts(size_t rows) {
    const StageModel &model = context.model;
    Strategy strategy;
    for (size_t p = 0; p < stages.size(); ++p) {
      if (stages[p].size() > static_cast<size_t>(model.units()))
        return;
      const std::vector<int32_t> cuts = equalCuts(model, stages[p], rows);
      Pipeline pipeline{samples[p], {}};
      for (size_t s = 0; s < cuts.size(); ++s)
        pipeline.stages.push_back(
            makeStage(model, stages[p][s].devices, s ? cuts[s - 1] : 0, cuts[s], samples[p], rows));
      strategy.pipelines.push_back(std::move(pipeline));
    }
    trySchedules(strategy);
    Candidate candidate;
    candidate.strategy = strategy;
    for (size_t p = 0; p < stages.size(); ++p)
      if (!cutAgain(context.partitioner(0), model, stages[p], p, candidate))
        return;
    trySchedules(candidate.strategy);
  }

  void trySchedules(Strategy strategy) {
    std::vector<MemoryOptimizations> memory(1);
    for (step::Activations activations : {step::Activations::Keep, step::Activations::Recompute})
      for (bool reshard : {false, true}) {
        MemoryOptimizations one;
        one.defaultOptimization.activations = activations;
        one.reshardAfterForward = reshard;
        if (one.any())
          memory.push_back(one);
      }
    for (const MemoryOptimizations &optimizations : memory) {
      strategy.memoryOptimizations = optimizations;
      bool fits = false;
      for (const step::Schedule &schedule : scheduleChoices(context, true))
        for (ShardSizing state : {ShardSizing::Proportional, ShardSizing::Equal}) {
          strategy.schedule = schedule;
          strategy.state = state;
          fits |= consider(strategy);
        }
      if (fits) // memory optimizations cost time
        break;
    }
  }

  /// \returns whether it fits
  bool consider(const Strategy &strategy) {
    const StrategySimulator::Result &result = context.simulator(0).run(strategy);
    if (!result.ran || result.shortfallBytes > 0)
      return false;
    if (!best || result.step < step) {
      best = strategy;
      step = result.step;
    }
    return true;
  }

  /// Moves the same cut of all pipelines by one unit, while that helps.
  void improve() {
    for (bool again = true; again && moves < 300;) {
      again = false;
      for (size_t s = 0; s + 1 < best->pipelines.front().stages.size() && moves < 300; ++s)
        for (int32_t by : {-1, 1}) {
          Strategy moved = *best;
          if (!moveCut(moved, s, by))
            continue;
          ++moves;
          const double before = step;
          consider(moved);
          again |= step < before * (1 - 1e-4);
        }
    }
  }
  bool moveCut(Strategy &strategy, size_t s, int32_t by) const {
    for (Pipeline &pipeline : strategy.pipelines) {
      if (s + 1 >= pipeline.stages.size())
        continue;
      Stage &front = pipeline.stages[s], &behind = pipeline.stages[s + 1];
      front.unitEnd += by;
      behind.unitBegin += by;
      if (front.unitEnd <= front.unitBegin || behind.unitEnd <= behind.unitBegin ||
          !shareAgain(context.model, front, pipeline.samples) ||
          !shareAgain(context.model, behind, pipeline.samples))
        return false;
    }
    return true;
  }

  SearchContext &context;
  const std::vector<std::vector<DeviceSet>> &stages; ///< pipelines x stages
  std::vector<int64_t> samples;                      ///< per pipeline
  std::optional<Strategy> best;
  double step = 0;
  int moves = 0;
};

/// \returns seconds of the step, or nothing if the plan does not fit
std::optional<double> stepOf(const Problem &problem, const Strategy &strategy) {
  const Result<Evaluation> found = evaluate(problem, makePlan(problem, strategy));
  if (found.failed() || found->shortfallBytes > 0)
    return std::nullopt;
  return found->step;
}

/// Compares all layouts. \returns whether none is more than 1 % faster than the search
bool compareLayouts(const std::string &texts, uint64_t seed) {
  std::printf("| layout | by hand, s | search, s | search / by hand |\n|---|---|---|---|\n");
  std::map<std::string, double> searched; // by cluster and model
  bool good = true;
  std::istringstream lines(texts);
  for (std::string text; std::getline(lines, text, ';');) {
    const Layout layout = parse(text);
    const ClusterSetting &setting = kClusterSettings[layout.cluster - 'a'];
    const auto made = llamaOnCluster(setting, layout.model);
    const Problem problem = made->problem();
    SearchOptions options;
    options.seed = seed;
    double &best = searched[text.substr(0, text.rfind(' '))];
    if (best == 0) {
      const Result<SearchResult> found = searchPlan(problem, options);
      best = found.failed() ? INFINITY : found->evaluation.step;
    }
    SearchContext context(problem, options);
    const auto stages = placeDevices(context, layout);
    const std::optional<Strategy> strategy = HandMade(context, stages).find();
    const std::optional<double> step = strategy ? stepOf(problem, *strategy) : std::nullopt;
    if (step)
      std::printf("| %s | %.3f | %.3f | %.3f |\n", text.c_str(), *step, best, best / *step);
    else
      std::printf("| %s | does not fit | %.3f | |\n", text.c_str(), best);
    std::fflush(stdout);
    good &= !step || best <= *step * 1.01;
  }
  return good;
}

/// Searches a fraction of a cluster for its fraction of the batch, and repeats the plan on the
/// rest. Every copy has its part of the devices of each type in each site.
Result<Strategy> repeatFraction(const Problem &problem, SearchOptions options, uint32_t copies) {
  std::map<std::pair<uint32_t, std::string>, std::vector<uint32_t>> alike;
  for (uint32_t d = 0; d < problem.cluster.devices.size(); ++d)
    alike[{problem.costs.network().site(d), problem.cluster.devices[d].type}].push_back(d);
  std::vector<std::vector<uint32_t>> devicesOf(copies);
  for (const auto &[key, devices] : alike) {
    if (devices.size() % copies != 0)
      fail(key.second + ": " + std::to_string(devices.size()) +
           " devices of a site cannot be divided");
    for (size_t i = 0; i < devices.size(); ++i)
      devicesOf[i / (devices.size() / copies)].push_back(devices[i]);
  }
  Problem part = problem;
  part.batch /= copies;
  for (uint32_t c = 1; c < copies; ++c)
    options.excluded.insert(options.excluded.end(), devicesOf[c].begin(), devicesOf[c].end());
  Result<SearchResult> found = searchPlan(part, options);
  if (found.failed())
    return found.error();
  Strategy all = found->strategy;
  all.pipelines.clear();
  for (const std::vector<uint32_t> &devices : devicesOf) {
    std::vector<uint32_t> counterpart(problem.cluster.devices.size());
    for (size_t i = 0; i < devices.size(); ++i)
      counterpart[devicesOf[0][i]] = devices[i];
    const Strategy copy = withDevices(found->strategy, counterpart);
    all.pipelines.insert(all.pipelines.end(), copy.pipelines.begin(), copy.pipelines.end());
  }
  return all;
}

/// \returns whether the search is as good as copies of the plan of a fraction
bool compareCopies(const std::map<std::string, std::string> &options, uint64_t seed) {
  const Result<Cluster> cluster = readClusterFile(options.at("cluster"));
  std::optional<LlamaShape> shape = findLlamaShape(options.at("model"));
  if (cluster.failed() || !shape)
    fail(cluster.failed() ? cluster.message() : "unknown model");
  shape->sequence = 2048;
  shape->computeType = bundle::F16;
  const Result<bundle::ModelSummary> summary = makeSummary(*shape);
  const Result<CostModel> costs = CostModel::make(*summary, *cluster, nullptr, {});
  if (costs.failed())
    fail(costs.message());
  const Problem problem{*summary, *cluster, *costs,
                        std::atol(options.at("tokens").c_str()) / shape->sequence};
  SearchOptions search;
  search.seed = seed;
  const auto copies = static_cast<uint32_t>(std::atol(options.at("copies").c_str()));
  const Result<Strategy> repeated = repeatFraction(problem, search, copies);
  if (repeated.failed())
    fail(repeated.message());
  SearchContext context(problem, search);
  Strategy copied = *repeated;
  double byHand = INFINITY;
  std::vector<step::Schedule> schedules = scheduleChoices(context, false);
  schedules.push_back(repeated->schedule);
  for (const step::Schedule &schedule : schedules) {
    copied.schedule = schedule;
    const StrategySimulator::Result &result = context.simulator(0).run(copied);
    if (result.ran && result.shortfallBytes == 0)
      byHand = std::min(byHand, result.step);
  }
  const Result<SearchResult> found = searchPlan(problem, search);
  if (found.failed())
    fail(found.message());
  std::printf("%u copies of the plan of a fraction: %.4f s; search of all devices: %.4f s\n",
              copies, byHand, found->evaluation.step);
  return found->evaluation.step <= byHand;
}

} // namespace

int main(int argc, char **argv) {
  std::map<std::string, std::string> options = {{"layouts", ""},        {"seed", "1"},
                                                {"cluster", ""},        {"copies", "0"},
                                                {"model", "llama-65b"}, {"tokens", "33554432"}};
  readOptions(argc, argv, options);
  const uint64_t seed = std::strtoull(options["seed"].c_str(), nullptr, 10);
  if (!options["cluster"].empty())
    return compareCopies(options, seed) ? 0 : 1;
  std::string layouts = options["layouts"];
  if (layouts.empty())
    for (const char *layout : kLayouts)
      layouts += (layouts.empty() ? "" : ";") + std::string(layout);
  return compareLayouts(layouts, seed) ? 0 : 1;
}
