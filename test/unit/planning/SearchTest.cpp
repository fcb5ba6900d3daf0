// Tests the guarantees of the search for all problems.

#include "Search/Candidates.h"
#include "Search/CanonicalProblem.h"
#include "Search/DealDevices.h"

#include "SearchSetup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

using namespace zorse;
using namespace zorse::planning;

namespace {

TEST(Search, SamePlanOnAnyNumberOfThreads) {
  struct Case {
    std::vector<double> speeds;
    int each;
    int64_t batch;
    uint32_t candidates;
  };
  // The second problem uses descents.
  for (const Case &of : {Case{{90, 45, 20}, 3, 24, 300}, Case{{90, 45}, 2, 8, 0}}) {
    auto made = setUp(of.speeds, of.each, 4, of.batch);
    SearchOptions options;
    options.candidates = of.candidates;
    std::string first;
    for (unsigned threads : {1u, 2u, 5u}) {
      options.threads = threads;
      auto found = searchPlan(*made->problem, options);
      ASSERT_FALSE(found.failed()) << found.message();
      std::string text = step::writePlan(found->plan, made->summary);
      if (first.empty())
        first = text;
      EXPECT_EQ(text, first) << threads << " threads";
    }
  }
}

/// Above 512 devices, the best plan of a fraction of equal nodes is repeated.
TEST(Search, LargeClustersRepeatThePlanOfAFraction) {
  std::vector<double> speeds(40, 90);
  speeds.resize(80, 45);
  auto made = setUp(speeds, 8, 8, 640);
  SearchOptions options;
  options.threads = 2;
  SearchContext context(*made->problem, options);
  std::vector<Candidate> pool;
  addSymmetricCopies(context, pool);
  ASSERT_EQ(pool.size(), 1u);
  const Strategy &strategy = pool[0].strategy;
  std::set<uint32_t> used;
  size_t members = 0;
  int64_t samples = 0;
  for (const Pipeline &pipeline : strategy.pipelines) {
    samples += pipeline.samples;
    for (const Stage &stage : pipeline.stages)
      for (const step::StageDevice &member : stage.members) {
        used.insert(member.device);
        ++members;
      }
  }
  EXPECT_EQ(samples, 640);
  EXPECT_EQ(members % 2, 0u);
  EXPECT_EQ(used.size(), members);
  context.simulate(pool);
  const SearchResult found = must(searchPlan(*made->problem, options));
  EXPECT_LE(found.evaluation.step, pool[0].step * 1.001);
  made->cluster.devices[0].memory = 16ull << 30; // a node that is unlike the others
  std::vector<Candidate> none;
  SearchContext uneven(*made->problem, options);
  addSymmetricCopies(uneven, none);
  EXPECT_TRUE(none.empty());
}

/// Equal pipelines get whole nodes, or a device of every node; then the replicas of a stage are on
/// one node.
TEST(Search, DevicesAreDealtAmongEqualPipelines) {
  auto made = setUp({80, 80, 80, 80}, 4, 3, 16);
  SearchContext context(*made->problem, {});
  const StageModel &model = context.model;
  auto deal = [&](uint32_t copies, Dealing dealing) {
    return dealCopies(model, context.devices, copies, dealing);
  };
  using Sets = std::vector<std::vector<uint32_t>>;
  EXPECT_EQ(deal(2, Dealing::WholeNodes),
            (Sets{{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14, 15}}));
  EXPECT_EQ(deal(2, Dealing::AcrossNodes),
            (Sets{{0, 1, 4, 5, 8, 9, 12, 13}, {2, 3, 6, 7, 10, 11, 14, 15}}));
  const Sets eight = deal(8, Dealing::AcrossNodes); // two groups of four on two nodes each
  EXPECT_EQ(eight, (Sets{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}, {9, 13}, {10, 14}, {11, 15}}));
  EXPECT_EQ(replicasOnNode(model, eight), 4u);
  EXPECT_EQ(replicasOnNode(model, deal(2, Dealing::WholeNodes)), 1u);
  EXPECT_EQ(deal(3, Dealing::AcrossNodes), Sets());  // no part of a node is a third
  EXPECT_EQ(deal(16, Dealing::AcrossNodes), Sets()); // the same as parts of whole nodes
  EXPECT_EQ(deal(2, Dealing::BySite), Sets());
}

/// Gradients of replicas on one node cross its card once for all of them.
TEST(Search, ReplicasOnANodeShareItsCard) {
  auto made = setUp({80, 80}, 4, 6, 32, 0, 1e9);
  SearchContext context(*made->problem, {});
  StagePartitioner partitioner(context.model);
  PartitionOptions options;
  options.samples = 8;
  options.replicas = 4;
  const std::vector<DeviceSet> oneOfEach{{{0}}, {{4}}};
  const double apart = partitioner.solve(oneOfEach, options).time;
  options.replicasOnNode = 4;
  EXPECT_LT(partitioner.solve(oneOfEach, options).time, 0.9 * apart);
}

/// A start may share units even if the search itself would not.
TEST(Search, StartsMayShareUnits) {
  auto made = setUp({80, 40}, 2, 3, 16);
  SearchOptions options;
  options.candidates = 60;
  options.starts.push_back(must(searchPlan(*made->problem, options)).strategy);
  Strategy &start = options.starts.back();
  if (start.boundaryDenominator == 1) {
    start.boundaryDenominator = 4;
    for (Pipeline &pipeline : start.pipelines)
      for (Stage &stage : pipeline.stages) {
        stage.unitBegin *= 4;
        stage.unitEnd *= 4;
      }
    setSamplesPerVariant(start);
  }
  options.wholeUnits = true;
  const SearchResult found = must(searchPlan(*made->problem, options));
  EXPECT_EQ(step::validatePlan(found.plan, made->summary).message(), "");
}

/// Changes the order and names of nodes; everything else stays.
Cluster shuffled(const Cluster &cluster, std::mt19937 &random) {
  std::vector<uint32_t> order(cluster.nodes.size());
  for (uint32_t n = 0; n < order.size(); ++n)
    order[n] = n;
  std::shuffle(order.begin(), order.end(), random);
  Cluster to = cluster;
  to.devices.clear();
  to.topology.clear_node_of_device();
  for (uint32_t n = 0; n < order.size(); ++n) {
    to.nodes[n] = cluster.nodes[order[n]];
    to.nodes[n].name = "other" + std::to_string(n);
    *to.topology.mutable_nodes(int(n)) = cluster.topology.nodes(int(order[n]));
    for (const ClusterDevice &device : cluster.devices)
      if (device.node == order[n]) {
        to.devices.push_back(device);
        to.devices.back().name = "renamed" + std::to_string(to.devices.size());
        to.devices.back().node = n;
        to.topology.add_node_of_device(n);
      }
  }
  return to;
}

/// Updates inside the backward hide behind compute. Every plan of the problem has them, also those
/// of problems made from it.
TEST(Search, UpdatesInTheBackward) {
  auto made = setUp({20, 90}, 2, 4, 8);
  SearchOptions options;
  options.candidates = 100;
  const auto after = searchPlan(*made->problem, options);
  ASSERT_FALSE(after.failed()) << after.message();
  EXPECT_EQ(after->plan.optimizerStep, step::OptimizerStep::AfterBackward);
  made->problem->optimizerStep = step::OptimizerStep::InBackward;
  const auto found = searchPlan(*made->problem, options);
  ASSERT_FALSE(found.failed()) << found.message();
  EXPECT_EQ(found->plan.optimizerStep, step::OptimizerStep::InBackward);
  EXPECT_LT(found->evaluation.step, after->evaluation.step);
}

TEST(Search, SecondsLimitCandidates) {
  auto made = setUp({20, 90, 45}, 2, 4, 16);
  SearchOptions options;
  uint32_t before = 0;
  for (double seconds : {0.01, 0.1, 1.0}) {
    options.seconds = seconds;
    const auto found = searchPlan(*made->problem, options);
    ASSERT_FALSE(found.failed()) << found.message();
    EXPECT_GT(found->tried, before);
    before = found->tried;
  }
}

TEST(Search, OrderAndNamesChangeNothing) {
  std::mt19937 random(3); // NOLINT(bugprone-random-generator-seed): the same in every run
  auto made = setUp({20, 90, 45, 90}, 2, 4, 24);
  SearchOptions options;
  options.candidates = 400;
  auto first = searchPlan(*made->problem, options);
  ASSERT_FALSE(first.failed()) << first.message();
  for (int trial = 0; trial < 3; ++trial) {
    const Cluster cluster = shuffled(made->cluster, random);
    const auto costs = CostModel::make(made->summary, cluster, nullptr, {});
    ASSERT_FALSE(costs.failed()) << costs.message();
    const Problem other{made->summary, cluster, *costs, made->problem->batch};
    auto found = searchPlan(other, options);
    ASSERT_FALSE(found.failed()) << found.message();
    EXPECT_EQ(found->evaluation.step, first->evaluation.step);
    // The plan uses the device names of the file.
    for (size_t d = 0; d < cluster.devices.size(); ++d)
      EXPECT_EQ(found->plan.devices[d].name, cluster.devices[d].name);
  }
}

TEST(Search, CanonicalOrderGoesBack) {
  auto made = setUp({20, 90, 45}, 2, 2, 8);
  const auto canonical = CanonicalProblem::make(*made->problem);
  EXPECT_EQ(canonical.original, (std::vector<uint32_t>{2, 3, 4, 5, 0, 1})); // the fastest devices
                                                                            // first
  EXPECT_EQ(canonical.translate({0, 4}), (std::vector<uint32_t>{4, 2}));
  Strategy there;
  there.pipelines = {{8, {{0, 3, {{0, 8, 8}}}}}};
  const Strategy strategy = canonical.restore(there);
  EXPECT_EQ(strategy.pipelines[0].stages[0].members[0].device, 2u);
}

TEST(Search, CanonicalProblemHasTheCostsOfTheProblem) {
  // Costs that do not follow from the cluster, as those of groups of devices.
  auto made = setUp({20, 90, 45}, 2, 2, 8);
  Cluster other = made->cluster;
  for (size_t d = 0; d < other.devices.size(); ++d)
    for (double &speed : other.devices[d].flopsPerSecond)
      speed *= double(d + 1);
  const CostModel costs = must(CostModel::make(made->summary, other, nullptr, {}));
  const auto canonical =
      CanonicalProblem::make({made->summary, made->cluster, costs, made->problem->batch});
  for (uint32_t d = 0; d < canonical.original.size(); ++d) {
    const uint32_t was = canonical.original[d];
    EXPECT_EQ(canonical.costs->unit(d, 0, step::UnitTask::Forward, 2),
              costs.unit(was, 0, step::UnitTask::Forward, 2));
    EXPECT_EQ(canonical.costs->topology().node_of_device(int(d)),
              canonical.cluster.devices[d].node);
  }
}

TEST(Search, WhatOnlyDelaysIsLeftOut) {
  // The third node computes slowly and its NIC is slow: the plan without it is better.
  auto both = setUp({90, 90}, 2, 4, 16), more = setUp({90, 90, 1}, 2, 4, 16);
  more->cluster.topology.mutable_nodes(2)->mutable_nic()->set_bandwidth(1e7);
  SearchOptions options;
  options.candidates = 400;
  more->costs = must(CostModel::make(more->summary, more->cluster, nullptr, {}));
  auto alone = searchPlan(*both->problem, options), found = searchPlan(*more->problem, options);
  ASSERT_FALSE(alone.failed() || found.failed()) << alone.message() << found.message();
  EXPECT_LE(found->evaluation.step, alone->evaluation.step * 1.001);
}

TEST(Search, PartsAreDifferentAndNeverAll) {
  auto made = setUp({90, 45, 20}, 3, 4, 24);
  const SearchOptions options;
  SearchContext context(*made->problem, options);
  const auto parts = subclusters(context, context.devices, 48);
  std::set<std::vector<uint32_t>> seen(parts.begin(), parts.end());
  EXPECT_EQ(seen.size(), parts.size());
  EXPECT_FALSE(seen.count(context.devices));
  EXPECT_TRUE(seen.count({0, 1, 2, 3, 4, 5})); // without the slowest
  EXPECT_TRUE(seen.count({0, 1, 2}));          // only the fastest
  EXPECT_LE(subclusters(context, context.devices, 3).size(), 3u);
}

TEST(Search, SamplesAndUnitsAreExact) {
  for (int64_t batch : {1, 3, 7, 31}) {
    auto made = setUp({80, 30}, 2, 3, batch);
    SearchOptions options;
    options.candidates = 60;
    auto found = searchPlan(*made->problem, options);
    ASSERT_FALSE(found.failed()) << found.message();
    EXPECT_EQ(step::validatePlan(found->plan, made->summary).message(), "");
  }
}

TEST(Search, ImpossibleMemoryIsItemised) {
  auto made = setUp({80, 80}, 1, 4, 8, 50u << 20);
  for (ClusterNode &node : made->cluster.nodes)
    node.hostMemory = 1u << 20; // otherwise techniques would help
  const std::string error = searchPlan(*made->problem, {}).message();
  EXPECT_NE(error.find("no plan fits the memory"), std::string::npos) << error;
  EXPECT_NE(error.find("more than its"), std::string::npos) << error;
  EXPECT_NE(error.find("MiB more than its"), std::string::npos) << error;
  EXPECT_NE(error.find("Changes that make it fit: "), std::string::npos) << error;
}

/// A model with parameters and gradients larger than the memory of all devices.
TEST(Search, ParametersComeByPhaseWhereNothingElseFits) {
  auto made = setUp({80}, 2, 24, 8, 160u << 20);
  double held = 0;
  for (const bundle::FlatGroupInfo &group : made->summary.groups())
    held += static_cast<double>(group.elements()) * 6; // bf16 and f32
  ASSERT_GT(held, 2.0 * (160u << 20));
  std::string error;
  Result<SearchResult> found = searchPlan(*made->problem, {});
  ASSERT_FALSE(found.failed()) << found.message();
  EXPECT_TRUE(found->strategy.memoryOptimizations.reshardAfterForward);
  EXPECT_EQ(found->plan.schedule.kind, step::ScheduleKind::BreadthFirst);
  EXPECT_TRUE(found->plan.reshardAfterForward(0));
  EXPECT_EQ(found->evaluation.shortfallBytes, 0u);
  EXPECT_EQ(step::validatePlan(found->plan, made->summary).message(), "");

  // Messages name the disabled options or the missing memory.
  SearchOptions without;
  without.memoryOptimizations = false;
  error = searchPlan(*made->problem, without).message();
  EXPECT_NE(error.find("parameters gathered by phase"), std::string::npos) << error;
  EXPECT_NE(error.find("disabled by --no-memory-optimizations"), std::string::npos) << error;
  for (ClusterNode &node : made->cluster.nodes)
    node.hostMemory = 1u << 20;
  error = searchPlan(*made->problem, {}).message();
  EXPECT_NE(error.find("hosts with 2.0 GiB of memory each (host_memory in the cluster file), for "
                       "parameters gathered by phase"),
            std::string::npos)
      << error;
}

/// If no plan fits, techniques are used, but not on devices with enough memory.
TEST(Search, TechniquesAnswerMissingMemory) {
  auto made = setUp({80, 80}, 1, 4, 8, 80u << 20);
  Result<SearchResult> found = searchPlan(*made->problem, {});
  ASSERT_FALSE(found.failed()) << found.message();
  EXPECT_TRUE(found->strategy.memoryOptimizations.any());
  EXPECT_EQ(found->evaluation.shortfallBytes, 0u);
  EXPECT_EQ(step::validatePlan(found->plan, made->summary).message(), "");
  EXPECT_TRUE(
      !found->plan.offload.empty() ||
      std::any_of(found->plan.cells.begin(), found->plan.cells.end(), [](const step::Cell &cell) {
        return cell.activations != step::Activations::Keep;
      }));
  auto roomy = setUp({80, 80}, 1, 4, 8, 8u << 30);
  found = searchPlan(*roomy->problem, {});
  ASSERT_FALSE(found.failed()) << found.message();
  EXPECT_FALSE(found->strategy.memoryOptimizations.any());
}

TEST(Search, ExcludedDevicesStayIdle) {
  auto made = setUp({80, 30}, 2, 3, 8);
  SearchOptions options;
  options.candidates = 60;
  options.excluded = {0, 3};
  auto found = searchPlan(*made->problem, options);
  ASSERT_FALSE(found.failed()) << found.message();
  for (const step::Cell &cell : found->plan.cells)
    EXPECT_TRUE(cell.device == 1 || cell.device == 2);
}

/// The cost is minimized with a minimum throughput: only the cheap devices are used if they are
/// fast enough.
TEST(Search, CheapestThatIsFastEnough) {
  auto made = setUp({80, 40}, 1, 3, 16);
  made->cluster.devices[0].price = 10;
  made->cluster.devices[1].price = 1;
  made->costs = must(CostModel::make(made->summary, made->cluster, nullptr, {}));
  SearchOptions options;
  options.candidates = 200;
  options.objective = Objective::CostPerSample;
  Problem problem{made->summary, made->cluster, *made->costs, 16};
  auto cheap = searchPlan(problem, options);
  ASSERT_FALSE(cheap.failed()) << cheap.message();
  EXPECT_EQ(cheap->price, 1);
  options.minThroughput = 16 / cheap->evaluation.step * 1.5;
  auto fast = searchPlan(problem, options);
  ASSERT_FALSE(fast.failed()) << fast.message();
  EXPECT_GT(fast->price, 1);
  EXPECT_GE(16 / fast->evaluation.step, options.minThroughput);
}

/// The search derives its own costs from those of the problem; they include measured times.
TEST(Search, MeasuredTimesDecide) {
  auto made = setUp({80, 40}, 1, 3, 16);
  Profile profile;
  profile.devices.emplace_back();
  profile.devices[0].device = "d0"; // twice as fast by its description
  profile.devices[0].launchOverhead = 1;
  made->costs = must(CostModel::make(made->summary, made->cluster, &profile, {}));
  SearchOptions options;
  options.candidates = 200;
  auto found = searchPlan({made->summary, made->cluster, *made->costs, 16}, options);
  ASSERT_FALSE(found.failed()) << found.message();
  for (const step::Cell &cell : found->plan.cells)
    EXPECT_EQ(found->plan.devices[cell.device].name, "d1");
  EXPECT_LT(found->evaluation.step, 1);
}

/// No subset of the devices gives a cheaper plan, with and without a price limit, also if subsets
/// fit only with memory techniques.
TEST(Search, NoPartIsCheaper) {
  const std::vector<std::vector<uint32_t>> parts = {{0}, {4}, {2, 3}, {4, 5}};
  const std::pair<uint64_t, double> cases[] = {{uint64_t(100) << 20, 4.5},
                                               {uint64_t(40) << 20, 0}}; // memory, maximum price
  for (const auto &[memory, max] : cases) {
    auto made = setUp({80, 40, 20}, 2, 4, 16, memory, 1e9);
    const double prices[] = {4, 3, 1};
    for (ClusterDevice &device : made->cluster.devices)
      device.price = prices[device.node];
    made->cluster.devices[1].memory *= 4;
    made->costs = must(CostModel::make(made->summary, made->cluster, nullptr, {}));
    const Problem problem{made->summary, made->cluster, *made->costs, 16};
    SearchOptions options;
    options.candidates = 16;
    options.objective = Objective::CostPerSample;
    options.maxPrice = max;
    const auto found = searchPlan(problem, options);
    ASSERT_FALSE(found.failed()) << found.message();
    EXPECT_TRUE(max == 0 || found->price <= max) << found->price;
    const double price = found->evaluation.step * found->price;
    for (const std::vector<uint32_t> &part : parts) {
      SearchOptions alone = options;
      for (uint32_t d = 0; d < 6; ++d)
        if (std::find(part.begin(), part.end(), d) == part.end())
          alone.excluded.push_back(d);
      if (const auto other = searchPlan(problem, alone); !other.failed())
        EXPECT_LE(price, 1.02 * other->evaluation.step * other->price)
            << "memory " << memory << ", at most " << max << ", " << part.size()
            << " devices, the first " << part.front();
    }
  }
}

TEST(Search, LimitsThatNothingKeeps) {
  auto made = setUp({80, 40}, 1, 3, 16);
  SearchOptions options;
  options.candidates = 60;
  options.minThroughput = 1e12;
  const std::string error = searchPlan(*made->problem, options).message();
  EXPECT_NE(error.find("no plan reaches 1e+12 samples/s; the best that was found reaches"),
            std::string::npos)
      << error;
}

/// With equal devices and fast links, the search finds the even split.
TEST(Search, EvenWhereAllIsAlike) {
  auto made = setUp({50, 50}, 2, 6, 32, 0, 1e12);
  SearchOptions options;
  options.candidates = 300;
  auto found = searchPlan(*made->problem, options);
  ASSERT_FALSE(found.failed()) << found.message();
  double busiest = 0, sum = 0;
  for (double busy : found->evaluation.busy) {
    busiest = std::max(busiest, busy);
    sum += busy;
  }
  EXPECT_LE(busiest, 1.05 * sum / 4);
  EXPECT_LE(found->evaluation.step, 1.15 * sum / 4);
}

} // namespace
