// Compares the lower bound with values computed by hand.
#include "PlanningTestSupport.h"

#include "zorse/Planning/LowerBound.h"

#include <gtest/gtest.h>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// Seconds per unit and sample. The fast devices read and write 4e6 bytes at 1 GB/s and make two
/// calls of 10 us for 8 samples. The slow one computes 3 · 128e6 FLOPs (head: 3 · 512e6) at 0.25
/// TFLOP/s; the embedding has no FLOPs.
constexpr double kFast = 4e-3 + 2e-5 / 8, kSlowBlock = 3 * 128e6 / 0.25e12,
                 kSlowHead = 3 * 512e6 / 0.25e12;

TEST(Bound, ByHand) {
  bundle::ModelSummary summary = test::chain();
  Cluster cluster = test::twoNodes();
  Result<CostModel> costs = CostModel::make(summary, cluster, nullptr, {});
  ASSERT_FALSE(costs.failed()) << costs.message();
  Problem problem{summary, cluster, *costs, 8};
  EXPECT_NEAR(lowerBound(problem, {2}), 8 * (2 * kSlowBlock + kSlowHead), 1e-12);
  EXPECT_NEAR(lowerBound(problem, {0}), 8 * 4 * kFast, 1e-12);
  EXPECT_NEAR(lowerBound(problem, {0, 1}), 8 * 2 * kFast, 1e-12);
  // A smaller maximum of rows needs more calls.
  EXPECT_NEAR(lowerBound(problem, {0}, 2), 8 * 4 * (4e-3 + 2e-5 / 2), 1e-12);
  // All three devices: the slow one is faster on blocks and computes x of the 16; the fast ones
  // compute the rest and 8 heads; the embedding is free.
  double x = 24 * kFast / 2 / (kSlowBlock + kFast / 2);
  EXPECT_NEAR(lowerBound(problem), x * kSlowBlock, 1e-9);
  EXPECT_LT(x, 16);
}

/// The bound uses split backwards if the two parts take less time than the whole.
TEST(Bound, SplitBackwardsCount) {
  bundle::ModelSummary summary = test::chain();
  test::mutableFunction(summary, 1, bundle::UnitFunction::WEIGHT_GRADIENTS).set_flops_per_row(0);
  test::mutableFunction(summary, 2, bundle::UnitFunction::WEIGHT_GRADIENTS).set_flops_per_row(0);
  Cluster cluster = test::twoNodes();
  Result<CostModel> costs = CostModel::make(summary, cluster, nullptr, {});
  ASSERT_FALSE(costs.failed()) << costs.message();
  Problem problem{summary, cluster, *costs, 8};
  EXPECT_NEAR(lowerBound(problem, {2}), 8 * (2 * (1 + 1.25) * 128e6 / 0.25e12 + kSlowHead), 1e-12);
}

} // namespace
