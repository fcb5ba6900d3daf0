// Tests how the costs of the step, its programs and their verification grow with layers and
// devices. The counters do not depend on time. Twice the layers may double the costs, and four
// times the devices quadruple them.
#include "SyntheticModel.h"

#include "zorse/Bundle/BundleWriter.h"
#include "zorse/Step/Plan.h"
#include "zorse/Step/StepGraph.h"
#include "zorse/Step/WriteProgram.h"
#include "zorse/Verify/Verify.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <malloc.h>
#include <map>
#include <new>

using namespace zorse;
using namespace zorse::test;

namespace {

/// Allocation counters of this process: bytes and calls of `new`, and bytes in use.
struct Memory {
  std::atomic<size_t> bytes{0}, calls{0}, used{0}, max{0};
  void reset() {
    bytes = calls = 0;
    max = used.load();
  }
} memory;

} // namespace

void *operator new(size_t size) {
  void *at = std::malloc(size ? size : 1);
  if (!at)
    throw std::bad_alloc();
  const size_t got = malloc_usable_size(at), used = memory.used += got;
  memory.bytes += got;
  ++memory.calls;
  if (used > memory.max)
    memory.max = used;
  return at;
}
void operator delete(void *at) noexcept {
  memory.used -= at ? malloc_usable_size(at) : 0;
  std::free(at);
}
void operator delete(void *at, size_t) noexcept { operator delete(at); }

namespace {

using Counts = std::map<std::string, double>;

/// Pipelines of equal stages with micro-batches of one sample.
step::Plan planOf(const bundle::ModelSummary &summary, int stages, int replicas) {
  constexpr int kSamples = 8; // per replica
  std::string text = "{\"global_batch_size\": " + std::to_string(replicas * kSamples) +
                     ", \"schedule\": \"1f1b\", \"split_backward\": true, \"devices\": [";
  auto device = [](int d) { return "\"d" + std::to_string(d) + "\""; };
  for (int d = 0; d < stages * replicas; ++d)
    text += (d ? ", " : "") + device(d);
  text += "], \"stages\": [";
  for (int s = 0; s < stages; ++s) {
    text += std::string(s ? ", " : "") + "{\"units\": [" +
            std::to_string(summary.units_size() * s / stages) + ", " +
            std::to_string(summary.units_size() * (s + 1) / stages) +
            "], \"micro_batch_size\": 1, \"devices\": [";
    for (int r = 0; r < replicas; ++r)
      text += (r ? ", " : "") + device(s * replicas + r);
    text += "]}";
  }
  Result<step::Plan> plan = step::readPlan(text + "]}", summary);
  EXPECT_FALSE(plan.failed()) << plan.message();
  if (plan.failed())
    return {};
  EXPECT_EQ(step::validatePlan(*plan, summary).message(), "");
  return std::move(*plan);
}

Counts count(int layers, int stages, int replicas, bool direct) {
  SyntheticOptions shape;
  shape.units = 2 * layers + 2;
  shape.skip = shape.tied = shape.frozen = false; // as in a chain of blocks
  shape.sumTerms = 4;
  const SyntheticModel model = makeModel(shape);
  step::Plan plan = planOf(model.summary, stages, replicas);
  verify::VerifyOptions options;
  for (step::PlanDevice &device : plan.devices) {
    device.hostStaged = true;
    device.d2dGroup = direct ? 0 : -1;
    options.hostStaged.push_back(true);
    options.d2dGroups.push_back(device.d2dGroup);
  }
  Counts counts;
  auto took = [&](const std::string &what) {
    counts[what + ", bytes"] = double(memory.bytes);
    counts[what + ", allocations"] = double(memory.calls);
    counts[what + ", most bytes at once"] = double(memory.max);
  };
  step::LoweringOptions expand;
  expand.functions = &model.functions;
  memory.reset();
  const Result<step::StepGraph> graph = step::lowerPlan(model.summary, plan, expand);
  EXPECT_FALSE(graph.failed()) << graph.message();
  if (graph.failed())
    return {};
  took("expansion");
  counts["simulated tasks"] = graph->numInstructions;
  counts["instructions"] = double(graph->instructions.size());
  counts["waits"] = double(graph->waits.size());
  counts["arguments"] = double(graph->arguments.size());

  memory.reset();
  std::vector<std::string> programs;
  programs.reserve(plan.devices.size());
  for (uint32_t d = 0; d < plan.devices.size(); ++d)
    programs.push_back(bundle::serialize(*step::writeProgram(*graph, d, model.functions)));
  took("programs");
  for (const std::string &program : programs)
    counts["bytes of programs"] += double(program.size());

  const std::string json = step::writePlan(plan, model.summary);
  memory.reset();
  const Result<verify::PlanView> view = verify::readPlanView(json);
  EXPECT_FALSE(view.failed()) << view.message();
  const std::vector<verify::Finding> findings =
      verify::verifySerialized(model.summary, model.functions, *view, programs, options);
  took("verification");
  EXPECT_TRUE(findings.empty()) << verify::toString(findings.front(), *view);
  return counts;
}

/// \param slack  allowance for constant parts and for lists that double their capacity
void expectLinear(const Counts &less, const Counts &more, double factor, const std::string &what,
                  double slack) {
  for (const auto &[name, value] : less) {
    const double grown = more.at(name) / value;
    printf("%s: %-20s %12.0f -> %12.0f, %5.2f times\n", what.c_str(), name.c_str(), value,
           more.at(name), grown);
    EXPECT_LE(grown, factor * slack) << name << " of " << what;
  }
}

} // namespace

TEST(Growth, IsLinearInLayers) {
  for (bool direct : {false, true})
    expectLinear(count(10, 4, 4, direct), count(20, 4, 4, direct), 2,
                 direct ? "directly" : "by host", 1.1);
}

TEST(Growth, IsLinearInStages) {
  for (bool direct : {false, true})
    expectLinear(count(20, 4, 4, direct), count(20, 16, 4, direct), 4,
                 direct ? "directly" : "by host", 1.1);
}

TEST(Growth, IsLinearInReplicas) {
  for (bool direct : {false, true})
    expectLinear(count(10, 4, 4, direct), count(10, 4, 16, direct), 4,
                 direct ? "directly" : "by host", 1.1);
}

// All devices in every collective.
TEST(Growth, IsLinearInReplicasAlone) {
  for (bool direct : {false, true})
    expectLinear(count(10, 1, 16, direct), count(10, 1, 64, direct), 4,
                 direct ? "directly" : "by host", 1.1);
}
