// Compares the best order of small plans with random orders and a case computed by hand, and timed
// schedules with the best order.

#include "ChainModel.h"

#include "ExactOrder.h"
#include "RandomPlan.h"
#include "zorse/Step/StepGraph.h"

#include <gtest/gtest.h>

using namespace zorse;
using namespace zorse::step;
using namespace zorse::test;

namespace {

double timeOf(const bundle::ModelSummary &summary, const Plan &plan, const Costs &costs) {
  TimeOptions options;
  options.costs = &costs;
  auto times = timeStep(summary, plan, options);
  EXPECT_FALSE(times.failed()) << times.message();
  return times.failed() ? 0 : times->stepTime;
}

TEST(ExactOrder, ByHand) {
  // Two equal stages, free links, F 1 and B 2, three samples: (3 + 1) x 3 s.
  std::vector<ChainUnit> units(2, {1, 1, 1, 0, 64});
  auto summary = chainSummary(units);
  ChainCosts costs(units, {1, 1}, oneDevicePerNode(2, 0, 0));
  Plan plan = chainPlan(2, 3);
  EXPECT_NEAR(planning::bestOrder(summary, plan, costs).value_or(0), 12, 1e-9);
  // Split: the first stage's last backward, which is only W, follows the second stage's last B; the
  // second stage's W fill the remaining time. 1 + 3 x 2 on the second device until its last B, then
  // 2 on the first.
  plan.schedule.splitBackward = true;
  EXPECT_NEAR(planning::bestOrder(summary, plan, costs).value_or(0), 10, 1e-9);
  EXPECT_FALSE(planning::bestOrder(summary, plan, costs, 0)) << "out of nodes";
}

TEST(ExactOrder, NoRandomOrderIsBetterAndTimedIsClose) {
  uint32_t state = 7;
  auto uniform = [&](double low, double high) {
    state = state * 1664525 + 1013904223;
    return low + (high - low) * (state >> 8) / double(1 << 24);
  };
  double worstTimed = 0;
  for (int trial = 0; trial < 16; ++trial) {
    int stages = 2 + trial % 2;
    std::vector<ChainUnit> units;
    for (int s = 0; s < stages; ++s)
      units.push_back({uniform(0.5, 1.5), uniform(0.5, 1.5), uniform(0.5, 1.5), 0, 64});
    auto summary = chainSummary(units);
    ChainCosts costs(units, std::vector<double>(units.size(), 1),
                     oneDevicePerNode(units.size(), 0, uniform(0, 1)));
    Plan plan = chainPlan(stages, 3);
    plan.schedule.splitBackward = trial % 4 == 3;
    auto best = planning::bestOrder(summary, plan, costs);
    ASSERT_TRUE(best);
    for (uint64_t seed = 1; seed <= 400; ++seed) {
      Plan other = plan;
      randomOrder(other, seed);
      ASSERT_GE(timeOf(summary, other, costs), *best * (1 - 1e-9));
    }
    double timed = 1e300;
    for (double factor : {1.0, 1.5, 2.0, 4.0}) {
      Plan other = plan;
      other.schedule.kind = ScheduleKind::SteadyState;
      other.schedule.inFlightFactor = factor;
      timed = std::min(timed, timeOf(summary, other, costs));
    }
    worstTimed = std::max(worstTimed, timed / *best - 1);
  }
  EXPECT_LT(worstTimed, 0.05);
}

} // namespace
