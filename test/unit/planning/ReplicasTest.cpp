// Which pipelines are replicas: hand-made clusters of pairs of devices, one pipeline for each pair.

#include "Layout/Replicas.h"

#include "SearchSetup.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

using namespace zorse;
using namespace zorse::planning;

namespace {

using Pairs = std::vector<std::pair<uint32_t, uint32_t>>;

/// `count` pipelines of two stages; devices 2 p and 2 p + 1 belong to pipeline p.
struct Pipelines {
  std::unique_ptr<Setup> setup;
  Strategy strategy;

  Pipelines(int count, int devicesOfNode)
      : setup(setUp(std::vector<double>(size_t(2 * count / devicesOfNode), 80), devicesOfNode, 3,
                    8 * count)) {
    for (uint32_t p = 0; p < uint32_t(count); ++p)
      strategy.pipelines.push_back(
          {8, {{0, 4, {{2 * p, 8, 2}}}, {4, setup->summary.units_size(), {{2 * p + 1, 8, 2}}}}});
  }
  bundle::Topology &topology() { return setup->cluster.topology; }
  step::StageDevice &device(size_t pipeline, size_t stage) {
    return strategy.pipelines[pipeline].stages[stage].members[0];
  }
  ReplicaFinder found() const {
    ReplicaFinder finder(*setup->problem);
    finder.find(strategy);
    return finder;
  }
  /// For every pipeline, whether it is a replica.
  std::vector<bool> replicas() const {
    const ReplicaFinder finder = found();
    std::vector<bool> list;
    list.reserve(strategy.pipelines.size());
    for (size_t p = 0; p < strategy.pipelines.size(); ++p)
      list.push_back(finder.isReplica(p));
    return list;
  }
};

using Replicas = std::vector<bool>;

TEST(Replicas, EqualPipelinesOnTheirOwnNodes) {
  const Pipelines three(3, 2);
  EXPECT_EQ(three.replicas(), (Replicas{false, true, true}));
  const ReplicaFinder finder = three.found();
  EXPECT_EQ(finder.devices(), (Pairs{{0, 2}, {0, 4}, {1, 3}, {1, 5}}));
  std::vector<uint32_t> of;
  for (uint32_t device : {0, 1, 2})
    finder.each(device, [&](uint32_t replica) { of.push_back(replica); });
  EXPECT_EQ(of, (std::vector<uint32_t>{2, 4, 3, 5}));
}

TEST(Replicas, ForgottenOnes) {
  const Pipelines two(2, 2);
  ReplicaFinder finder = two.found();
  finder.forget(two.strategy);
  EXPECT_FALSE(finder.isReplica(1));
  EXPECT_TRUE(finder.devices().empty());
}

/// Pipelines that share nodes contend with each other: they are replicas as a group.
TEST(Replicas, GroupsOfPipelinesThatShareNodes) {
  const Pipelines four(4, 4); // pipelines 0 and 1 on one node, 2 and 3 on the other
  EXPECT_EQ(four.replicas(), (Replicas{false, false, true, true}));
  EXPECT_EQ(four.found().devices(), (Pairs{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));

  Pipelines uneven(4, 4);
  ++uneven.device(3, 0).microBatchSize;
  EXPECT_EQ(uneven.replicas(), Replicas(4, false)) << "one pipeline of the group differs";
  EXPECT_EQ(Pipelines(2, 4).replicas(), Replicas(2, false)) << "both on one node";
}

/// Devices of one node must correspond to devices of one node.
TEST(Replicas, NodesCorrespond) {
  Pipelines crossed(4, 2); // four nodes
  // Pipeline 1 of nodes 1 and 2, with pipeline 2 of the same nodes: one group, unlike the others.
  std::swap(crossed.device(1, 1).device, crossed.device(2, 1).device);
  EXPECT_EQ(crossed.replicas(), (Replicas{false, false, false, true}));

  Pipelines joined(2, 1); // four nodes of one device
  EXPECT_EQ(joined.replicas(), (Replicas{false, true}));
  Pipelines halves(3, 2);
  halves.device(1, 1).device = halves.device(1, 0).device; // both stages on one device
  EXPECT_EQ(halves.replicas(), (Replicas{false, false, true}));
}

TEST(Replicas, WhatPipelinesDifferIn) {
  using Change = void (*)(Pipelines &);
  const std::pair<const char *, Change> changes[] = {
      {"units",
       [](Pipelines &of) {
         of.strategy.pipelines[1].stages[0].unitEnd = 3;
         of.strategy.pipelines[1].stages[1].unitBegin = 3;
       }},
      {"samples of the pipeline", [](Pipelines &of) { ++of.strategy.pipelines[1].samples; }},
      {"samples of a device", [](Pipelines &of) { ++of.device(1, 1).samples; }},
      {"micro-batch size", [](Pipelines &of) { ++of.device(1, 1).microBatchSize; }},
      {"stages", [](Pipelines &of) { of.strategy.pipelines[1].stages.pop_back(); }},
      {"warm-up", [](Pipelines &of) { of.strategy.schedule.warmupForwards = {1, 1, 1, 2}; }},
      {"memory optimizations",
       [](Pipelines &of) {
         MemoryOptimization recompute;
         recompute.activations = step::Activations::Recompute;
         of.strategy.memoryOptimizations.set(3, recompute);
       }},
      {"memory", [](Pipelines &of) { of.setup->cluster.devices[3].memory = 1 << 30; }},
      {"reserved memory", [](Pipelines &of) { of.setup->cluster.devices[3].reservedMemory = 1; }},
      {"link of a device",
       [](Pipelines &of) { of.topology().mutable_nodes(1)->mutable_port()->set_latency(1e-3); }},
      {"card",
       [](Pipelines &of) { of.topology().mutable_nodes(1)->mutable_nic()->set_bandwidth(1e9); }},
      {"bus",
       [](Pipelines &of) { of.topology().mutable_nodes(1)->mutable_bus()->set_bandwidth(1e9); }},
  };
  for (const auto &[what, change] : changes) {
    Pipelines two(2, 2);
    change(two);
    EXPECT_EQ(two.replicas(), Replicas(2, false)) << what;
  }
}

/// Shared links between pipelines: a fabric with a bandwidth, uplinks, and a device's own CPUs.
TEST(Replicas, SharedLinks) {
  Pipelines fabric(2, 2);
  fabric.topology().mutable_sites(0)->mutable_fabric()->set_bandwidth(1e10);
  EXPECT_EQ(fabric.replicas(), Replicas(2, false));

  Pipelines sites(2, 2); // each on its own site, with equal fabrics
  *sites.topology().add_sites() = sites.topology().sites(0);
  sites.topology().mutable_nodes(1)->set_site(1);
  EXPECT_EQ(sites.replicas(), (Replicas{false, true}));
  sites.topology().mutable_sites(1)->mutable_fabric()->set_latency(1e-3);
  EXPECT_EQ(sites.replicas(), Replicas(2, false)) << "a slower fabric";

  Pipelines across(3, 1); // six nodes; the second pipeline is on two sites
  *across.topology().add_sites() = across.topology().sites(0);
  across.topology().mutable_nodes(3)->set_site(1);
  EXPECT_EQ(across.replicas(), (Replicas{false, false, true}));

  Pipelines moved(2, 2);
  for (int d = 0; d < 4; ++d)
    moved.topology().add_cpu_communication_costs();
  EXPECT_EQ(moved.replicas(), Replicas(2, false)) << "devices that move data with their CPUs";
}

} // namespace
