// The planner's quick simulation against the full expansion, which is right by definition.

#include "Search/Candidates.h"

#include "zorse/Planning/ModelShape.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>

using namespace zorse;
using namespace zorse::planning;

namespace {

struct Case {
  bundle::ModelSummary summary;
  Cluster cluster;
  std::optional<CostModel> costs;
  std::unique_ptr<Problem> problem;
};

/// Unequal devices in nodes of one to four, on one or two sites; memory for a part of the model.
std::unique_ptr<Case> makeCase(std::mt19937 &random, bool tight) {
  auto made = std::make_unique<Case>();
  auto pick = [&](int low, int high) { return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1)); };
  ModelShape shape{"shape", pick(2, 6), 64 * pick(4, 12), 64 * pick(8, 24), 4, 4, 256 * pick(1, 16), 64 * pick(1, 8), bundle::BF16};
  std::string error;
  made->summary = *makeSummary(shape, error);
  int sites = pick(1, 2), nodes = pick(1, 4);
  for (int s = 0; s < sites; ++s)
    made->cluster.topology.add_sites()->mutable_fabric()->set_latency(1e-5 * pick(1, 20));
  made->cluster.topology.mutable_between_sites()->set_bandwidth(1e9 * pick(1, 4));
  made->cluster.topology.mutable_between_sites()->set_latency(1e-3);
  for (int n = 0; n < nodes; ++n) {
    made->cluster.nodes.emplace_back();
    auto *node = made->cluster.topology.add_nodes();
    node->set_site(static_cast<uint32_t>(n % sites));
    node->mutable_port()->set_bandwidth(2e10 * pick(1, 10));
    node->mutable_port()->set_latency(1e-6);
    node->mutable_nic()->set_bandwidth(1e9 * pick(1, 10));
    int devices = pick(1, 4), speed = pick(1, 4);
    for (int d = 0; d < devices; ++d) {
      ClusterDevice device;
      device.name = "d" + std::to_string(made->cluster.devices.size());
      device.node = static_cast<uint32_t>(n);
      std::fill(std::begin(device.speed), std::end(device.speed), 1e13 * speed);
      device.halfRows = 30 * speed;
      device.memoryBandwidth = 3e11;
      device.launch = 1e-6;
      made->cluster.devices.push_back(device);
      made->cluster.topology.add_node_of_device(static_cast<uint32_t>(n));
    }
  }
  if (tight) {
    double bytes = 0;
    for (const auto &unit : made->summary.units())
      bytes += static_cast<double>(unit.saved_bytes().per_row());
    for (ClusterDevice &device : made->cluster.devices)
      device.memory = static_cast<uint64_t>(bytes * pick(2, 6)) + (200u << 20);
  }
  made->costs = CostModel::make(made->summary, made->cluster, nullptr, {}, error);
  made->problem = std::make_unique<Problem>(Problem{made->summary, made->cluster, *made->costs, pick(4, 40)});
  return made;
}

Layout randomLayout(std::mt19937 &random, const SearchContext &context) {
  auto pick = [&](int low, int high) { return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1)); };
  std::vector<uint32_t> devices(context.devices);
  std::shuffle(devices.begin(), devices.end(), random);
  Layout layout;
  int pipelines = devices.size() > 1 && pick(0, 3) == 0 ? 2 : 1;
  int64_t left = context.problem.batch;
  size_t at = 0;
  for (int p = 0; p < pipelines; ++p) {
    size_t end = p + 1 == pipelines ? devices.size() : static_cast<size_t>(pick(1, static_cast<int>(devices.size()) - 1));
    Pipeline pipeline;
    pipeline.samples = p + 1 == pipelines ? left : std::max<int64_t>(1, left * static_cast<int64_t>(end) / static_cast<int64_t>(devices.size()));
    left -= pipeline.samples;
    int stages = pick(1, std::min<int>({static_cast<int>(end - at), 5, context.model.units()}));
    std::vector<size_t> cuts{at, end};
    std::vector<int32_t> units{0, context.model.units()};
    while (static_cast<int>(cuts.size()) <= stages) {
      size_t c = at + 1 + random() % (end - at - 1 ? end - at - 1 : 1);
      int32_t u = pick(1, context.model.units() - 1);
      if (std::find(cuts.begin(), cuts.end(), c) == cuts.end() && std::find(units.begin(), units.end(), u) == units.end()) {
        cuts.push_back(c);
        units.push_back(u);
      }
    }
    std::sort(cuts.begin(), cuts.end());
    std::sort(units.begin(), units.end());
    size_t rows = random() % std::min<size_t>(3, context.model.rows().size());
    for (int s = 0; s < stages; ++s)
      pipeline.stages.push_back(makeStage(context.model, {devices.begin() + static_cast<long>(cuts[static_cast<size_t>(s)]), devices.begin() + static_cast<long>(cuts[static_cast<size_t>(s) + 1])},
                                          units[static_cast<size_t>(s)], units[static_cast<size_t>(s) + 1], pipeline.samples, rows));
    layout.pipelines.push_back(std::move(pipeline));
    at = end;
  }
  auto schedules = scheduleChoices(context, true);
  layout.schedule = schedules[random() % schedules.size()];
  if (layout.schedule.kind == step::ScheduleKind::OneForwardOneBackward && pick(0, 1))
    for (size_t d = 0; d < context.problem.cluster.devices.size(); ++d)
      layout.schedule.ahead.push_back(static_cast<uint32_t>(pick(0, 3)));
  layout.state = static_cast<StateRule>(random() % 3);
  return layout;
}

/// The same with cuts moved by parts of units, and for one pipeline in three also devices that are in two stages.
void shareUnits(std::mt19937 &random, const SearchContext &context, Layout &layout) {
  auto pick = [&](int low, int high) { return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1)); };
  layout.parts = 1 << pick(1, 3);
  layout.schedule = {};
  layout.schedule.kind = step::ScheduleKind::Timed;
  layout.schedule.splitBackward = pick(0, 1);
  layout.schedule.inFlight = 1 + 0.5 * pick(0, 3);
  const StageModel parts(context.problem, context.tables, 0, layout.parts);
  for (Pipeline &pipeline : layout.pipelines) {
    int32_t begin = 0;
    for (size_t s = 0; s < pipeline.stages.size(); ++s) {
      Stage &stage = pipeline.stages[s];
      const int32_t left = static_cast<int32_t>(pipeline.stages.size() - 1 - s);
      int32_t end = s + 1 == pipeline.stages.size() ? parts.units() : std::clamp(stage.unitEnd * layout.parts + pick(1 - layout.parts, layout.parts - 1), begin + 1, parts.units() - left);
      stage.unitBegin = begin;
      stage.unitEnd = begin = end;
    }
    if (pipeline.stages.size() > 2 && pick(0, 2) == 0)
      pipeline.stages.back().members = pipeline.stages.front().members;
  }
  setTurn(layout);
}

struct Differences {
  double step = 0, worstStep = 0, memory = 0, worstMemory = 0; ///< relative; means and worst
  int layouts = 0, beyond = 0;                                 ///< beyond: 3 % of the step time
};

Differences compare(unsigned seed, int trials, bool sharedUnits) {
  std::mt19937 random(seed);
  Differences all;
  int below = 0, devices = 0;
  for (int trial = 0; trial < trials; ++trial) {
    auto made = makeCase(random, trial % 2);
    SearchOptions options;
    options.threads = 1;
    SearchContext context(*made->problem, options);
    for (int i = 0; i < 2; ++i) {
      Layout layout = randomLayout(random, context);
      if (sharedUnits)
        shareUnits(random, context, layout);
      std::string error;
      auto full = evaluate(*made->problem, makePlan(*made->problem, layout), error);
      if (!full) {
        ADD_FAILURE() << error;
        continue;
      }
      const auto &quick = context.simulation(0).run(layout);
      EXPECT_TRUE(quick.ran) << trial;
      double off = std::abs(quick.step / full->step - 1);
      all.step += off;
      all.beyond += off > 0.03;
      all.worstStep = std::max(all.worstStep, off);
      ++all.layouts;
      for (size_t d = 0; d < full->memory.size(); ++d)
        if (full->memory[d]) {
          double ratio = static_cast<double>(quick.memory[d]) / static_cast<double>(full->memory[d]);
          below += ratio < 1;
          all.memory += std::abs(ratio - 1);
          all.worstMemory = std::max(all.worstMemory, std::abs(ratio - 1));
          ++devices;
        }
    }
  }
  all.step /= all.layouts;
  all.memory /= devices;
  std::printf("step time: %.3f %% off on average, %.2f %% at most (%d layouts, %d beyond 3 %%); memory: %.2f %% off on average, %.2f %% at most, below on %d of %d devices\n", 100 * all.step,
              100 * all.worstStep, all.layouts, all.beyond, 100 * all.memory, 100 * all.worstMemory, below, devices);
  return all;
}

TEST(QuickSimulation, AgreesWithTheExpansion) {
  Differences found = compare(7, 150, false);
  EXPECT_LE(found.step, 0.01);
  EXPECT_LE(found.beyond, found.layouts / 20); // admission by memory may go another way where the full one has an event more
  EXPECT_LE(found.worstStep, 0.1);
  EXPECT_LE(found.memory, 0.02);
}

/// Stages that share out units, devices in two stages of a pipeline.
TEST(QuickSimulation, AgreesWhereStagesShareUnits) {
  Differences found = compare(8, 100, true);
  EXPECT_LE(found.step, 0.01);
  EXPECT_LE(found.beyond, found.layouts / 15);
  EXPECT_LE(found.worstStep, 0.25);
  EXPECT_LE(found.memory, 0.03);
}

} // namespace
