// Tests that the planner's timer gives the same results for layouts as the expansion of their
// plans.

#include "Layout/StrategySimulator.h"
#include "Search/Candidates.h"

#include "Must.h"

#include "LlamaShape.h"
#include "zorse/Summary/Summary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

using namespace zorse;
using namespace zorse::planning;

namespace {

struct Case {
  bundle::ModelSummary summary;
  Cluster cluster;
  std::optional<CostModel> costs;
  std::unique_ptr<Problem> problem;
};

/// Makes a case: unequal devices in nodes of one to four, on one or two sites, with memory for a
/// part of the model. \param width  the hidden size is 4 to 12 times this number
std::unique_ptr<Case> makeCase(std::mt19937 &random, bool tight, int width = 64) {
  auto made = std::make_unique<Case>();
  auto pick = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  LlamaShape shape{"shape", pick(2, 6),        width * pick(4, 12), width * pick(8, 24), 4,
                   4,       256 * pick(1, 16), 64 * pick(1, 8),     bundle::BF16};
  made->summary = *makeSummary(shape);
  int sites = pick(1, 2), nodes = pick(1, 4);
  for (int s = 0; s < sites; ++s)
    made->cluster.topology.add_sites()->mutable_fabric()->set_latency(1e-5 * pick(1, 20));
  made->cluster.topology.mutable_between_sites()->set_bandwidth(1e9 * pick(1, 4));
  made->cluster.topology.mutable_between_sites()->set_latency(1e-3);
  for (int n = 0; n < nodes; ++n) {
    made->cluster.nodes.emplace_back();
    auto *node = made->cluster.topology.add_nodes();
    node->set_site(static_cast<uint32_t>(n % sites));
    node->mutable_port()->set_bandwidth(2e10 * pick(1, 10));
    node->mutable_port()->set_latency(1e-6);
    node->mutable_nic()->set_bandwidth(1e9 * pick(1, 10));
    int devices = pick(1, 4), speed = pick(1, 4);
    for (int d = 0; d < devices; ++d) {
      ClusterDevice device;
      device.name = "d" + std::to_string(made->cluster.devices.size());
      device.node = static_cast<uint32_t>(n);
      std::fill(std::begin(device.flopsPerSecond), std::end(device.flopsPerSecond), 1e13 * speed);
      device.halfPeakRows = 30 * speed;
      device.memoryBandwidth = 3e11;
      device.launchOverhead = 1e-6;
      made->cluster.devices.push_back(device);
      made->cluster.topology.add_node_of_device(static_cast<uint32_t>(n));
    }
  }
  if (tight) {
    double bytes = 0;
    for (const auto &unit : made->summary.units())
      bytes += static_cast<double>(classOf(made->summary, unit).saved_bytes().per_row());
    for (ClusterDevice &device : made->cluster.devices)
      device.memory = static_cast<uint64_t>(bytes * pick(2, 6)) + (200u << 20);
  }
  made->costs = must(CostModel::make(made->summary, made->cluster, nullptr, {}));
  made->problem =
      std::make_unique<Problem>(Problem{made->summary, made->cluster, *made->costs, pick(4, 40)});
  return made;
}

Strategy randomStrategy(std::mt19937 &random, const SearchContext &context) {
  auto pick = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  std::vector<uint32_t> devices(context.devices);
  std::shuffle(devices.begin(), devices.end(), random);
  Strategy strategy;
  int pipelines = devices.size() > 1 && pick(0, 3) == 0 ? 2 : 1;
  int64_t left = context.problem.batch;
  size_t at = 0;
  for (int p = 0; p < pipelines; ++p) {
    size_t end = p + 1 == pipelines
                     ? devices.size()
                     : static_cast<size_t>(pick(1, static_cast<int>(devices.size()) - 1));
    Pipeline pipeline;
    pipeline.samples = p + 1 == pipelines
                           ? left
                           : std::max<int64_t>(1, left * static_cast<int64_t>(end) /
                                                      static_cast<int64_t>(devices.size()));
    left -= pipeline.samples;
    int stages = pick(1, std::min<int>({static_cast<int>(end - at), 5, context.model.units()}));
    std::vector<size_t> cuts{at, end};
    std::vector<int32_t> units{0, context.model.units()};
    while (static_cast<int>(cuts.size()) <= stages) {
      size_t c = at + 1 + random() % (end - at - 1 ? end - at - 1 : 1);
      int32_t u = pick(1, context.model.units() - 1);
      if (std::find(cuts.begin(), cuts.end(), c) == cuts.end() &&
          std::find(units.begin(), units.end(), u) == units.end()) {
        cuts.push_back(c);
        units.push_back(u);
      }
    }
    std::sort(cuts.begin(), cuts.end());
    std::sort(units.begin(), units.end());
    size_t rows = random() % std::min<size_t>(3, context.model.rows().size());
    for (int s = 0; s < stages; ++s)
      pipeline.stages.push_back(
          makeStage(context.model,
                    {devices.begin() + static_cast<long>(cuts[static_cast<size_t>(s)]),
                     devices.begin() + static_cast<long>(cuts[static_cast<size_t>(s) + 1])},
                    units[static_cast<size_t>(s)], units[static_cast<size_t>(s) + 1],
                    pipeline.samples, rows));
    strategy.pipelines.push_back(std::move(pipeline));
    at = end;
  }
  auto schedules = scheduleChoices(context, true);
  strategy.schedule = schedules[random() % schedules.size()];
  if (strategy.schedule.kind == step::ScheduleKind::OneForwardOneBackward && pick(0, 1))
    for (size_t d = 0; d < context.problem.cluster.devices.size(); ++d)
      strategy.schedule.warmupForwards.push_back(static_cast<uint32_t>(pick(0, 3)));
  strategy.state = static_cast<ShardSizing>(random() % 3);
  return strategy;
}

/// Moves stage boundaries by fractions of units. In a third of the pipelines, also puts devices
/// into two stages.
void shareUnits(std::mt19937 &random, const SearchContext &context, Strategy &strategy) {
  auto pick = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  strategy.boundaryDenominator = 1 << pick(1, 3);
  strategy.schedule = {};
  strategy.schedule.kind = step::ScheduleKind::SteadyState;
  strategy.schedule.splitBackward = pick(0, 1);
  strategy.schedule.inFlightFactor = 1 + 0.5 * pick(0, 3);
  const StageModel parts(context.problem, context.tables, 0, strategy.boundaryDenominator);
  for (Pipeline &pipeline : strategy.pipelines) {
    int32_t begin = 0;
    for (size_t s = 0; s < pipeline.stages.size(); ++s) {
      Stage &stage = pipeline.stages[s];
      const int32_t left = static_cast<int32_t>(pipeline.stages.size() - 1 - s);
      int32_t end = s + 1 == pipeline.stages.size()
                        ? parts.units()
                        : std::clamp(stage.unitEnd * strategy.boundaryDenominator +
                                         pick(1 - strategy.boundaryDenominator,
                                              strategy.boundaryDenominator - 1),
                                     begin + 1, parts.units() - left);
      stage.unitBegin = begin;
      stage.unitEnd = begin = end;
    }
    if (pipeline.stages.size() > 2 && pick(0, 2) == 0)
      pipeline.stages.back().members = pipeline.stages.front().members;
  }
  setSamplesPerVariant(strategy);
}

/// Expects that times, busy seconds and memory peaks are bit-equal to those of the full expansion
/// with the same rules.
/// \returns the number of compared layouts.
int compare(unsigned seed, int trials, bool sharedUnits) {
  std::mt19937 random(seed);
  int compared = 0;
  for (int trial = 0; trial < trials; ++trial) {
    auto made = makeCase(random, trial % 2);
    SearchOptions searchOptions;
    searchOptions.threads = 1;
    SearchContext context(*made->problem, searchOptions);
    StrategySimulator simulator(*made->problem);
    for (int i = 0; i < 2; ++i) {
      Strategy strategy = randomStrategy(random, context);
      if (sharedUnits)
        shareUnits(random, context, strategy);
      const StrategySimulator::Result timed = simulator.run(strategy);
      ReplicaFinder replicas(*made->problem);
      replicas.find(strategy);
      if (!replicas.devices().empty())
        continue; // compared below
      step::LoweringOptions options;
      options.costs = &made->problem->costs;
      options.checkMemory = false;
      options.fragmentationDivisor = StrategySimulator::kFragmentationDivisor;
      options.tries = 1;
      const auto whole = step::lowerPlan(made->summary, simulator.plan(strategy), options);
      EXPECT_EQ(timed.ran, !whole.failed()) << whole.message();
      if (whole.failed())
        continue;
      EXPECT_EQ(timed.step, whole->stepTime) << trial;
      EXPECT_EQ(timed.tasks, whole->numInstructions) << trial;
      for (size_t d = 0; d < whole->devices.size(); ++d) {
        EXPECT_EQ(timed.busy[d], whole->devices[d].busy) << trial << ", device " << d;
        EXPECT_EQ(timed.memory[d] - timed.fragmentationDivisor[d],
                  whole->devices[d].memory.peakLiveBytes)
            << trial << ", device " << d;
      }
      ++compared;
    }
  }
  return compared;
}

/// Number of trials of a test: ZORSE_TRIALS, or `usual`.
int trialsOr(int usual) {
  const char *text = std::getenv("ZORSE_TRIALS");
  return text ? std::atoi(text) : usual;
}

TEST(StrategySimulator, IsTheExpansion) {
  const int compared = compare(7, trialsOr(100), false);
  std::printf("%d layouts: the same times and peaks\n", compared);
  EXPECT_GE(compared, trialsOr(100));
}

/// Stages with fractional boundaries, and devices in two stages of a pipeline.
TEST(StrategySimulator, IsTheExpansionWhereStagesShareUnits) {
  const int compared = compare(8, trialsOr(60), true);
  std::printf("%d layouts with shared units: the same times and peaks\n", compared);
  EXPECT_GE(compared, trialsOr(60));
}

/// Simulations lower the updates of a group's state on the host in two ops, the expansion in up to
/// 32. Peaks are equal, and times nearly.
TEST(StrategySimulator, JoinsPartsOfUpdatesFromTheHost) {
  std::mt19937 random(19); // NOLINT(bugprone-random-generator-seed): the same in every run
  int compared = 0;
  double worst = 0, instructions = 0, all = 0;
  for (int trial = 0; compared < trialsOr(60) && trial < 1000; ++trial) {
    auto made = makeCase(random, false, 512);
    SearchOptions searchOptions;
    searchOptions.threads = 1;
    SearchContext context(*made->problem, searchOptions);
    StrategySimulator simulator(*made->problem);
    Strategy strategy = randomStrategy(random, context);
    strategy.memoryOptimizations.defaultOptimization.state =
        trial % 2 ? StateOffload::AllStates : StateOffload::OptimizerStates;
    const StrategySimulator::Result &timed = simulator.run(strategy);
    ReplicaFinder replicas(*made->problem);
    replicas.find(strategy);
    if (!replicas.devices().empty() || !timed.ran)
      continue;
    step::TimeOptions options;
    options.costs = &made->problem->costs;
    options.fragmentationDivisor = StrategySimulator::kFragmentationDivisor;
    options.tries = 1;
    const step::StepTimes whole =
        must(step::timeStep(made->summary, simulator.plan(strategy), options));
    worst = std::max(worst, std::abs(timed.step / whole.stepTime - 1));
    EXPECT_NEAR(timed.step / whole.stepTime, 1, 0.03) << trial;
    instructions += timed.tasks;
    all += whole.numInstructions;
    for (size_t d = 0; d < whole.devices.size(); ++d)
      EXPECT_EQ(timed.memory[d] - timed.fragmentationDivisor[d],
                whole.devices[d].memory.peakLiveBytes)
          << trial << ", device " << d;
    ++compared;
  }
  std::printf("%d layouts, step times at most %.2f %% apart, %.2f of the instructions\n", compared,
              100 * worst, instructions / all);
  EXPECT_EQ(compared, trialsOr(60));
  EXPECT_LT(instructions, 0.5 * all);
}

/// Repeats a case's nodes on its only site. \param shared  the site's fabric is a shared resource
/// without effect on times, so that pipelines are not twins.
std::unique_ptr<Case> repeated(const Case &one, uint32_t copies, bool shared) {
  auto made = std::make_unique<Case>();
  made->summary = one.summary;
  auto &topology = made->cluster.topology;
  *topology.add_sites() = one.cluster.topology.sites(0);
  if (shared)
    topology.mutable_sites(0)->mutable_fabric()->set_bandwidth(1e30);
  for (uint32_t k = 0; k < copies; ++k) {
    const auto firstNode = static_cast<uint32_t>(topology.nodes_size());
    for (const auto &node : one.cluster.topology.nodes()) {
      made->cluster.nodes.emplace_back();
      *topology.add_nodes() = node;
    }
    for (const ClusterDevice &device : one.cluster.devices) {
      topology.add_node_of_device(firstNode + device.node);
      made->cluster.devices.push_back(device);
      made->cluster.devices.back().name = "d" + std::to_string(made->cluster.devices.size());
      made->cluster.devices.back().node += firstNode;
    }
  }
  made->costs = must(CostModel::make(made->summary, made->cluster, nullptr, {}));
  made->problem = std::make_unique<Problem>(
      Problem{made->summary, made->cluster, *made->costs, one.problem->batch * copies});
  return made;
}

/// Only one of several equal pipelines is simulated. The result equals that of simulating all of
/// them, with fewer events.
TEST(StrategySimulator, OneOfTwinsStandsForAll) {
  std::mt19937 random(11);
  int compared = 0;
  double worst = 0;
  for (int trial = 0; compared < 60 && trial < 1000; ++trial) {
    auto one = makeCase(random, trial % 2);
    SearchOptions options;
    options.threads = 1;
    SearchContext context(*one->problem, options);
    Strategy strategy = randomStrategy(random, context);
    if (one->cluster.topology.sites_size() != 1 || strategy.pipelines.size() != 1)
      continue;
    if (trial % 3 == 0)
      shareUnits(random, context, strategy);
    const uint32_t copies = 2 + static_cast<uint32_t>(trial % 3),
                   devices = static_cast<uint32_t>(one->cluster.devices.size());
    const std::vector<uint32_t> ahead = strategy.schedule.warmupForwards;
    for (uint32_t k = 1; k < copies; ++k) {
      strategy.pipelines.push_back(strategy.pipelines.front());
      for (Stage &stage : strategy.pipelines.back().stages)
        for (step::StageDevice &member : stage.members)
          member.device += k * devices;
      strategy.schedule.warmupForwards.insert(strategy.schedule.warmupForwards.end(), ahead.begin(),
                                              ahead.end());
    }
    auto replicas = repeated(*one, copies, false), apart = repeated(*one, copies, true);
    StrategySimulator once(*replicas->problem), all(*apart->problem);
    const auto &a = once.run(strategy);
    const auto &b = all.run(strategy);
    ASSERT_TRUE(a.ran && b.ran);
    EXPECT_LT(a.tasks, b.tasks);
    EXPECT_NEAR(a.step / b.step, 1, 0.01) << trial;
    worst = std::max(worst, std::abs(a.step / b.step - 1));
    for (size_t d = 0; d < a.memory.size(); ++d) {
      EXPECT_NEAR(a.busy[d], b.busy[d], 1e-3 * b.busy[d]) << trial; // updates of a twin's shards
      EXPECT_NEAR(static_cast<double>(a.memory[d]), static_cast<double>(b.memory[d]),
                  0.01 * static_cast<double>(b.memory[d]))
          << trial << ", device " << d;
    }
    ++compared;
  }
  std::printf("%d layouts, step times at most %.3f %% apart\n", compared, 100 * worst);
  EXPECT_EQ(compared, 60);
}

/// Pipelines that share a node with another one or differ from it are simulated.
TEST(StrategySimulator, UnlikePipelinesAreNoTwins) {
  std::mt19937 random(3);
  auto one = makeCase(random, true);
  while (one->cluster.topology.sites_size() != 1 || one->cluster.devices.size() < 2)
    one = makeCase(random, true);
  const auto devices = static_cast<uint32_t>(one->cluster.devices.size());
  auto two = repeated(*one, 2, false);
  SearchOptions options;
  options.threads = 1;
  SearchContext context(*two->problem, options);
  auto pipeline = [&](uint32_t first, uint32_t end) {
    std::vector<uint32_t> members;
    for (uint32_t d = first; d < end; ++d)
      members.push_back(d);
    const int64_t samples = two->problem->batch / 2;
    return Pipeline{samples,
                    {makeStage(context.model, members, 0, context.model.units(), samples, 0)}};
  };
  Strategy strategy;
  strategy.pipelines = {pipeline(0, devices), pipeline(devices, 2 * devices)};
  ReplicaFinder finder(*two->problem);
  auto replica = [&] {
    finder.find(strategy);
    return finder.isReplica(1);
  };
  EXPECT_TRUE(replica());
  EXPECT_EQ(finder.devices().size(), devices);
  Strategy good = strategy;
  ++strategy.pipelines[1].stages[0].members[0].samples;
  EXPECT_FALSE(replica());
  strategy = good;
  ++strategy.pipelines[1].stages[0].members[0].microBatchSize;
  EXPECT_FALSE(replica());
  strategy = good;
  strategy.schedule.warmupForwards.assign(2 * devices, 0);
  strategy.schedule.warmupForwards[devices] = 1;
  EXPECT_FALSE(replica());
  strategy = good;
  std::swap(strategy.pipelines[0].stages[0].members[0].device,
            strategy.pipelines[1].stages[0].members[0].device); // still equal, but on each other's
                                                                // nodes if there are others
  bool alone = true;
  for (uint32_t d = 1; d < devices; ++d)
    alone &= two->cluster.devices[d].node != two->cluster.devices[0].node;
  EXPECT_EQ(replica(), alone);
  strategy = good;
  two->cluster.devices.back().memory += 64;
  EXPECT_FALSE(replica());
  two->cluster.devices.back().memory -= 64;
  two->cluster.topology.mutable_nodes(two->cluster.topology.nodes_size() - 1)
      ->mutable_nic()
      ->set_bandwidth(1);
  finder = ReplicaFinder(*two->problem);
  EXPECT_FALSE(replica());
}

} // namespace
