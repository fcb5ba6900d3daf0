// Tests plans that the search finds for clusters.

#include "SyntheticModel.h"

#include "zorse/Planning/Cluster.h"
#include "zorse/Planning/Report.h"
#include "zorse/Planning/Search.h"

#include <gtest/gtest.h>

#include <set>

using namespace zorse;
using namespace zorse::planning;
using namespace zorse::test;

namespace {

Cluster clusterOf(std::vector<double> speeds, uint64_t memory = 0) {
  Cluster cluster;
  cluster.topology.add_sites()->mutable_fabric()->set_latency(1e-5);
  for (const char *name : {"n0", "n1"}) {
    cluster.nodes.emplace_back();
    cluster.nodes.back().name = name;
    auto *node = cluster.topology.add_nodes();
    node->set_name(name);
    node->mutable_port()->set_bandwidth(10e9);
    node->mutable_port()->set_latency(1e-6);
    node->mutable_nic()->set_bandwidth(1e9);
  }
  for (size_t d = 0; d < speeds.size(); ++d) {
    ClusterDevice device;
    device.name = "d" + std::to_string(d);
    device.node = d % 3 ? 1 : 0;
    cluster.topology.add_node_of_device(device.node);
    std::fill(std::begin(device.flopsPerSecond), std::end(device.flopsPerSecond), speeds[d] * 1e9);
    device.memory = memory;
    cluster.devices.push_back(device);
  }
  return cluster;
}

TEST(ApplyCluster, UnknownDevice) {
  step::Plan plan;
  plan.devices = {{"d0", 0, 0, ""}, {"x", 0, 0, ""}};
  const std::string error = applyCluster(plan, clusterOf({1, 2}), bundle::F32).message();
  EXPECT_EQ(error, "device 'x' of the plan is not in the cluster, which has d0, d1");
  EXPECT_EQ(plan.devices[0].flopsPerSecond, 1e9);
}

Result<SearchResult> search(const bundle::ModelSummary &summary, const Cluster &cluster,
                            int64_t batch, const SearchOptions &options = {}) {
  Result<CostModel> costs = CostModel::make(summary, cluster, nullptr, {});
  if (costs.failed())
    return costs.error();
  return searchPlan({summary, cluster, *costs, batch}, options);
}

TEST(SearchPlan, SoundForAnyModelClusterAndBatch) {
  for (int units : {2, 4, 6})
    for (int64_t batch : {1, 2, 7, 13})
      for (const auto &speeds :
           {std::vector<double>{1}, {1, 9}, {3, 1, 4, 1, 5}, {1, 1, 1, 1, 1, 1, 1, 1, 1}}) {
        auto summary = syntheticModel(units);
        auto made = search(summary, clusterOf(speeds), batch);
        ASSERT_FALSE(made.failed()) << made.message();
        auto graph = step::lowerPlan(summary, made->plan);
        ASSERT_FALSE(graph.failed()) << graph.message();
      }
}

TEST(SearchPlan, AskedStages) {
  auto summary = syntheticModel();
  std::string error;
  SearchOptions options;
  options.stages = 3;
  auto found = search(summary, clusterOf({1, 2, 3, 4}), 16, options);
  ASSERT_FALSE(found.failed()) << found.message();
  std::set<int32_t> cuts;
  for (const step::Cell &cell : found->plan.cells)
    cuts.insert(cell.unitBegin);
  EXPECT_EQ(cuts.size(), 3u);
  options.stages = 7;
  error = search(summary, clusterOf({1, 2, 3, 4}), 16, options).message();
  EXPECT_NE(error.find("at most 4 are possible"), std::string::npos) << error;
}

TEST(SearchPlan, FasterDevicesGetMore) {
  auto summary = syntheticModel();
  SearchOptions options;
  options.stages = 1;
  auto found = search(summary, clusterOf({5, 2, 1}), 16, options);
  ASSERT_FALSE(found.failed()) << found.message();
  int64_t rows[3] = {0, 0, 0};
  for (const step::Cell &cell : found->plan.cells)
    rows[cell.device] += cell.rows();
  EXPECT_EQ(rows[0], 10);
  EXPECT_EQ(rows[1], 4);
  EXPECT_EQ(rows[2], 2);
}

TEST(SearchPlan, FewSamplesGoWhereTheyTakeLeastTime) {
  auto summary = syntheticModel();
  SearchOptions options;
  options.stages = 1;
  auto found = search(summary, clusterOf({40, 30, 10, 10}), 5, options);
  ASSERT_FALSE(found.failed()) << found.message();
  int64_t rows[4] = {0, 0, 0, 0};
  for (const step::Cell &cell : found->plan.cells)
    rows[cell.device] += cell.rows();
  EXPECT_EQ(rows[0], 3);
  EXPECT_EQ(rows[1],
            2); // a micro-batch of five on a small device would take longer than all others
                // together
}

TEST(SearchPlan, IsNotOutrunByOneDevice) {
  auto summary = syntheticModel();
  for (double latency : {1e-9, 1e-3, 10.0})
    for (const auto &speeds :
         {std::vector<double>{1e9, 0.9e9}, {1e9, 1e9, 1e9}, {2e9, 1e8, 1e8, 1e8}}) {
      Cluster cluster = clusterOf(speeds),
              alone = clusterOf({*std::max_element(speeds.begin(), speeds.end())});
      for (auto &node : *cluster.topology.mutable_nodes())
        node.mutable_port()->set_latency(latency);
      auto found = search(summary, cluster, 8), single = search(summary, alone, 8);
      ASSERT_FALSE(found.failed() || single.failed()) << found.message() << single.message();
      EXPECT_LE(found->evaluation.step, single->evaluation.step * 1.000001);
    }
}

TEST(SearchPlan, MemoryDecides) {
  auto summary = syntheticModel();
  std::string error;
  auto free = search(summary, clusterOf({1, 1, 1}), 12);
  ASSERT_FALSE(free.failed()) << free.message();
  uint64_t max = 0, min = UINT64_MAX;
  for (uint32_t stages : {1u, 2u, 3u}) {
    SearchOptions options;
    options.stages = stages;
    auto found = search(summary, clusterOf({1, 1, 1}), 12, options);
    auto graph = step::lowerPlan(summary, found->plan);
    uint64_t worst = 0;
    for (const auto &device : graph->devices)
      worst = std::max(worst, device.plannedBytes);
    max = std::max(max, worst);
    min = std::min(min, worst);
  }
  ASSERT_LT(min, max);
  EXPECT_EQ(search(summary, clusterOf({1, 1, 1}, min), 12).message(), "");
  error = search(summary, clusterOf({1, 1, 1}, 2048), 12).message();
  EXPECT_NE(error.find("no plan fits"), std::string::npos) << error;
  EXPECT_NE(error.find("more than its"), std::string::npos) << error;
}

TEST(Report, Picture) {
  auto summary = syntheticModel();
  auto plan = step::readPlan(
      R"({"global_batch_size": 8, "devices": ["x", "y"], "stages": [{"units": [0, 2], "devices": ["x", "y"], "micro_batch_size": 2},
      {"units": [2, 6], "devices": ["y"]}]})",
      summary);
  ASSERT_FALSE(plan.failed()) << plan.message();
  EXPECT_EQ(drawPlan(*plan, 6), "samples       0 2 4 6 8\nunits 0-2     aabbaabb\nunits 2-6     "
                                "bbbbbbbb\ndevices       a = x, b = y\n");
}

} // namespace
