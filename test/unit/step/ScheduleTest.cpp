// Tests schedules: 1F1B counted in samples never deadlocks on stages, keeps few cells alive, and
// takes the expected time.

#include "SummaryFunctions.h"
#include "SyntheticModel.h"

#include "RandomPlan.h"
#include "zorse/Base/Apportion.h"
#include "zorse/Step/AssignMicroBatches.h"
#include "zorse/Step/Plan.h"
#include "zorse/Step/Schedules.h"
#include "zorse/Step/StepGraph.h"

// The order of one schedule is not a public function.
#include "../../../lib/Step/PlanLowering.h"
#include "../../../lib/Step/Tables.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <map>
#include <random>
#include <set>

using namespace zorse;
using namespace zorse::step;
using namespace zorse::test;

namespace {

void makeEqual(bundle::ModelSummary &summary) {
  for (int u = 0; u < summary.units_size(); ++u) {
    test::mutableFunction(summary, u, bundle::UnitFunction::FORWARD).set_flops_per_row(1e6);
    test::mutableFunction(summary, u, bundle::UnitFunction::BACKWARD).set_flops_per_row(2e6);
  }
}

Plan stages(int devices, int64_t batch) {
  Plan plan;
  plan.batch = batch;
  for (int d = 0; d < devices; ++d)
    plan.devices.push_back({"d" + std::to_string(d), 1e9, 0, ""});
  return plan;
}

TEST(Schedule, OneForwardOneBackwardKeepsFewCellsAlive) {
  auto summary = syntheticModel();
  makeEqual(summary);
  Plan plan = stages(3, 16);
  for (uint32_t s = 0; s < 3; ++s)
    assignMicroBatches(2 * s, 2 * s + 2, 0, {{s, 16, 2}}, plan.cells);
  auto graph = lowerPlan(summary, plan);
  ASSERT_FALSE(graph.failed()) << graph.message();
  for (uint32_t s = 0; s < 3; ++s)
    EXPECT_EQ(graph->devices[s].memory.peakInFlightCells, 3 - s);
  // 8 micro-batches plus 2 of ramp-up and ramp-down, each 2 units x 2 rows x (1 + 2) ms; launches
  // and updates are small.
  EXPECT_NEAR(graph->stepTime, (8 + 2) * 2 * 2 * 3e-3, 2e-3);

  plan.schedule.kind = ScheduleKind::GPipe;
  auto gpipe = lowerPlan(summary, plan);
  ASSERT_FALSE(gpipe.failed()) << gpipe.message();
  EXPECT_EQ(gpipe->devices[2].memory.peakInFlightCells, 8u);
  EXPECT_NEAR(gpipe->stepTime, graph->stepTime, 2e-3);
  EXPECT_GT(gpipe->devices[0].plannedBytes, graph->devices[0].plannedBytes);
}

/// Several chunks on a device: pipelines do not wait for each other.
TEST(Schedule, PipelinesOfChunksRunTogether) {
  auto summary = syntheticModel();
  makeEqual(summary);
  auto stepOf = [&](uint32_t replicas) {
    Plan plan = stages(int(replicas), 4 * replicas);
    for (uint32_t d = 0; d < replicas; ++d)
      for (int32_t chunk = 0; chunk < 3; ++chunk)
        assignMicroBatches(2 * chunk, 2 * chunk + 2, 4 * d, {{d, 4, 1}}, plan.cells);
    auto graph = lowerPlan(summary, plan);
    EXPECT_FALSE(graph.failed()) << graph.message();
    for (uint32_t d = 0; d < replicas; ++d)
      EXPECT_LE(graph->devices[d].memory.peakInFlightCells, 3u * 3);
    return graph->stepTime;
  };
  const double alone = stepOf(1); // 4 micro-batches of 6 units, each (1 + 2) ms
  EXPECT_NEAR(alone, 4 * 6 * 3e-3, 2e-3);
  EXPECT_NEAR(stepOf(8), alone, 2e-3);
}

/// Counted in samples, the order of stages does not deadlock on any uneven grid; lowerPlan never
/// needs the fallback to list scheduling.
TEST(Schedule, OneForwardOneBackwardRunsOnUnevenGrids) {
  auto summary = syntheticModel();
  std::mt19937 random(1);
  auto below = [&](uint32_t n) { return static_cast<int64_t>(random() % n); };
  for (int trial = 0; trial < 1000; ++trial) {
    int64_t batch = 1 + below(24);
    int count = static_cast<int>(1 + below(4));
    Plan plan = stages(count * 3, batch);
    std::vector<int32_t> cuts{0, 6};
    while (static_cast<int>(cuts.size()) < count + 1) {
      int32_t cut = static_cast<int32_t>(1 + below(5));
      if (std::find(cuts.begin(), cuts.end(), cut) == cuts.end())
        cuts.push_back(cut);
    }
    std::sort(cuts.begin(), cuts.end());
    for (int s = 0; s < count; ++s) {
      std::vector<double> weights;
      for (int i = 0; i < 3; ++i)
        weights.push_back(static_cast<double>(i == 0 ? 1 + below(5) : below(4)));
      std::vector<int64_t> samples = apportion(batch, weights);
      std::vector<StageDevice> devices;
      for (int i = 0; i < 3; ++i)
        devices.push_back({static_cast<uint32_t>(3 * s + i), samples[i], 1 + below(5)});
      assignMicroBatches(cuts[s], cuts[s + 1], 0, devices, plan.cells);
    }
    ASSERT_EQ(validatePlan(plan, summary).message(), "");
    LoweringOptions options;
    const std::unique_ptr<Costs> costs = planCosts(summary, plan);
    options.costs = costs.get();
    LoweringTables tables(summary, nullptr, options.costs);
    PlanLowering x(summary, plan, options, tables);
    layoutState(x);
    ASSERT_EQ(lowerCells(x).message(), "");
    lowerState(x);
    linkEdges(x.edges, x.ops.size(), x.next);
    x.order.reset(x);
    EXPECT_EQ(scheduleRule(ScheduleKind::OneForwardOneBackward).order(x, {}, x.order),
              DeadlockFreedom::MustCheck);
    EXPECT_EQ(simulate(x, x.order, x.globalOrder).message(), "") << writePlan(plan, summary);
  }
}

/// Chunks in a ring (interleaving) are not stages. List scheduling keeps the devices busy and
/// bounds the number of live cells.
TEST(Schedule, InterleavedChunks) {
  auto summary = syntheticModel();
  makeEqual(summary);
  Plan plan = stages(2, 32);
  for (int32_t chunk = 0; chunk < 6; ++chunk)
    assignMicroBatches(chunk, chunk + 1, 0, {{static_cast<uint32_t>(chunk % 2), 32, 1}},
                       plan.cells);
  auto graph = lowerPlan(summary, plan);
  ASSERT_FALSE(graph.failed()) << graph.message();
  for (const DeviceProgram &device : graph->devices) {
    EXPECT_GT(device.busy / graph->stepTime, 0.9);
    EXPECT_LT(device.memory.peakInFlightCells, 40u); // of 96
  }
}

/// A plan in laps: `devices` devices of equal speed, each with `laps` ranges of one unit, and one
/// row per cell.
Plan lapsPlan(int devices, int laps, int64_t batch, bool folded) {
  Plan plan = stages(devices, batch);
  for (int32_t chunk = 0; chunk < devices * laps; ++chunk) {
    int lap = chunk / devices, at = chunk % devices;
    assignMicroBatches(
        chunk, chunk + 1, 0,
        {{static_cast<uint32_t>(folded && lap % 2 ? devices - 1 - at : at), batch, 1}}, plan.cells);
  }
  plan.schedule.kind = folded ? ScheduleKind::Wave : ScheduleKind::Interleaved;
  return plan;
}

/// With laps, filling and draining the pipeline takes (devices - 1) / laps of a device's forward
/// and backward of one row, a fraction of the time with whole stages.
TEST(Schedule, LapsTakeTheTimeTheyShould) {
  for (bool folded : {false, true})
    for (int devices : {2, 3, 4, 8})
      for (int laps : {2, 4}) {
        auto summary = syntheticModel(devices * laps);
        makeEqual(summary);
        const int64_t batch = 6 * devices;
        Plan plan = lapsPlan(devices, laps, batch, folded);
        auto graph = lowerPlan(summary, plan);
        ASSERT_FALSE(graph.failed()) << graph.message();
        const double unit = 3e-3, busy = static_cast<double>(batch * laps) * unit;
        // With whole stages, a device is idle during the first forwards and last backwards of the
        // other devices; in laps, only during those of one range of units.
        const double bubble = (devices - 1) * unit, stagesBubble = bubble * laps;
        EXPECT_LT(graph->stepTime, busy + bubble + 0.35 * stagesBubble)
            << plan.devices.size() << " devices, " << laps << " laps, folded " << folded;
        // The micro-batches that keep all devices busy, not the whole batch.
        for (const DeviceProgram &device : graph->devices)
          EXPECT_LE(device.memory.peakInFlightCells, static_cast<uint32_t>(2 * devices * laps));
        plan.schedule.inFlightFactor = 0.01; // few micro-batches in flight: slow, but no deadlock
        auto alone = lowerPlan(summary, plan);
        ASSERT_FALSE(alone.failed()) << alone.message();
        EXPECT_GT(alone->stepTime, graph->stepTime);
        EXPECT_EQ(readPlan(writePlan(plan, summary), summary)->schedule, plan.schedule);
      }
}

TEST(Schedule, LapsNeedTheirTiling) {
  auto summary = syntheticModel(6);
  auto mistake = [&](const Plan &plan) { return validatePlan(plan, summary).message(); };
  Plan ring = lapsPlan(2, 3, 4, /*folded=*/false), folded = lapsPlan(2, 3, 4, /*folded=*/true);
  std::swap(ring.schedule, folded.schedule);
  EXPECT_EQ(mistake(ring), "schedule \"wave\": expected units 2-3 on the devices of units 1-2 "
                           "(d1), as laps go back and forth, found d0; schedule "
                           "\"steady_state\" takes any tiling");
  EXPECT_EQ(mistake(folded), "schedule \"interleaved\": expected units 2-3 on the devices of units "
                             "0-1 (d0), as laps of a ring go around, found d1; "
                             "schedule \"steady_state\" takes any tiling");
  Plan single = stages(2, 4);
  single.schedule.kind = ScheduleKind::Interleaved;
  assignMicroBatches(0, 3, 0, {{0, 4, 1}}, single.cells);
  assignMicroBatches(3, 6, 0, {{1, 4, 1}}, single.cells);
  EXPECT_NE(mistake(single).find("one range on each: \"1f1b\" is the schedule"), std::string::npos);
  Plan uneven = stages(2, 4);
  uneven.schedule.kind = ScheduleKind::Wave;
  uneven.cells = {{0, 3, 0, 2, 0}, {3, 6, 0, 2, 1}, {0, 2, 2, 4, 0}, {2, 6, 2, 4, 1}};
  EXPECT_NE(mistake(uneven).find("expected the same cuts between units for all samples, found "
                                 "cells of units 0-2 and of units 0-3"),
            std::string::npos);
}

/// docs/plan.schema.json lists exactly the existing schedules with their parameters.
TEST(Schedule, JsonSchemaNamesTheTable) {
  std::ifstream file(std::string(ZORSE_SOURCE_DIR) + "/docs/plan.schema.json");
  const nlohmann::json forms =
      nlohmann::json::parse(file).at("properties").at("schedule").at("oneOf");
  std::map<std::string, std::set<std::string>> written, known;
  std::set<std::string> names = forms.at(0).at("enum");
  for (const auto &form : forms)
    if (form.contains("properties") && form["properties"].contains("name"))
      for (auto &[key, value] : form["properties"].items())
        written[form["properties"]["name"]["const"]].insert(key);
  for (const ScheduleRule *rule : namedSchedules()) {
    EXPECT_EQ(findSchedule(rule->name), rule);
    EXPECT_TRUE(names.erase(rule->name)) << rule->name;
    known[rule->name].insert("name");
    for (const ScheduleParameter &parameter : rule->parameters)
      known[rule->name].insert(parameter.key);
  }
  EXPECT_TRUE(names.empty());
  EXPECT_EQ(written, known);
}

/// timeStep() returns the times and the peak live memory of the full expansion.
TEST(Schedule, TimesAgreeWithTheFullExpansion) {
  for (int units : {2, 6, 9})
    for (uint64_t seed = 1; seed <= 250; ++seed) {
      auto summary = syntheticModel(units);
      Plan plan = randomPlan(summary, 1 + static_cast<int64_t>(seed % 13),
                             1 + static_cast<uint32_t>(seed % 7), seed);
      auto full = lowerPlan(summary, plan);
      ASSERT_FALSE(full.failed()) << full.message();
      LoweringOptions options;
      options.checkMemory = false;
      if (seed % 3 == 0) { // reduced memory: timed orders then admit fewer samples
        for (uint32_t d = 0; d < plan.devices.size(); ++d)
          plan.devices[d].memory = full->devices[d].memory.peakLiveBytes * 19 / 20 + 1;
        if (plan.schedule.kind == ScheduleKind::SteadyState)
          continue; // ordered again if the packed arena does not fit, which may need slightly more
                    // than the peak
        full = lowerPlan(summary, plan, options);
        ASSERT_FALSE(full.failed()) << full.message();
      }
      auto quick = timeStep(summary, plan);
      ASSERT_FALSE(quick.failed()) << quick.message();
      ASSERT_EQ(quick->stepTime, full->stepTime) << writePlan(plan, summary);
      ASSERT_EQ(quick->numInstructions, full->numInstructions);
      for (uint32_t d = 0; d < plan.devices.size(); ++d) {
        ASSERT_EQ(quick->devices[d].memory.peakLiveBytes, full->devices[d].memory.peakLiveBytes)
            << plan.devices[d].name << "\n"
            << writePlan(plan, summary);
        ASSERT_EQ(quick->devices[d].memory.peakInFlightCells,
                  full->devices[d].memory.peakInFlightCells)
            << plan.devices[d].name << "\n"
            << writePlan(plan, summary);
        ASSERT_EQ(quick->devices[d].busy, full->devices[d].busy);
      }
    }
}

} // namespace
