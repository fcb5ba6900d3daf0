// Tests the efficiency η and its factors: their product, their limits, and that no plan is faster
// than the lower bound.
#include "Optima.h"

#include "LlamaShape.h"
#include "RandomPlan.h"
#include "zorse/Planning/LowerBound.h"

#include <gtest/gtest.h>

using namespace zorse;
using namespace zorse::optimality;
using namespace zorse::planning;

namespace {

void expectSound(const Efficiency &e, const std::string &what) {
  EXPECT_NEAR(e.idle * e.kernel * e.balance * e.recompute * e.bubble * e.exposed, e.eta, 1e-9)
      << what;
  EXPECT_NEAR(e.eta * e.step, e.bound, 1e-9 * e.bound) << what;
  EXPECT_LE(e.bytes, e.step * (1 + 1e-9)) << what;
  EXPECT_GE(e.bytes, e.bound * (1 - 1e-9)) << what;
  for (double factor : {e.eta, e.idle, e.kernel, e.balance, e.recompute, e.bubble, e.exposed}) {
    EXPECT_GT(factor, 0) << what;
    EXPECT_LE(factor, 1 + 1e-9) << what;
  }
}

TEST(Efficiency, OneDevice) {
  auto instance = makeInstance(1008); // several devices: all but one are idle
  Strategy strategy;
  strategy.pipelines.push_back(
      {instance->problem->batch,
       {{0, instance->summary.units_size(), {{0, instance->problem->batch, 1}}}}});
  Result<Efficiency> e = efficiency(*instance->problem, makePlan(*instance->problem, strategy));
  ASSERT_FALSE(e.failed()) << e.message();
  expectSound(*e, instance->describe());
  EXPECT_NEAR(e->bound, lowerBound(*instance->problem), 1e-12);
  EXPECT_NEAR(e->idle, lowerBound(*instance->problem) / lowerBound(*instance->problem, {0}), 1e-9);
  EXPECT_NEAR(e->kernel,
              lowerBound(*instance->problem, {0}) / lowerBound(*instance->problem, {0}, 1), 1e-9);
  EXPECT_NEAR(e->balance, 1, 1e-9); // no other device to share work with
  EXPECT_NEAR(e->bubble, 1, 1e-9);  // no other device to wait for
  EXPECT_LT(e->exposed, 1);         // the update
}

TEST(Efficiency, NoLayoutBeatsTheBound) {
  uint64_t tried = 0;
  for (uint64_t seed = 2000; seed < 2150; ++seed) {
    auto instance = makeInstance(seed);
    Random random(seed);
    for (int i = 0; i < 6; ++i) {
      std::optional<Strategy> strategy = randomStrategy(*instance, random);
      if (!strategy)
        continue;
      Result<Efficiency> e =
          efficiency(*instance->problem, makePlan(*instance->problem, *strategy));
      ASSERT_FALSE(e.failed()) << e.message();
      expectSound(*e, std::to_string(seed) + ": " + instance->describe());
      ++tried;
    }
  }
  EXPECT_GT(tried, 600u);
}

/// Arbitrary tilings, orders and numbers of devices, with split and whole backwards.
TEST(Efficiency, NoRandomPlanBeatsTheBound) {
  LlamaShape shape;
  shape.name = "small";
  shape.layers = 2;
  shape.hidden = 64;
  shape.ffn = 172;
  shape.heads = shape.kvHeads = 2;
  shape.vocabulary = 128;
  shape.sequence = 16;
  shape.computeType = bundle::F32;
  Result<bundle::ModelSummary> summary = makeSummary(shape);
  ASSERT_FALSE(summary.failed()) << summary.message();
  for (uint64_t seed = 0; seed < 1200; ++seed) {
    auto instance = makeInstance(seed);
    const uint32_t devices = static_cast<uint32_t>(instance->cluster.devices.size());
    Result<CostModel> costs = CostModel::make(*summary, instance->cluster, nullptr, {});
    ASSERT_FALSE(costs.failed()) << costs.message();
    const int64_t batch = 1 + static_cast<int64_t>(seed % 9);
    Problem problem{*summary, instance->cluster, *costs, batch};
    step::Plan plan = step::randomPlan(*summary, batch, devices, seed);
    if (plan.schedule.kind != step::ScheduleKind::Explicit)
      plan.schedule.splitBackward = seed % 2;
    Result<Efficiency> e = efficiency(problem, plan);
    ASSERT_FALSE(e.failed()) << "seed " << seed << ": " << e.message();
    expectSound(*e, "seed " + std::to_string(seed));
  }
}

TEST(Efficiency, PlansOfOtherClusters) {
  auto instance = makeInstance(1008);
  Strategy strategy;
  strategy.pipelines.push_back(
      {instance->problem->batch,
       {{0, instance->summary.units_size(), {{0, instance->problem->batch, 1}}}}});
  step::Plan plan = makePlan(*instance->problem, strategy);
  plan.devices[0].name = "unknown";
  EXPECT_EQ(efficiency(*instance->problem, plan).message(),
            "device 'unknown' of the plan is not in the cluster");
  plan = makePlan(*instance->problem, strategy);
  plan.batch += 1;
  EXPECT_TRUE(efficiency(*instance->problem, plan).failed());
  // A plan that lists only the device that it uses has the same values.
  plan = makePlan(*instance->problem, strategy);
  Result<Efficiency> all = efficiency(*instance->problem, plan);
  plan.devices.resize(1);
  Result<Efficiency> one = efficiency(*instance->problem, plan);
  ASSERT_FALSE(all.failed() || one.failed()) << all.message() << one.message();
  EXPECT_NEAR(all->eta, one->eta, 1e-12);
}

} // namespace
