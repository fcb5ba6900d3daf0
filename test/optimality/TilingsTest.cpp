// Tests the search of tilings and orders: numbers of tilings, and equal results with and without
// pruning.
#include "Tilings.h"
#include "Instances.h"

#include "Exhaustive.h"

#include <gtest/gtest.h>

using namespace zorse;
using namespace zorse::optimality;

namespace {

uint64_t count(int units, int64_t samples) {
  uint64_t n = 0;
  forEachTiling(units, samples, [&](const std::vector<step::Cell> &) { ++n; });
  return n;
}

/// Numbers of dissections of grids into rectangles (OEIS A116694): 1, 2, 4; 8, 34; 322; 4 x 4:
/// 70,878.
TEST(Tilings, AreAllTilings) {
  EXPECT_EQ(count(1, 1), 1u);
  EXPECT_EQ(count(1, 3), 4u);
  EXPECT_EQ(count(2, 2), 8u);
  EXPECT_EQ(count(2, 3), 34u);
  EXPECT_EQ(count(3, 3), 322u);
  EXPECT_EQ(count(4, 4), 70878u);
}

TEST(Tilings, PrunedAndUnprunedAgree) {
  for (uint64_t seed = 3000; seed < 3030; ++seed) {
    auto instance = makeInstance(seed, {2, 2, 2, 2});
    TilingOptions all;
    all.prune = false;
    TilingOptimum pruned = bestTiling(*instance->problem),
                  unpruned = bestTiling(*instance->problem, all);
    EXPECT_EQ(pruned.feasible, unpruned.feasible) << seed;
    EXPECT_NEAR(pruned.step, unpruned.step, 1e-8 * unpruned.step) << seed;
    EXPECT_LE(pruned.simulated, unpruned.simulated) << seed;
    // Layouts are tilings.
    Optimum layouts = exhaustive(*instance->problem);
    if (layouts.feasible && layouts.strategy.state == planning::ShardSizing::Equal) {
      EXPECT_LE(pruned.step, layouts.step * (1 + 1e-8)) << seed;
    }
  }
}

} // namespace
