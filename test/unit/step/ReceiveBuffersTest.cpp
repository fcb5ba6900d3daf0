// Memory in which the terms of direct reductions wait to be added.

#include "LlamaShape.h"
#include "Must.h"

#include "zorse/Step/AssignMicroBatches.h"
#include "zorse/Step/StepGraph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

using namespace zorse;
using namespace zorse::step;

namespace {

/// A block of Llama 7B on GPUs that all exchange directly and have one sample each.
/// \param nodes  devices of each node
uint64_t largestReceiveBuffer(const std::vector<uint32_t> &nodes, ShardSizing sharding) {
  bundle::ModelSummary summary =
      must(planning::makeSummary({"shape", 1, 4096, 11008, 32, 32, 32000, 128, bundle::BF16}));
  for (uint32_t terms = 2; terms <= 16; ++terms) {
    bundle::SumFunction &sum = *summary.add_sums();
    sum.set_type(bundle::F32);
    sum.set_num_contributions(terms);
  }
  Plan plan;
  plan.defaultSharding = sharding;
  std::vector<StageDevice> stage;
  for (size_t n = 0; n < nodes.size(); ++n)
    for (uint32_t d = 0; d < nodes[n]; ++d) {
      stage.push_back({uint32_t(plan.devices.size()), 1, 1});
      PlanDevice device;
      device.name = "g" + std::to_string(plan.devices.size());
      device.node = "n" + std::to_string(n);
      device.hostStaged = true;
      device.d2dGroup = 0;
      plan.devices.push_back(device);
    }
  plan.batch = int64_t(plan.devices.size());
  assignMicroBatches(0, summary.units_size(), 0, stage, plan.cells);
  LoweringOptions options;
  options.checkMemory = false;
  const StepGraph graph = must(lowerPlan(summary, plan, options));
  uint64_t largest = 0, reductions = 0;
  for (const Instruction &instruction : graph.instructions)
    if (instruction.kind == InstructionKind::ReduceScatter) {
      largest = std::max(largest, instruction.parts.bytes);
      ++reductions;
    }
  EXPECT_GT(reductions, plan.devices.size());
  std::printf("%zu contributors on %zu nodes: at most %.1f MiB wait on a device\n",
              plan.devices.size(), nodes.size(), double(largest) / (1 << 20));
  return largest;
}

/// The terms of a level wait, not those of all contributors.
TEST(ReceiveBuffers, Of512Contributors) {
  for (ShardSizing sharding : {ShardSizing::Proportional, ShardSizing::Equal}) {
    const uint64_t bytes = largestReceiveBuffer(std::vector<uint32_t>(64, 8), sharding);
    EXPECT_GT(bytes, 0u);
    EXPECT_LE(bytes, uint64_t(32) << 20);
  }
}

/// Very uneven nodes are summed by one exchange, and 1 MiB of every contributor waits.
TEST(ReceiveBuffers, OfAnExchange) {
  std::vector<uint32_t> uneven;
  for (uint32_t left = 512, next = 0; left > 0; left -= uneven.back())
    uneven.push_back(std::min(left, 1 + 5 * next++ % 8));
  EXPECT_LE(largestReceiveBuffer(uneven, ShardSizing::Equal), uint64_t(514) << 20);
}

} // namespace
