// Compares the lower bound with values computed by hand.
#include "LlamaShape.h"
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

/// Nodes that compute little because their cards carry little.
TEST(Bound, Bytes) {
  const LlamaShape shape{"small", 4, 256, 512, 4, 4, 1000, 64, bundle::F32};
  const Result<bundle::ModelSummary> made = makeSummary(shape);
  ASSERT_FALSE(made.failed()) << made.message();
  const bundle::ModelSummary &summary = *made;
  Cluster cluster = test::twoNodes();
  auto bound = [&](double bandwidth) {
    Cluster limited = cluster;
    for (bundle::Topology::Node &node : *limited.topology.mutable_nodes())
      node.mutable_nic()->set_bandwidth(bandwidth);
    Result<CostModel> costs = CostModel::make(summary, limited, nullptr, {});
    EXPECT_FALSE(costs.failed()) << costs.message();
    return byteBound({summary, limited, *costs, 8});
  };
  Result<CostModel> costs = CostModel::make(summary, cluster, nullptr, {});
  ASSERT_FALSE(costs.failed()) << costs.message();
  const Problem problem{summary, cluster, *costs, 8};
  const double free = lowerBound(problem), first = lowerBound(problem, {0, 1}),
               second = lowerBound(problem, {2});
  EXPECT_NEAR(bound(0), free, 1e-12); // unlimited
  EXPECT_NEAR(bound(1e15), free, 1e-9);
  // With less bandwidth the bound rises to the time of the faster node alone, which needs no link.
  double last = free;
  for (double bandwidth : {1e12, 1e11, 1e10, 1e9, 1e8, 1e7, 1e6, 1e3}) {
    const double now = bound(bandwidth);
    EXPECT_GE(now, last * (1 - 1e-9)) << bandwidth;
    EXPECT_LE(now, std::min(first, second) * (1 + 1e-6)) << bandwidth;
    last = now;
  }
  EXPECT_NEAR(last, std::min(first, second), 1e-3 * last);
}

} // namespace
