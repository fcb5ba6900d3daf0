// Tests the re-implemented planners on clusters for which their choice is known.
#include "Must.h"

#include "LlamaShape.h"
#include "zorse/Baselines/Baselines.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

using namespace zorse;
using namespace zorse::planning;

namespace {

struct Group {
  int devices;
  double speed;
  uint64_t memory;
};

struct Setting {
  bundle::ModelSummary summary;
  Cluster cluster;
  std::optional<CostModel> costs;
  std::unique_ptr<Problem> problem;

  /// One node per group; `card`: bytes/s between nodes.
  Setting(int64_t layers, std::vector<Group> groups, double card, int64_t batch) {
    LlamaShape shape;
    shape.name = "small";
    shape.layers = layers;
    shape.hidden = 256;
    shape.ffn = 688;
    shape.heads = shape.kvHeads = 4;
    shape.vocabulary = 512;
    shape.sequence = 64;
    shape.computeType = bundle::F32;
    summary = *makeSummary(shape);
    cluster.topology.add_sites()->mutable_fabric()->set_latency(1e-5);
    for (const Group &group : groups) {
      ClusterNode node;
      node.name = "n" + std::to_string(cluster.nodes.size());
      auto *described = cluster.topology.add_nodes();
      described->set_name(node.name);
      described->mutable_port()->set_bandwidth(100e9);
      described->mutable_nic()->set_bandwidth(card);
      for (int i = 0; i < group.devices; ++i) {
        ClusterDevice device;
        device.name = "d" + std::to_string(cluster.devices.size());
        device.kind = "sim";
        device.node = static_cast<uint32_t>(cluster.nodes.size());
        std::fill(std::begin(device.flopsPerSecond), std::end(device.flopsPerSecond), group.speed);
        device.memory = group.memory;
        cluster.devices.push_back(device);
        cluster.topology.add_node_of_device(device.node);
      }
      cluster.nodes.push_back(node);
    }
    costs = must(CostModel::make(summary, cluster, nullptr, {}));
    problem = std::make_unique<Problem>(Problem{summary, cluster, *costs, batch});
  }
};

std::vector<int32_t> unitsOf(const Pipeline &pipeline) {
  std::vector<int32_t> units;
  for (const Stage &stage : pipeline.stages)
    units.push_back(stage.unitEnd - stage.unitBegin);
  return units;
}

int64_t samplesOf(const Stage &stage) {
  int64_t sum = 0;
  for (const step::StageDevice &m : stage.members)
    sum += m.samples;
  return sum;
}

void expectCovers(const Setting &s, const Strategy &strategy) {
  int64_t samples = 0;
  for (const Pipeline &pipeline : strategy.pipelines) {
    int32_t at = 0;
    for (const Stage &stage : pipeline.stages) {
      EXPECT_EQ(stage.unitBegin, at);
      at = stage.unitEnd;
      EXPECT_EQ(samplesOf(stage), pipeline.samples);
    }
    EXPECT_EQ(at, s.summary.units_size());
    samples += pipeline.samples;
  }
  EXPECT_EQ(samples, s.problem->batch);
}

/// Slow NICs separate the nodes. Rates of 2 to 1 divide 9 blocks into 6 and 3. A block is two
/// units; embedding and head are added.
TEST(Baselines, ZorsePaperCutsBetweenNodes) {
  Setting s(9, {{2, 2e12, 0}, {2, 1e12, 0}}, 1e6, 16);
  Result<Strategy> strategy = zorsePaper(*s.problem);
  ASSERT_FALSE(strategy.failed()) << strategy.message();
  expectCovers(s, *strategy);
  ASSERT_EQ(strategy->pipelines.size(), 1u);
  const Pipeline &pipeline = strategy->pipelines[0];
  ASSERT_EQ(pipeline.stages.size() % 2, 0u);
  int64_t units[2] = {0, 0};
  for (size_t i = 0; i < pipeline.stages.size(); ++i) {
    const Stage &stage = pipeline.stages[i];
    ASSERT_EQ(stage.members.size(), 2u);
    EXPECT_EQ(stage.members[0].samples, 8);
    EXPECT_EQ(s.cluster.devices[stage.members[0].device].node,
              s.cluster.devices[stage.members[1].device].node);
    units[s.cluster.devices[stage.members[0].device].node] += stage.unitEnd - stage.unitBegin;
  }
  // Both groups have equal internal connections, so the first in the list comes first.
  EXPECT_EQ(units[0], 6 * 2 + 1);
  EXPECT_EQ(units[1], 3 * 2 + 1);
}

TEST(Baselines, HexiScaleDividesByMemory) {
  Setting s(6, {{1, 1e12, uint64_t(80) << 30}, {1, 4e12, uint64_t(40) << 30}}, 1e9,
            1); // one sample: one pipeline
  Result<Strategy> strategy = hexiscale(*s.problem);
  ASSERT_FALSE(strategy.failed()) << strategy.message();
  expectCovers(s, *strategy);
  ASSERT_EQ(strategy->pipelines.size(), 1u);
  const Pipeline &pipeline = strategy->pipelines[0];
  ASSERT_EQ(pipeline.stages.size(), 2u);
  EXPECT_EQ(pipeline.stages[0].members[0].device,
            0u); // twice the memory: 4 of 6 blocks, although it is slower
  EXPECT_EQ(unitsOf(pipeline), (std::vector<int32_t>{4 * 2 + 1, 2 * 2 + 1}));
}

TEST(Baselines, MegatronIsUniform) {
  Setting s(8, {{4, 1e12, 0}, {4, 1e12, 0}}, 1e7, 32);
  Result<Strategy> strategy = megatron(*s.problem);
  ASSERT_FALSE(strategy.failed()) << strategy.message();
  expectCovers(s, *strategy);
  const Pipeline &pipeline = strategy->pipelines[0];
  std::set<int32_t> inner;
  for (size_t i = 0; i < pipeline.stages.size(); ++i) {
    EXPECT_EQ(pipeline.stages[i].members.size(), pipeline.stages[0].members.size());
    for (const step::StageDevice &m : pipeline.stages[i].members)
      EXPECT_EQ(m.samples, 32 / static_cast<int64_t>(pipeline.stages[i].members.size()));
    inner.insert(pipeline.stages[i].unitEnd - pipeline.stages[i].unitBegin - (i == 0) -
                 (i + 1 == pipeline.stages.size()));
  }
  EXPECT_EQ(inner.size(), 1u); // blocks of every stage
}

TEST(Baselines, SailorHasEqualReplicas) {
  Setting s(7, {{3, 2e12, 0}, {5, 1e12, 0}}, 1e8, 24);
  Result<Strategy> strategy = sailor(*s.problem);
  ASSERT_FALSE(strategy.failed()) << strategy.message();
  expectCovers(s, *strategy);
  for (const Stage &stage : strategy->pipelines[0].stages) {
    EXPECT_EQ(stage.members.size(), strategy->pipelines[0].stages[0].members.size());
    for (const step::StageDevice &m : stage.members)
      EXPECT_EQ(m.samples, 24 / static_cast<int64_t>(stage.members.size()));
  }
}

TEST(Baselines, HarpIsHomogeneousAndLaunchesAhead) {
  Setting s(8, {{2, 2e12, 0}, {2, 1e12, 0}}, 1e6, 16);
  Result<Strategy> strategy = harp(*s.problem);
  ASSERT_FALSE(strategy.failed()) << strategy.message();
  expectCovers(s, *strategy);
  const Pipeline &pipeline = strategy->pipelines[0];
  for (const Stage &stage : pipeline.stages)
    for (const step::StageDevice &m : stage.members)
      EXPECT_EQ(s.costs->deviceClass(m.device), s.costs->deviceClass(stage.members[0].device));
  ASSERT_EQ(strategy->schedule.warmupForwards.size(), 4u);
  if (pipeline.stages.size() > 1) {
    EXPECT_GE(strategy->schedule.warmupForwards[pipeline.stages[0].members[0].device],
              strategy->schedule.warmupForwards[pipeline.stages.back().members[0].device]);
    EXPECT_EQ(strategy->schedule.warmupForwards[pipeline.stages.back().members[0].device], 0u);
  }
}

TEST(Baselines, MemoryThatDoesNotSufficeIsSaid) {
  Setting s(8, {{2, 1e12, 1 << 20}, {2, 1e12, 1 << 20}}, 1e9, 16);
  for (const Baseline &baseline : baselines()) {
    const std::string error = baseline.plan(*s.problem).message();
    EXPECT_EQ(error.rfind(std::string(baseline.name) + ": ", 0), 0u) << error;
  }
  EXPECT_EQ(findBaseline("sailor")->plan, sailor);
  EXPECT_EQ(findBaseline("unknown"), nullptr);
}

} // namespace
