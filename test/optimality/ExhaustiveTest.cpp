// Compares the enumeration with one without pruning, its bounds with the simulator, and its counts
// with counts made by hand.
#include "Must.h"
#include "Optima.h"

#include <gtest/gtest.h>

using namespace zorse;
using namespace zorse::optimality;
using namespace zorse::planning;

namespace {

TEST(Exhaustive, PrunedAndUnprunedAgree) {
  for (uint64_t seed = 1000; seed < 1060; ++seed) {
    auto instance = makeInstance(seed, {3, 2, 4, 4});
    ExhaustiveOptions all;
    all.prune = false;
    Optimum pruned = exhaustive(*instance->problem), unpruned = exhaustive(*instance->problem, all);
    EXPECT_EQ(pruned.feasible, unpruned.feasible) << seed;
    EXPECT_NEAR(pruned.step, unpruned.step, 1e-8 * unpruned.step) << seed;
    EXPECT_LE(pruned.simulated, unpruned.simulated + 256) << seed;
  }
}

TEST(Exhaustive, NothingIsFasterThanItsBound) {
  uint64_t tried = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    auto instance = makeInstance(seed);
    Random random(seed);
    for (int i = 0; i < 20; ++i) {
      std::optional<Strategy> strategy = randomStrategy(*instance, random);
      if (!strategy)
        continue;
      Result<Evaluation> e = evaluate(*instance->problem, makePlan(*instance->problem, *strategy));
      ASSERT_FALSE(e.failed()) << e.message();
      EXPECT_GE(e->step, strategyBound(*instance->problem, *strategy) * (1 - 1e-9))
          << "seed " << seed << ", layout " << i << ", " << instance->describe();
      ++tried;
    }
  }
  EXPECT_GT(tried, 2000u);
}

/// One device has one assignment and one cut; 1 and 2 rows and both schedules give 4 layouts.
TEST(Exhaustive, CountsOfOneDevice) {
  auto instance = makeInstance(0, {2, 1, 3, 4});
  while (instance->cluster.devices.size() > 1) {
    instance->cluster.devices.pop_back();
    instance->cluster.topology.mutable_node_of_device()->RemoveLast();
  }
  instance->costs = must(CostModel::make(instance->summary, instance->cluster, nullptr, {}));
  Problem problem{instance->summary, instance->cluster, *instance->costs, 4};
  ExhaustiveOptions all;
  all.prune = false;
  EXPECT_EQ(exhaustive(problem, all).simulated, 4u);
}

} // namespace
