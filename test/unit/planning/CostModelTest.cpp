// Compares times of the cost model with values computed by hand.
#include "PlanningTestSupport.h"

#include <gtest/gtest.h>

using namespace zorse;
using namespace zorse::planning;
using step::UnitTask;

namespace {

CostModel model(const bundle::ModelSummary &summary, const Cluster &cluster,
                const Profile *profile = nullptr) {
  Result<CostModel> costs = CostModel::make(summary, cluster, profile, {});
  EXPECT_FALSE(costs.failed()) << costs.message();
  return *costs;
}

ClassProfile points(std::vector<ProfilePoint> list) { return {1, std::move(list)}; }

TEST(CostModel, Roofline) {
  CostModel costs = model(test::chain(), test::twoNodes());
  // slow: no rows at half speed, no launch, memory bandwidth not given: FLOPs over speed.
  EXPECT_DOUBLE_EQ(costs.unit(2, 1, UnitTask::Forward, 4), 4 * 128e6 / 0.25e12);
  EXPECT_DOUBLE_EQ(costs.unit(2, 1, UnitTask::Recompute, 4), 3 * 128e6 / 0.25e12);
  EXPECT_DOUBLE_EQ(costs.unit(2, 1, UnitTask::Backward, 4), 8 * 128e6 / 0.25e12);
  EXPECT_DOUBLE_EQ(costs.unit(2, 1, UnitTask::InputGradients, 4), 5 * 128e6 / 0.25e12);
  EXPECT_DOUBLE_EQ(costs.unit(2, 1, UnitTask::WeightGradients, 4), 3 * 128e6 / 0.25e12);
  // fast, one row: 128 matrix rows reach half of 1 TFLOP/s: 0.256 ms of matmuls; 1e6 bytes at 1
  // GB/s take 1 ms.
  EXPECT_NEAR(costs.unit(0, 1, UnitTask::Forward, 1), 1e-3 + 1e-5, 1e-15);
  // The head: 512e6 FLOPs at half speed take 1.024 ms, more than its memory accesses.
  EXPECT_NEAR(costs.unit(0, 3, UnitTask::Forward, 1), 1.024e-3 + 1e-5, 1e-15);
  // Three rows: 3/4 of the speed, 2.048 ms; memory accesses 3 ms.
  EXPECT_NEAR(costs.unit(0, 3, UnitTask::Forward, 3), 3e-3 + 1e-5, 1e-15);
  EXPECT_NEAR(costs.unit(0, 3, UnitTask::Backward, 3), 9e-3 + 1e-5, 1e-15);
  EXPECT_EQ(costs.unit(0, 3, UnitTask::Forward, 0), 0);
}

// Shares of samples divide by the time of a forward. A device with unlimited memory bandwidth needs
// no time for elementwise work, but its share is finite.
TEST(CostModel, NoForwardTakesNoTime) {
  bundle::ModelSummary summary = test::chain();
  test::addFunction(summary, 0, bundle::UnitFunction::FORWARD, 0, 1e6);
  Cluster cluster = test::twoNodes();
  for (ClusterDevice &device : cluster.devices)
    device.memoryBandwidth = device.launchOverhead = 0;
  CostModel costs = model(summary, cluster);
  EXPECT_GT(costs.unit(0, 0, UnitTask::Forward, 1), 0);
  EXPECT_EQ(costs.unit(0, 0, UnitTask::Forward, 0), 0);
}

TEST(CostModel, PositionsOfIdsAndImages) {
  bundle::ModelSummary summary = test::chain();
  Cluster cluster = test::twoNodes();
  for (ClusterDevice &device : cluster.devices)
    device.memoryBandwidth = device.launchOverhead = 0;
  // A unit that reads only ids: 128 positions, so half speed at one row.
  summary.mutable_units(0)->clear_values_out();
  test::addFunction(summary, 0, bundle::UnitFunction::FORWARD, 1e9, 1e6);
  EXPECT_DOUBLE_EQ(model(summary, cluster).unit(0, 0, UnitTask::Forward, 1), 2e-3);
  // A value without positions: one matrix row per sample, 1/129 of the speed.
  for (int v : {0, 1, 2}) {
    summary.mutable_values(v)->clear_shape();
    summary.mutable_values(v)->add_shape(64);
  }
  EXPECT_NEAR(model(summary, cluster).unit(0, 1, UnitTask::Forward, 1), 129 * 128e6 / 1e12, 1e-12);
}

TEST(CostModel, PartsOfBackwardsThatDoNotSplit) {
  // No unit of the summary splits: each part is a half if both exist; the embedding has no input
  // gradients.
  bundle::ModelSummary summary = test::chain(/*splits=*/false);
  test::addFunction(summary, 0, bundle::UnitFunction::BACKWARD, 2e6, 3e6);
  CostModel old = model(summary, test::twoNodes());
  for (UnitTask part : {UnitTask::InputGradients, UnitTask::WeightGradients})
    EXPECT_DOUBLE_EQ(old.unit(2, 1, part, 2), old.unit(2, 1, UnitTask::Backward, 2) / 2);
  EXPECT_EQ(old.unit(2, 0, UnitTask::InputGradients, 2), 0);
  EXPECT_DOUBLE_EQ(old.unit(2, 0, UnitTask::WeightGradients, 2),
                   old.unit(2, 0, UnitTask::Backward, 2));
  // Other units split. A unit without a split backward runs all of it in one task: the embedding in
  // W, others in B.
  summary = test::chain();
  summary.mutable_units(2)->set_splits(false);
  CostModel now = model(summary, test::twoNodes());
  EXPECT_EQ(now.unit(0, 0, UnitTask::InputGradients, 2), 0);
  EXPECT_DOUBLE_EQ(now.unit(0, 0, UnitTask::WeightGradients, 2),
                   now.unit(0, 0, UnitTask::Backward, 2));
  EXPECT_DOUBLE_EQ(now.unit(0, 2, UnitTask::InputGradients, 2),
                   now.unit(0, 2, UnitTask::Backward, 2));
  EXPECT_EQ(now.unit(0, 2, UnitTask::WeightGradients, 2), 0);
}

TEST(CostModel, ElementwiseWorkAndCopies) {
  CostModel costs = model(test::chain(), test::twoNodes());
  EXPECT_NEAR(costs.update(0, {1000}), 1e-5 + 28e3 / 1e9, 1e-15); // Adam: 7 numbers of 4 bytes
  EXPECT_NEAR(costs.norm(0, 1000), 1e-5 + 4e3 / 1e9, 1e-15);
  EXPECT_NEAR(costs.copy(0, 1000), 1e-5 + 2e3 / 1e9, 1e-15);
  EXPECT_DOUBLE_EQ(costs.update(2, {1000}), 12e3 / 0.25e12);
  EXPECT_DOUBLE_EQ(costs.copy(2, 1000),
                   1e3 / 10e9); // memory bandwidth not given: as fast as its port
  EXPECT_EQ(costs.update(0, {0}), 0);
  Cluster cluster = test::twoNodes();
  cluster.nodes[0].pcie = 2e9;
  cluster.devices[0].kind = "cuda";
  EXPECT_NEAR(model(test::chain(), cluster).load(0, 1000), 1e-5 + 1e3 / 2e9, 1e-15);
}

TEST(CostModel, ClassesOfDevicesAndUnits) {
  CostModel costs = model(test::chain(), test::twoNodes());
  EXPECT_EQ(costs.deviceClass(0), costs.deviceClass(1));
  EXPECT_NE(costs.deviceClass(0), costs.deviceClass(2));
  EXPECT_EQ(costs.unitClass(1), costs.unitClass(2));
  EXPECT_NE(costs.unitClass(0), costs.unitClass(1));
  Cluster cluster = test::twoNodes();
  cluster.devices[1].memory = 1 << 30;
  EXPECT_NE(model(test::chain(), cluster).deviceClass(0),
            model(test::chain(), cluster).deviceClass(1));
}

TEST(CostModel, ProfilePoints) {
  Profile profile;
  DeviceProfile fast;
  fast.device = "fast";
  fast.classes["block mlp"] = {
      points({{2, 0.010, 0.020, 0.012, 0.008}, {4, 0.018, 0.036, 0.022, 0.014}})};
  fast.updatePerElement = 1e-9;
  fast.updateFixed = 1e-3;
  profile.devices.push_back(fast);
  CostModel costs = model(test::chain(), test::twoNodes(), &profile);
  EXPECT_DOUBLE_EQ(costs.unit(0, 1, UnitTask::Forward, 2), 0.010);
  EXPECT_DOUBLE_EQ(costs.unit(1, 2, UnitTask::Forward, 3),
                   0.014); // between points: linear interpolation
  EXPECT_DOUBLE_EQ(costs.unit(0, 1, UnitTask::Forward, 1),
                   0.010); // below the first point: the first one
  EXPECT_DOUBLE_EQ(costs.unit(0, 1, UnitTask::Forward, 8),
                   0.036); // beyond the last point: proportional
  EXPECT_DOUBLE_EQ(costs.unit(0, 1, UnitTask::Backward, 3), 0.028);
  EXPECT_DOUBLE_EQ(costs.unit(0, 1, UnitTask::InputGradients, 4), 0.022);
  EXPECT_DOUBLE_EQ(costs.unit(0, 1, UnitTask::WeightGradients, 4), 0.014);
  EXPECT_DOUBLE_EQ(costs.update(0, {1000000}), 2e-3);
  // Classes without measurements use the roofline, scaled by the ratio of measured to roofline
  // times of the measured class: forward and backward at both points.
  CostModel plain = model(test::chain(), test::twoNodes());
  double estimated = 0;
  for (UnitTask task : {UnitTask::Forward, UnitTask::Backward})
    for (int64_t rows : {2, 4})
      estimated += plain.unit(0, 1, task, rows);
  double scale = (0.010 + 0.020 + 0.018 + 0.036) / estimated;
  EXPECT_NEAR(costs.unit(0, 3, UnitTask::Backward, 5),
              scale * plain.unit(0, 3, UnitTask::Backward, 5), 1e-12);
  // Other devices are not changed.
  EXPECT_EQ(costs.unit(2, 1, UnitTask::Forward, 2), plain.unit(2, 1, UnitTask::Forward, 2));
}

TEST(CostModel, ProfileLacksTasks) {
  Profile profile;
  DeviceProfile slow;
  slow.device = "S1"; // by type
  slow.classes["block mlp"] = {points({{1, 0.5, 1.6}})};
  slow.classes["head"] = {points({{1, -1, -1, 0.5, 0.25}})};
  profile.devices.push_back(slow);
  CostModel costs = model(test::chain(), test::twoNodes(), &profile);
  // The measured time is divided between the parts in proportion to their FLOPs, 1.25 to 0.75.
  EXPECT_NEAR(costs.unit(2, 1, UnitTask::InputGradients, 2), 2.0, 1e-12);
  EXPECT_NEAR(costs.unit(2, 1, UnitTask::WeightGradients, 2), 1.2, 1e-12);
  // Recomputation takes the same fraction of the forward as its FLOPs, 0.75.
  EXPECT_NEAR(costs.unit(2, 1, UnitTask::Recompute, 2), 0.75, 1e-12);
  // If both parts are measured, the backward is their sum, and the forward is derived from it.
  EXPECT_NEAR(costs.unit(2, 3, UnitTask::Backward, 1), 0.75, 1e-12);
  EXPECT_NEAR(costs.unit(2, 3, UnitTask::Forward, 1), 0.375, 1e-12);
}

TEST(CostModel, ManyRowsMeasured) {
  Profile profile;
  DeviceProfile slow;
  slow.device = "slow";
  slow.classes["head"] = {points({{1, 1, 1}, {1000, 1000, 1000}, {3000, 2000, 2000}})};
  profile.devices.push_back(slow);
  CostModel costs = model(test::chain(), test::twoNodes(), &profile);
  EXPECT_DOUBLE_EQ(costs.unit(2, 3, UnitTask::Forward, 999), 999);
  EXPECT_DOUBLE_EQ(costs.unit(2, 3, UnitTask::Forward, 1024), 1012);
  EXPECT_DOUBLE_EQ(costs.unit(2, 3, UnitTask::Forward, 1025), 1012.5);
  EXPECT_DOUBLE_EQ(costs.unit(2, 3, UnitTask::Forward, 3000), 2000);
  EXPECT_DOUBLE_EQ(costs.unit(2, 3, UnitTask::Forward, 6000), 4000);
}

TEST(CostModel, Refuses) {
  std::string error;
  Profile other;
  other.model = "beef";
  error = CostModel::make(test::chain(), test::twoNodes(), &other, {}).message();
  EXPECT_NE(error.find("another model (beef, this one is c0ffee)"), std::string::npos) << error;
  other.model.clear();
  other.precision = "bf16";
  error = CostModel::make(test::chain(), test::twoNodes(), &other, {}).message();
  EXPECT_NE(error.find("measured in bf16, this model is compiled for f32"), std::string::npos)
      << error;

  bundle::ModelSummary summary = test::chain();
  summary.set_compute_type(bundle::BF16);
  Cluster cluster = test::twoNodes();
  cluster.devices[2].flopsPerSecond[speedIndex(bundle::BF16)] = 0;
  error = CostModel::make(summary, cluster, nullptr, {}).message();
  EXPECT_NE(error.find("computes in bf16, which these devices do not support: 'slow' (S1)"),
            std::string::npos)
      << error;
  // A plan without this device is accepted; a plan with an unknown device is not.
  EXPECT_EQ(CostModel::make(summary, cluster, nullptr, {{"fast:1", 0, 0, ""}}).message(), "");
  error = CostModel::make(summary, cluster, nullptr, {{"fast:7", 0, 0, ""}}).message();
  EXPECT_EQ(error, "device 'fast:7' of the plan is not in the cluster");
}

TEST(CostModel, ClassNames) {
  bundle::ModelSummary summary = test::chain();
  EXPECT_EQ(classNames(summary), (std::vector<std::string>{"embedding", "block mlp", "head"}));
  summary.mutable_units(2)->set_class_id(3);
  EXPECT_EQ(classNames(summary),
            (std::vector<std::string>{"embedding", "block mlp", "head", "block mlp (2)"}));
}

TEST(MeasuredLinks, TakeThePlaceOfDescribedOnes) {
  Cluster cluster = test::twoNodes();
  bundle::Topology topology = cluster.topology;
  applyLinks({{"fast:0", "fast:1", 4e9, 3e-6, 4e9},
              {"n0", "n1", 0.5e9, 2e-4, 0.2e9},
              {"n1", "n0", 0.6e9, 3e-4, 0.3e9},
              {"n0", "n9", 9e9, 9, 9}},
             cluster, topology);
  EXPECT_EQ(topology.nodes(0).port().bandwidth(), 4e9);
  EXPECT_EQ(topology.nodes(0).port().per_flow_bandwidth(), 0);
  EXPECT_EQ(topology.nodes(0).port().latency(), 3e-6);
  EXPECT_EQ(topology.nodes(1).port().bandwidth(), 10e9);
  for (int n : {0, 1}) {
    EXPECT_EQ(topology.nodes(n).nic().bandwidth(), 0.6e9);
    EXPECT_EQ(topology.nodes(n).nic().per_flow_bandwidth(), 0.3e9);
  }
  EXPECT_EQ(topology.sites(0).fabric().latency(), 2e-4);
  // Between sites: the bandwidth of the pair.
  topology = cluster.topology;
  topology.add_sites();
  topology.mutable_nodes(1)->set_site(1);
  applyLinks({{"n1", "n0", 0.6e9, 3e-2, 0.3e9}}, cluster, topology);
  ASSERT_EQ(topology.site_pairs_size(), 1);
  EXPECT_EQ(topology.site_pairs(0).link().bandwidth(), 0.6e9);
  EXPECT_EQ(topology.site_pairs(0).link().latency(), 3e-2);
  EXPECT_EQ(topology.nodes(0).nic().bandwidth(), 1e9);
}

} // namespace
