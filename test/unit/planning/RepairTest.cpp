// Tests that plans are read back as strategies, and adapted to clusters with other devices.

#include "zorse/Planning/Repair.h"

#include "Search/Candidates.h"

#include "SearchSetup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// A problem on a part of a cluster, with the names of its devices.
struct Part {
  Cluster cluster;
  CostModel costs;
  Problem problem;

  /// \param order  devices of the cluster, in the order of the new file
  Part(const Setup &setup, const std::vector<uint32_t> &order)
      : cluster(clusterOf(setup.cluster, order)),
        costs(must(CostModel::make(setup.summary, cluster, nullptr, {}))),
        problem(setup.problem->on(cluster, costs)) {}

  static Cluster clusterOf(const Cluster &from, const std::vector<uint32_t> &order) {
    Cluster to = from;
    to.devices.clear();
    to.nodes.clear();
    to.topology.clear_nodes();
    to.topology.clear_node_of_device();
    std::map<uint32_t, uint32_t> nodes;
    for (uint32_t d : order) {
      const uint32_t old = from.devices[d].node;
      const auto [at, isNew] = nodes.try_emplace(old, static_cast<uint32_t>(nodes.size()));
      if (isNew) {
        to.nodes.push_back(from.nodes[old]);
        *to.topology.add_nodes() = from.topology.nodes(static_cast<int>(old));
      }
      to.devices.push_back(from.devices[d]);
      to.devices.back().node = at->second;
      to.topology.add_node_of_device(at->second);
    }
    return to;
  }
};

std::vector<uint32_t> allOf(const Setup &setup) {
  std::vector<uint32_t> all(setup.cluster.devices.size());
  std::iota(all.begin(), all.end(), 0u);
  return all;
}

std::vector<uint32_t> without(const Setup &setup, const std::set<uint32_t> &gone) {
  std::vector<uint32_t> rest;
  for (uint32_t d : allOf(setup))
    if (!gone.count(d))
      rest.push_back(d);
  return rest;
}

SearchOptions quick() {
  SearchOptions options;
  options.candidates = 200;
  options.threads = 2;
  return options;
}

/// Sorts what has no order in a plan.
std::string textOf(step::Plan plan, const bundle::ModelSummary &summary) {
  std::sort(plan.cells.begin(), plan.cells.end(), [](const step::Cell &a, const step::Cell &b) {
    return std::tuple(a.sampleBegin, a.unitBegin) < std::tuple(b.sampleBegin, b.unitBegin);
  });
  return step::writePlan(plan, summary);
}

void expectRoundTrip(const Problem &problem, const step::Plan &plan) {
  const Result<Strategy> strategy = strategyOf(problem, plan);
  ASSERT_FALSE(strategy.failed()) << strategy.message() << "\n"
                                  << step::writePlan(plan, problem.summary);
  EXPECT_EQ(textOf(makePlan(problem, *strategy), problem.summary), textOf(plan, problem.summary));
}

TEST(Repair, SearchedPlansAreRead) {
  struct Case {
    std::vector<double> speeds;
    int each;
    int64_t layers, batch;
    uint64_t memory;
  };
  for (const Case &of : {Case{{90, 45, 20}, 2, 4, 24, 0}, Case{{90, 45}, 2, 3, 16, 0},
                         Case{{90, 90, 90, 90}, 4, 4, 64, 0}, Case{{90, 45}, 2, 6, 16, 160 << 20},
                         Case{{90, 20, 20}, 3, 5, 37, 0}})
    for (bool wholeUnits : {false, true}) {
      auto made = setUp(of.speeds, of.each, of.layers, of.batch, of.memory);
      SearchOptions options = quick();
      options.wholeUnits = wholeUnits;
      const auto found = searchPlan(*made->problem, options);
      ASSERT_FALSE(found.failed()) << found.message();
      expectRoundTrip(*made->problem, found->plan);
    }
}

/// All candidates of a search, not only the best, and with memory optimizations per device.
TEST(Repair, RandomStrategiesAreRead) {
  auto made = setUp({90, 45, 20}, 3, 4, 48);
  const SearchOptions options = quick();
  SearchContext context(*made->problem, options);
  std::vector<Candidate> solutions = makeInitialSolutions(context);
  ASSERT_FALSE(solutions.empty());
  std::mt19937 random(5); // NOLINT(bugprone-random-generator-seed): the same in every run
  Candidate current = solutions.front();
  size_t read = 0, shared = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Candidate next;
    if (!mutate(context, 0, seed % 50 == 0 ? solutions[seed / 50 % solutions.size()] : current,
                seed, next))
      continue;
    current = next;
    Strategy strategy = current.strategy;
    strategy.memoryOptimizations.defaultOptimization.state = StateOffload::OptimizerStates;
    strategy.memoryOptimizations.set(static_cast<uint32_t>(random() % made->cluster.devices.size()),
                                     {step::Activations::Recompute, StateOffload::AllStates});
    const step::Plan plan = makePlan(*made->problem, strategy);
    ASSERT_EQ(step::validatePlan(plan, made->summary).message(), "");
    ++read;
    if (strategy.boundaryDenominator == 1)
      expectRoundTrip(*made->problem, plan);
    else
      shared += !strategyOf(*made->problem, plan).failed();
  }
  EXPECT_GT(read, 100u);
  EXPECT_GT(shared, 0u);
}

/// Every plan of these schedules is adapted, whether strategies can express it or not.
TEST(Repair, AnyPlanIsAdapted) {
  auto made = setUp({90, 45}, 2, 4, 16);
  const Part part(*made, without(*made, {3}));
  const auto found = searchPlan(*made->problem, quick());
  ASSERT_FALSE(found.failed()) << found.message();
  std::vector<step::Plan> plans{found->plan};
  const int32_t units = made->summary.units_size();
  // A ring of two devices with two stages each.
  step::Plan ring = found->plan;
  ring.owners.clear();
  ring.cells.clear();
  for (int64_t sample = 0; sample < 16; sample += 4)
    for (int32_t s = 0; s < 4; ++s)
      ring.cells.push_back({units * s / 4, units * (s + 1) / 4, sample, sample + 4,
                            static_cast<uint32_t>(s % 2 ? 3 : 0)});
  for (step::ScheduleKind kind : {step::ScheduleKind::Interleaved, step::ScheduleKind::Wave,
                                  step::ScheduleKind::BreadthFirst, step::ScheduleKind::GPipe}) {
    ring.schedule = {};
    ring.schedule.kind = kind;
    plans.push_back(ring);
  }
  // Stages end elsewhere for each half of the samples of a device.
  step::Plan odd = ring;
  odd.cells.clear();
  odd.schedule = {};
  for (int64_t sample : {0, 8}) {
    const int32_t end = sample ? 2 : 5;
    odd.cells.push_back({0, end, sample, sample + 8, 1});
    odd.cells.push_back({end, units, sample, sample + 8, 3});
  }
  plans.push_back(odd);
  step::Plan other = found->plan; // of another batch
  other.batch = 8;
  plans.push_back(other);
  for (const step::Plan &plan : plans) {
    const auto repaired = repairPlan(part.problem, plan, quick());
    ASSERT_FALSE(repaired.failed()) << repaired.message();
    EXPECT_EQ(step::validatePlan(repaired->plan, made->summary).message(), "");
    EXPECT_EQ(repaired->plan.batch, 16);
  }
  EXPECT_NE(whyNotRepaired(part.problem, other), "");
  EXPECT_EQ(whyNotRepaired(part.problem, ring), "");
}

TEST(Repair, LossesAndJoins) {
  auto made = setUp({90, 90, 45, 45, 20}, 4, 4, 60);
  const std::vector<uint32_t> all = allOf(*made);
  const std::set<uint32_t> node{4, 5, 6, 7}, slow{16, 17, 18, 19};
  struct Case {
    std::vector<uint32_t> before, after;
    size_t lost, joined;
  };
  for (const Case &of :
       {Case{all, without(*made, {5}), 1, 0}, Case{all, without(*made, node), 4, 0},
        Case{all, without(*made, {0, 1, 2, 3, 4, 5, 6, 7}), 8, 0},
        Case{without(*made, node), all, 0, 4},
        Case{without(*made, node), without(*made, {0, 9}), 2, 4},
        Case{without(*made, slow), all, 0, 4}}) {
    const Part before(*made, of.before), after(*made, of.after);
    const auto old = searchPlan(before.problem, quick());
    ASSERT_FALSE(old.failed()) << old.message();
    const auto repaired = repairPlan(after.problem, old->plan, quick());
    ASSERT_FALSE(repaired.failed()) << repaired.message();
    EXPECT_EQ(step::validatePlan(repaired->plan, made->summary).message(), "");
    const SearchResult full = must(searchPlan(after.problem, quick()));
    EXPECT_LE(repaired->evaluation.step, full.evaluation.step * 1.1);
    const ClusterChange change = findClusterChange(old->plan, after.cluster, {});
    EXPECT_LE(change.lost.size(), of.lost); // some were not used
    EXPECT_GE(change.joined.size(), of.joined);
    EXPECT_GT(repaired->evaluation.step, 0);
    EXPECT_LE(redistributionBytes(after.problem, old->plan, repaired->plan),
              redistributionBytes(after.problem, {}, repaired->plan));
  }
}

TEST(Repair, NothingMovesWithoutChange) {
  auto made = setUp({90, 45}, 4, 4, 32);
  const SearchResult old = must(searchPlan(*made->problem, quick()));
  EXPECT_EQ(redistributionBytes(*made->problem, old.plan, old.plan), 0u);
  const SearchResult repaired = must(repairPlan(*made->problem, old.plan, quick()));
  EXPECT_LE(repaired.evaluation.step, old.evaluation.step);
}

/// Without a device, its shard is missing. Others hold theirs.
TEST(Repair, RedistributionCountsWhatWasNotHeld) {
  auto made = setUp({90}, 4, 2, 16);
  Strategy four, three;
  const int32_t units = made->summary.units_size();
  four.state = three.state = ShardSizing::Equal;
  four.pipelines = {{16, {{0, units, {{0, 4, 4}, {1, 4, 4}, {2, 4, 4}, {3, 4, 4}}}}}};
  three.pipelines = {{16, {{0, units, {{0, 6, 6}, {1, 5, 5}, {2, 5, 5}}}}}};
  const step::Plan before = makePlan(*made->problem, four), after = makePlan(*made->problem, three);
  const uint64_t all = redistributionBytes(*made->problem, {}, after),
                 moved = redistributionBytes(*made->problem, before, after);
  // Thirds instead of quarters: 0 gets 1/12 more, 1 gets 2/12 of its third, 2 gets 3/12.
  EXPECT_NEAR(static_cast<double>(moved) / static_cast<double>(all), 0.5, 0.02);
}

TEST(Repair, SamePlanOnAnyNumberOfThreadsAndInAnyOrder) {
  auto made = setUp({90, 90, 45, 45}, 4, 4, 48);
  const SearchResult old = must(searchPlan(*made->problem, quick()));
  std::vector<uint32_t> rest = without(*made, {1, 9});
  std::mt19937 random(3); // NOLINT(bugprone-random-generator-seed): the same in every run
  std::string first;
  for (int trial = 0; trial < 4; ++trial) {
    const Part part(*made, rest);
    SearchOptions options;
    options.threads = 1u << (trial % 3);
    const SearchResult found = must(repairPlan(part.problem, old.plan, options));
    std::vector<std::string> cells;
    cells.reserve(found.plan.cells.size());
    for (const step::Cell &cell : found.plan.cells)
      cells.push_back(found.plan.devices[cell.device].name + " " + std::to_string(cell.unitBegin) +
                      "-" + std::to_string(cell.unitEnd) + " " + std::to_string(cell.sampleBegin) +
                      "-" + std::to_string(cell.sampleEnd));
    std::sort(cells.begin(), cells.end());
    std::string text = std::to_string(found.evaluation.step) + "\n";
    for (const std::string &cell : cells)
      text += cell + "\n";
    if (first.empty())
      first = text;
    EXPECT_EQ(text, first) << "trial " << trial;
    std::shuffle(rest.begin(), rest.end(), random);
  }
}

/// If memory is short, plans have memory optimizations; if nothing fits, the message is that of a
/// search.
TEST(Repair, LittleMemory) {
  for (uint64_t memory : {uint64_t(260) << 20, uint64_t(120) << 20, uint64_t(20) << 20}) {
    auto made = setUp({90, 90, 90}, 2, 6, 24, memory);
    const auto old = searchPlan(*made->problem, quick());
    const Part part(*made, without(*made, {0, 1, 2}));
    const auto full = searchPlan(part.problem, quick());
    if (old.failed())
      continue;
    const auto repaired = repairPlan(part.problem, old->plan, quick());
    EXPECT_EQ(repaired.failed(), full.failed()) << (memory >> 20) << " MiB: " << repaired.message();
    if (!repaired.failed()) {
      EXPECT_EQ(repaired->evaluation.shortfallBytes, 0u);
    } else {
      EXPECT_NE(repaired.message().find("no plan fits the memory"), std::string::npos);
    }
  }
}

/// A summary whose functions have the numbers of a library.
bundle::FunctionLibrary number(bundle::ModelSummary &summary,
                               const std::set<bundle::UnitFunction::Task> &missing) {
  bundle::FunctionLibrary library;
  for (bundle::UnitClass &unitClass : *summary.mutable_classes())
    for (bundle::UnitFunction &function : *unitClass.mutable_functions()) {
      if (missing.count(function.task())) {
        function.set_function(UINT32_MAX);
        continue;
      }
      function.set_function(static_cast<uint32_t>(library.functions_size()));
      library.add_functions()->set_name(functionName(unitClass, function.task()));
    }
  return library;
}

/// Plans of a bundle call only functions that it has, in searches and repairs.
TEST(Repair, MissingFunctionsAreNotCalled) {
  using Function = bundle::UnitFunction;
  const std::set<Function::Task> split{Function::INPUT_GRADIENTS, Function::WEIGHT_GRADIENTS},
      recompute{Function::RECOMPUTE};
  auto made = setUp({90, 45}, 2, 6, 16);
  const SearchResult old = must(searchPlan(*made->problem, quick()));
  for (const auto &missing : {split, recompute}) {
    bundle::ModelSummary summary = made->summary;
    const bundle::FunctionLibrary library = number(summary, missing);
    const CompiledFunctions functions(summary, &library);
    EXPECT_EQ(functions.splitBackward(), missing != split);
    Strategy strategy = old.strategy;
    strategy.schedule.splitBackward = true;
    strategy.memoryOptimizations.defaultOptimization.activations = step::Activations::Recompute;
    EXPECT_FALSE(functions.canRun(makePlan(*made->problem, strategy)));
    strategy.schedule.splitBackward = missing != split;
    if (missing == recompute)
      strategy.memoryOptimizations = {};
    EXPECT_TRUE(functions.canRun(makePlan(*made->problem, strategy)));
    const Problem problem = made->problem->of(summary, &library, made->cluster, *made->costs);
    strategy.schedule.splitBackward = true;
    strategy.memoryOptimizations.defaultOptimization.activations = step::Activations::Recompute;
    EXPECT_FALSE(StrategySimulator(problem).run(strategy).ran);
  }
}

} // namespace
