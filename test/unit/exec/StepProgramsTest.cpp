// Tests that the verifier accepts the serialized programs of the step graph, for random plans of a
// synthetic model.
#include "EditedArgument.h"
#include "RandomPlan.h"
#include "zorse/Step/WriteProgram.h"
#include "zorse/Verify/Verify.h"
#include "zorse/runtime/Bundle.h"

#include "SyntheticModel.h"

#include <gtest/gtest.h>

using namespace zorse;

namespace {

/// The region of the very first argument; null if there is none.
bundle::Region *firstRegion(std::vector<bundle::Program> &programs) {
  for (bundle::Program &program : programs)
    for (bundle::Instruction &instruction : *program.mutable_instructions())
      if (instruction.has_compute() && instruction.compute().calls_size() &&
          bundle::ArgumentBindings(program, instruction.compute().calls(0)).size())
        return test::EditedArgument(program, *instruction.mutable_compute()->mutable_calls(0), 0)
            .mutable_region();
  return nullptr;
}

class StepPrograms : public ::testing::TestWithParam<int> {};

TEST_P(StepPrograms, AreVerified) {
  int seed = GetParam();
  test::SyntheticOptions options;
  options.units = 2 + seed % 5;
  options.tied = seed % 2;
  options.skip = seed % 3;
  options.clipNorm = seed % 4 ? 1.0 : 0.0;
  options.copies = seed / 2 % 2;
  options.seed = seed;
  test::SyntheticModel model = test::makeModel(options);
  static const int64_t batches[] = {1, 7, 8, 13, 32};
  step::Plan plan = step::randomPlan(model.summary, batches[seed % 5], 1 + seed * 7 % 6, seed);

  step::LoweringOptions expand;
  expand.functions = &model.functions;
  auto graph = step::lowerPlan(model.summary, plan, expand);
  ASSERT_FALSE(graph.failed()) << graph.message();

  std::vector<bundle::Program> programs;
  for (uint32_t device = 0; device < plan.devices.size(); ++device) {
    auto program = step::writeProgram(*graph, device, model.functions);
    ASSERT_FALSE(program.failed()) << program.message();
    programs.push_back(*program);
  }

  auto view = verify::readPlanView(step::writePlan(plan, model.summary));
  ASSERT_FALSE(view.failed()) << view.message();
  for (const verify::Finding &finding :
       verify::verifyPrograms(model.summary, model.functions, *view, programs))
    ADD_FAILURE() << verify::toString(finding, *view);

  // The runtime checks the programs again: it refuses a program that was changed together with its
  // checksum so that a call reads other bytes.
  runtime::Bundle bundle;
  bundle.directory = "b.zorse";
  bundle.plan = step::writePlan(plan, model.summary);
  bundle.summary = model.summary;
  bundle.functions = model.functions;
  bundle.programs = programs;
  EXPECT_TRUE(runtime::verifyBundle(bundle, 2).succeeded());
  bundle::Region *region = firstRegion(bundle.programs);
  ASSERT_TRUE(region);
  region->set_offset(region->offset() + 64);
  std::string message = runtime::verifyBundle(bundle, 2).message();
  EXPECT_NE(message.find("b.zorse: its programs are not those of its plan: verify: "),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("compile the model again"), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(Random, StepPrograms, ::testing::Range(0, 100));

} // namespace
