// Tests models given by dimensions: work and bytes of published models, and their expansion.
#include "LlamaShape.h"
#include "ParameterRuns.h"
#include "zorse/Summary/Summary.h"

#include "zorse/Step/Plan.h"
#include "zorse/Step/StepGraph.h"

#include <gtest/gtest.h>

using namespace zorse;
using namespace zorse::planning;

namespace {

bundle::ModelSummary summaryOf(const char *name, int64_t sequence,
                               bundle::ElementType type = bundle::BF16) {
  LlamaShape shape = *findLlamaShape(name);
  shape.sequence = sequence;
  shape.computeType = type;
  auto summary = makeSummary(shape);
  EXPECT_FALSE(summary.failed()) << summary.message();
  return *summary;
}

double parameters(const bundle::ModelSummary &summary) {
  double sum = 0;
  for (const auto &parameter : summary.parameters()) {
    double elements = 1;
    for (int64_t dim : parameter.shape())
      elements *= double(dim);
    sum += elements;
  }
  return sum;
}

TEST(LlamaShape, CountsParameters) {
  // 32·(4·4096² + 3·4096·11008 + 2·4096) + 2·49152·4096 + 4096
  EXPECT_EQ(parameters(summaryOf("llama-7b", 2048)), 6878924800.0);
  EXPECT_NEAR(parameters(summaryOf("llama-13b", 2048)) / 1e9, 13.19, 0.01);
  EXPECT_NEAR(parameters(summaryOf("llama-33b", 2048)) / 1e9, 32.76, 0.01);
  EXPECT_NEAR(parameters(summaryOf("llama-65b", 2048)) / 1e9, 65.57, 0.01);
  EXPECT_NEAR(parameters(summaryOf("llama-70b", 4096)) / 1e9, 68.98, 0.01);
}

TEST(LlamaShape, WorkIsSixTimesParametersAndAttention) {
  for (const char *name : {"llama-7b", "llama-65b"}) {
    bundle::ModelSummary summary = summaryOf(name, 2048);
    LlamaShape shape = *findLlamaShape(name);
    double flops = 0, split = 0;
    for (const auto &unit : summary.units()) {
      flops += trainingFlops(classOf(summary, unit));
      for (auto task : {bundle::UnitFunction::FORWARD, bundle::UnitFunction::INPUT_GRADIENTS,
                        bundle::UnitFunction::WEIGHT_GRADIENTS})
        split += functionOf(summary, unit, task).flops_per_row();
    }
    const double multiplied = parameters(summary) - double(shape.vocabulary * shape.hidden) -
                              double((2 * shape.layers + 1) * shape.hidden);
    const double expected = 2048 *
                            (6 * multiplied + 12.0 * double(shape.layers * shape.hidden) * 2048);
    EXPECT_NEAR(flops / expected, 1, 1e-12);
    EXPECT_NEAR(split / expected, 1, 1e-12);
  }
}

TEST(LlamaShape, Expands) {
  for (auto type : {bundle::BF16, bundle::F32}) {
    LlamaShape shape{"tiny", 3, 64, 160, 4, 2, 512, 32, type};
    auto summary = makeSummary(shape);
    ASSERT_FALSE(summary.failed()) << summary.message();
    auto plan = step::readPlan(
        R"({"global_batch_size": 6, "devices": ["a", "b", "c"], "stages": [{"units": [0, 3], "devices": ["a", "b"], "micro_batch_size": 1}, {"units": [3, 8], "devices": ["c"], "micro_batch_size": 1}]})",
        *summary);
    ASSERT_FALSE(plan.failed()) << plan.message();
    auto graph = step::lowerPlan(*summary, *plan);
    ASSERT_FALSE(graph.failed()) << graph.message();
    // State of c, the only owner of units 3 to 7: parameters and two moments in f32. Only 16-bit
    // types have separate gathered parameters.
    uint64_t owned = 0;
    for (uint32_t g = 3; g < 8; ++g)
      owned += uint64_t(summary->groups(g).elements());
    const auto &memory = graph->devices[2].memory;
    EXPECT_NEAR(double(memory.state), double(12 * owned), 4096);
    EXPECT_NEAR(double(memory.gathered), type == bundle::F32 ? 0 : double(2 * owned), 4096);
  }
}

TEST(LlamaShape, Mistakes) {
  EXPECT_FALSE(findLlamaShape("llama-8b"));
  std::string error = makeSummary({"x", 2, 64, 160, 5, 5, 512, 32}).message();
  EXPECT_NE(error.find("5 heads"), std::string::npos) << error;
  error = makeSummary({"x", 2, 64, 160, 4, 4, 512, 0}).message();
  EXPECT_NE(error.find("sequence is 0"), std::string::npos) << error;
}

} // namespace

namespace {

/// A small Llama with 4 key heads that groups divide.
bundle::ModelSummary dividedSummary(const std::vector<UnitGroup> &groups, std::string &message) {
  auto summary = makeSummary({"x", 2, 64, 160, 8, 4, 512, 32}, groups);
  message = summary.message();
  return summary.failed() ? bundle::ModelSummary() : *summary;
}

double flopsOf(const bundle::ModelSummary &summary, const bundle::UnitInfo &unit) {
  return trainingFlops(classOf(summary, unit));
}

} // namespace

TEST(LlamaShape, DevicesOfAGroupShareTheWorkAndTheParameters) {
  std::string message;
  const bundle::ModelSummary whole = dividedSummary({}, message);
  const bundle::ModelSummary divided = dividedSummary({{"g", {2, 1, 1}, {1, 2, 3, 4, 5}}}, message);
  ASSERT_EQ(message, "");
  EXPECT_EQ(parameters(divided), parameters(whole)); // parts tile the parameters
  const bundle::DeviceGroup &group = divided.device_groups(0);
  ASSERT_EQ(group.members_size(), 3);
  for (int i = 0; i < group.units_size(); ++i) {
    const bundle::UnitInfo &unit = divided.units(int(group.units(i)));
    double flops = 0;
    for (const auto &member : group.members()) {
      flops += flopsOf(divided, member.units(i));
      EXPECT_EQ(classOf(divided, member.units(i)).functions(0).exchanges_size(), 1);
    }
    EXPECT_NEAR(flops / flopsOf(divided, unit), 1, 1e-12) << unit.name();
    EXPECT_NEAR(flopsOf(divided, group.members(0).units(i)) / flops, 0.5, 0.02) << unit.name();
    EXPECT_EQ(unit.parameters_size(), 0);
  }
  EXPECT_EQ(divided.units(0).parameters_size(), 1) << "the embedding is in no group";
}

TEST(LlamaShape, GroupsWithMoreDevicesThanHeads) {
  std::string message;
  const bundle::ModelSummary whole = dividedSummary({}, message);
  const bundle::ModelSummary divided = dividedSummary({{"g", {1, 1, 1, 1, 1}, {1, 2}}}, message);
  ASSERT_EQ(message, "");
  EXPECT_EQ(parameters(divided), parameters(whole));
  double flops = 0;
  for (const auto &member : divided.device_groups(0).members())
    flops += flopsOf(divided, member.units(0));
  EXPECT_NEAR(flops / flopsOf(whole, whole.units(1)), 1, 1e-12);
  EXPECT_EQ(flopsOf(divided, divided.device_groups(0).members(4).units(0)), 0);
}

TEST(LlamaShape, GroupsThatDivideAUnitAtDifferentPlaces) {
  std::string message;
  const bundle::ModelSummary whole = dividedSummary({}, message);
  const bundle::ModelSummary divided =
      dividedSummary({{"g", {1, 1}, {1, 2}}, {"h", {3, 1}, {1}}, {"i", {1}, {1}}}, message);
  ASSERT_EQ(message, "");
  EXPECT_EQ(parameters(divided), parameters(whole));
  // The first unit is the attention: the devices have 2 and 2, 3 and 1, and all 4 key heads.
  const int64_t element = 64 * 16; // queries of a key head
  auto runs = [&](int group, int member) {
    const bundle::UnitInfo &unit = divided.device_groups(group).members(member).units(0);
    const bundle::UnitInfo::ParameterPart *part = bundle::partOf(unit, 1);
    return part ? std::pair(part->begin(0), part->end(0)) : std::pair(int64_t(0), int64_t(0));
  };
  EXPECT_EQ(runs(0, 0), std::pair(int64_t(0), 2 * element));
  EXPECT_EQ(runs(0, 1), std::pair(2 * element, 4 * element));
  EXPECT_EQ(runs(1, 0), std::pair(int64_t(0), 3 * element));
  EXPECT_EQ(runs(1, 1), std::pair(3 * element, 4 * element));
  EXPECT_EQ(divided.device_groups(2).members(0).units(0).parts_size(), 0);
  EXPECT_EQ(
      classOf(divided, divided.device_groups(2).members(0).units(0)).functions(0).exchanges_size(),
      0);
  // Only one group divides the second unit, so its devices have parameters of their parts.
  EXPECT_EQ(divided.device_groups(0).members(0).units(1).parts_size(), 0);
}
