// Simulates the programs of random plans: the first step takes the time that the expansion
// predicted.
#include "RandomCases.h"
#include "RealPrograms.h"

#include "zorse/Planning/CostModel.h"
#include "zorse/Step/StepGraph.h"
#include "zorse/runtime/Simulation.h"

#include <algorithm>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

using namespace zorse;

namespace {

/// Devices of different speeds on nodes of two sites; every link is slow enough to affect some
/// steps.
planning::Cluster randomCluster(const step::Plan &plan, uint64_t seed) {
  std::mt19937_64 random(seed);
  auto between = [&](double low, double high) {
    return low * std::pow(high / low, double(random() >> 11) * 0x1p-53);
  };
  planning::Cluster cluster;
  bundle::Topology &t = cluster.topology;
  auto link = [&](bundle::LinkSpec *l, double low, double high) {
    l->set_bandwidth(random() % 4 ? between(low, high) : 0);
    l->set_latency(random() % 2 ? between(1e-7, 1e-5) : 0);
    l->set_per_flow_bandwidth(random() % 4 ? 0 : between(low, high));
  };
  for (const char *name : {"east", "west"}) {
    auto *site = t.add_sites();
    site->set_name(name);
    link(site->mutable_fabric(), 1e8, 1e10);
    link(site->mutable_uplink(), 1e7, 1e9);
  }
  link(t.mutable_between_sites(), 1e7, 1e9);
  for (size_t d = 0; d < plan.devices.size(); ++d) {
    if (d == 0 || random() % 2) {
      auto *node = t.add_nodes();
      node->set_name("n" + std::to_string(cluster.nodes.size()));
      node->set_site(uint32_t(random() % 2));
      link(node->mutable_port(), 1e8, 1e10);
      link(node->mutable_bus(), 1e8, 1e10);
      link(node->mutable_nic(), 1e8, 1e9);
      cluster.nodes.push_back({node->name(), 0, 0, 0, 0, 0});
    }
    planning::ClusterDevice device;
    device.name = plan.devices[d].name;
    device.kind = random() % 2 ? "sim" : "cpu";
    device.node = uint32_t(cluster.nodes.size() - 1);
    device.flopsPerSecond[0] = between(1e8, 1e10);
    cluster.devices.push_back(device);
    t.add_node_of_device(device.node);
  }
  return cluster;
}

TEST(SimulationOfPrograms, FirstStepIsTheExpansions) {
  constexpr uint64_t kCases = 60;
  double worst = 0;
  int delayedCases = 0, laterCases = 0;
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    test::RandomCase drawn = test::randomCase(seed, nullptr, 1 + int(seed % 3));
    planning::Cluster cluster = randomCluster(drawn.plan, seed);
    cluster.topology.set_pairwise_sums(true); // levels: LevelsAreNearTheExpansion
    planning::Profile profile;
    for (const step::PlanDevice &device : drawn.plan.devices) { // the CPU of every second device
                                                                // moves bytes itself
      profile.devices.emplace_back();
      profile.devices.back().device = device.name;
      profile.devices.back().communicationPerByte = profile.devices.size() % 2 ? 1e-9 : 0;
    }
    auto costs = planning::CostModel::make(drawn.model.summary, cluster,
                                           seed % 2 ? &profile : nullptr, drawn.plan.devices);
    ASSERT_FALSE(costs.failed()) << costs.message();
    test::RealCase real;
    real.model = drawn.model;
    double stepTime = 0;
    ASSERT_EQ(test::makePrograms(real, drawn.plan, &*costs, &stepTime).message(), "")
        << "seed " << seed;
    runtime::Bundle bundle;
    bundle.summary = drawn.model.summary;
    bundle.programs = real.programs;
    for (const step::PlanDevice &device : drawn.plan.devices)
      bundle.devices.push_back({device.name, "sim", 1, 0}); // one thread per queue, as in the
                                                            // expansion
    bundle.topology = costs->topology();
    runtime::Result<runtime::Simulation> simulation = runtime::simulatePrograms(bundle, {});
    ASSERT_FALSE(simulation.failed()) << simulation.message();
    double difference = std::abs(simulation->firstStep / stepTime - 1);
    // Programs do not contain all delays of the expansion. It may delay cells until other cells
    // have freed memory (1f1b on tilings that are not stages, timed, laps), and copies from the
    // host until an update is decided or a backward needs them. If communication blocks, it may
    // also delay arrivals after the sends of a queue.
    const bool offloads = std::any_of(
        drawn.plan.cells.begin(), drawn.plan.cells.end(),
        [](const step::Cell &cell) { return cell.activations == step::Activations::Offload; });
    bool delayed = (drawn.plan.schedule.kind != step::ScheduleKind::GPipe &&
                    drawn.plan.schedule.kind != step::ScheduleKind::Explicit) ||
                   !drawn.plan.offload.empty() ||
                   drawn.plan.communication != step::Communication::Overlapped || offloads;
    bool earlier = delayed && simulation->firstStep < stepTime;
    // A transfer over a short link completes only after earlier receives of its queue over longer
    // links. Orders by time place a receive at its arrival time in the expansion and are therefore
    // affected most.
    const bool byTime = drawn.plan.schedule.kind == step::ScheduleKind::SteadyState ||
                        drawn.plan.schedule.kind == step::ScheduleKind::Wave;
    const double maxLater = byTime ? 0.2 : 0.1;
    bool later = difference > 0.01 && simulation->firstStep > stepTime;
    laterCases += later;
    EXPECT_LE(earlier ? 0 : difference, later ? maxLater : 0.01)
        << "seed " << seed << ", " << drawn.kind << ", " << drawn.schedule << ": "
        << simulation->firstStep << " s, expected " << stepTime;
    delayedCases += earlier && difference > 0.01;
    EXPECT_LE(simulation->step, simulation->firstStep * 1.01) << "seed " << seed;
    if (!earlier && !later)
      worst = std::max(worst, difference);

    // If one thread does all communication, no program is faster, and every program completes.
    for (runtime::BundleDevice &device : bundle.devices)
      device.kind = "cpu";
    simulation = runtime::simulatePrograms(bundle, {});
    ASSERT_FALSE(simulation.failed()) << simulation.message();
    if (!earlier)
      EXPECT_GE(simulation->firstStep, stepTime * 0.99) << "seed " << seed;
  }
  EXPECT_LE(delayedCases, int(kCases / 4));
  EXPECT_LE(laterCases, int(kCases / 10));
  printf("%llu plans on random networks: the first step differs by at most %.4f %%, except for %d "
         "that begin cells earlier than their list and %d where "
         "arrivals wait for earlier ones\n",
         (unsigned long long)kCases, worst * 100, delayedCases, laterCases);
}

/// Exchanges of a sum's levels run on links that the next step's transfers use, too, in the order
/// of the first step. Single steps are therefore not as near as those with one exchange per sum.
TEST(SimulationOfPrograms, LevelsAreNearTheExpansion) {
  constexpr uint64_t kCases = 60;
  double worst = 0, longest = 0;
  int away = 0;
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    test::RandomCase drawn = test::randomCase(seed, nullptr, 1 + int(seed % 3));
    const bool offloads = std::any_of(
        drawn.plan.cells.begin(), drawn.plan.cells.end(),
        [](const step::Cell &cell) { return cell.activations == step::Activations::Offload; });
    if (drawn.plan.schedule.kind != step::ScheduleKind::GPipe || !drawn.plan.offload.empty() ||
        drawn.plan.communication != step::Communication::Overlapped || offloads)
      continue; // programs do not contain all delays of the others
    const planning::Cluster cluster = randomCluster(drawn.plan, seed);
    auto costs =
        planning::CostModel::make(drawn.model.summary, cluster, nullptr, drawn.plan.devices);
    ASSERT_FALSE(costs.failed()) << costs.message();
    test::RealCase real;
    real.model = drawn.model;
    double stepTime = 0;
    ASSERT_EQ(test::makePrograms(real, drawn.plan, &*costs, &stepTime).message(), "");
    runtime::Bundle bundle;
    bundle.summary = drawn.model.summary;
    bundle.programs = real.programs;
    for (const step::PlanDevice &device : drawn.plan.devices)
      bundle.devices.push_back({device.name, "sim", 1, 0});
    bundle.topology = costs->topology();
    const auto simulation = runtime::simulatePrograms(bundle, {});
    ASSERT_FALSE(simulation.failed()) << simulation.message();
    const double difference = std::abs(simulation->firstStep / stepTime - 1);
    worst = std::max(worst, difference);
    longest = std::max(longest, simulation->step / simulation->firstStep);
    away += difference > 0.01;
    EXPECT_LE(difference, 0.1) << "seed " << seed;
    EXPECT_LE(simulation->step, simulation->firstStep * 1.05) << "seed " << seed;
  }
  EXPECT_LE(away, 4);
  printf("the first step differs by at most %.2f %%, by more than 1 %% in %d cases; a later step "
         "takes at most %.3f of it\n",
         worst * 100, away, longest);
}

} // namespace
