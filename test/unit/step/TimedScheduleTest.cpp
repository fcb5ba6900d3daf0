// Tests schedules that use times: they hide slow links, respect memory, and fill gaps with W.

#include "ChainModel.h"

#include "zorse/Step/AssignMicroBatches.h"
#include "zorse/Step/StepGraph.h"

#include <gtest/gtest.h>

using namespace zorse;
using namespace zorse::step;
using namespace zorse::test;

namespace {

constexpr int64_t kSaved = 1 << 20;

/// Four equal stages with F of 1 s, B of 1 + 1 s, and `latency` between neighbors.
struct Pipeline {
  explicit Pipeline(double latency, int64_t batch = 24, double bandwidth = 0)
      : units(4, {1, 1, 1, kSaved, 64}), summary(chainSummary(units)),
        costs(units, {1, 1, 1, 1}, oneDevicePerNode(4, bandwidth, latency)) {
    plan.batch = batch;
    for (uint32_t s = 0; s < 4; ++s) {
      plan.devices.push_back({"d" + std::to_string(s), 1, 0, ""});
      assignMicroBatches(static_cast<int32_t>(s), static_cast<int32_t>(s) + 1, 0, {{s, batch, 1}},
                         plan.cells);
    }
  }
  StepGraph expand(ScheduleKind kind, double inFlight = 1, bool split = false) {
    plan.schedule.kind = kind;
    plan.schedule.inFlightFactor = inFlight;
    plan.schedule.splitBackward = split;
    LoweringOptions options;
    options.costs = &costs;
    auto graph = lowerPlan(summary, plan, options);
    EXPECT_FALSE(graph.failed()) << graph.message();
    return graph.failed() ? StepGraph() : std::move(*graph);
  }
  std::vector<ChainUnit> units;
  bundle::ModelSummary summary;
  ChainCosts costs;
  Plan plan;
};

TEST(TimedSchedule, HidesSlowLinks) {
  Pipeline p(2);
  double bound = 24 * 3 + 3 * (3 + 2 * 2);
  double plain = p.expand(ScheduleKind::OneForwardOneBackward).stepTime,
         timed = p.expand(ScheduleKind::SteadyState, 1).stepTime;
  EXPECT_GT(plain, bound * 1.3) << "1F1B waits for the links";
  EXPECT_LT(timed, bound * 1.06);
  // Launch counts that hide the links: 24 s for the round trip over 3 s for the first stage, two or
  // three samples fewer for each later one.
  p.plan.schedule.warmupForwards = {9, 6, 4, 1};
  EXPECT_LT(p.expand(ScheduleKind::OneForwardOneBackward).stepTime, bound * 1.08);
}

TEST(TimedSchedule, HoldsNoMoreSamplesThanTheSteadyStateNeeds) {
  Pipeline p(0);
  StepGraph graph = p.expand(ScheduleKind::SteadyState, 1);
  for (uint32_t s = 0; s < 4; ++s)
    EXPECT_LE(graph.devices[s].memory.peakInFlightCells, 5 - s) << s;
  EXPECT_NEAR(graph.stepTime, (24 + 3) * 3, 3.1);
}

/// A plan that fits with some order is accepted: memory for a few micro-batches, although the links
/// would need nine in flight.
TEST(TimedSchedule, MemoryLimitsWhatIsInFlight) {
  for (uint32_t max : {1, 2, 3, 5})
    for (bool split : {false, true}) {
      Pipeline p(2);
      EXPECT_GT(p.expand(ScheduleKind::SteadyState, 2, split).devices[0].memory.peakInFlightCells,
                5u);
      for (PlanDevice &device : p.plan.devices)
        device.memory = static_cast<uint64_t>(max) * kSaved + kSaved / 4;
      StepGraph graph = p.expand(ScheduleKind::SteadyState, 2, split);
      for (const DeviceProgram &device : graph.devices) {
        EXPECT_LE(device.memory.peakInFlightCells, max);
        EXPECT_LE(device.memory.total, p.plan.devices[0].memory);
      }
      EXPECT_EQ(graph.devices[0].memory.peakInFlightCells, max) << "all that memory holds";
    }
}

/// Cells that wait for their backward occupy only the memory of their saved tensors. Tensors saved
/// for W occupy memory from the backward on. With memory for a few samples and one deferred block,
/// these samples are admitted, and backwards wait for W if there is no memory for another block.
TEST(TimedSchedule, DeferredBlocksTakeMemoryFromTheBackwardOn) {
  constexpr int64_t kDeferred = 3 * kSaved / 2;
  for (uint32_t max : {2, 3, 5}) {
    Pipeline p(2);
    for (auto &unitClass : *p.summary.mutable_classes())
      unitClass.mutable_saved_for_weight_grad_bytes()->set_per_row(kDeferred);
    for (PlanDevice &device : p.plan.devices)
      device.memory = static_cast<uint64_t>(max) * kSaved + kDeferred + kSaved / 4;
    StepGraph graph = p.expand(ScheduleKind::SteadyState, 2, true);
    EXPECT_EQ(graph.devices[1].memory.peakInFlightCells, max); // the first unit does not split
    for (const DeviceProgram &device : graph.devices)
      EXPECT_LE(device.memory.total, p.plan.devices[0].memory);
    double limited = graph.stepTime;
    for (PlanDevice &device : p.plan.devices)
      device.memory += (max - 1) * kDeferred; // as if they were allocated from the start
    EXPECT_LE(p.expand(ScheduleKind::SteadyState, 2, true).stepTime, limited + 1e-9);
  }
}

TEST(TimedSchedule, WeightGradientsFillTheGaps) {
  Pipeline p(0, 8);
  for (ScheduleKind kind : {ScheduleKind::SteadyState, ScheduleKind::OneForwardOneBackward}) {
    double whole = p.expand(kind, 2).stepTime, split = p.expand(kind, 2, true).stepTime;
    EXPECT_NEAR(whole, (8 + 3) * 3, 3.1);
    EXPECT_LT(split, whole - 2);
    EXPECT_GE(split, 8 * 3 + 3); // the last stage starts after three forwards
  }
}

/// Simultaneous sends of a device share its NIC; the simulated times of the instructions include
/// this.
TEST(TimedSchedule, TransfersTakeWhatTheLinkTakes) {
  Pipeline p(0.5, 4, /*bandwidth=*/128);
  StepGraph graph = p.expand(ScheduleKind::GPipe);
  int sends = 0;
  for (const Instruction &instruction : graph.instructions)
    if (instruction.kind == InstructionKind::Send) {
      ++sends;
      EXPECT_NEAR(instruction.plannedEnd - instruction.plannedStart, 64.0 / 128 + 0.5, 1e-9);
    }
  EXPECT_EQ(sends, 2 * 3 * 4);
}

} // namespace
