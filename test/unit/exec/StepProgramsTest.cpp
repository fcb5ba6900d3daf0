// Random plans of a synthetic model: the step graph's programs pass the verifier as serialised, and survive the way to text and back.
#include "zorse/Bundle/BundleWriter.h"
#include "zorse/Conversion/ExecConversion.h"
#include "zorse/Step/RandomPlan.h"
#include "zorse/Step/StepGraph.h"
#include "zorse/Verify/Verify.h"

#include "SyntheticModel.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

using namespace zorse;

namespace {

class StepPrograms : public ::testing::TestWithParam<int> {};

TEST_P(StepPrograms, AreVerifiedAndReadBack) {
  int seed = GetParam();
  test::SyntheticOptions options;
  options.units = 2 + seed % 5;
  options.tied = seed % 2;
  options.skip = seed % 3;
  options.clipNorm = seed % 4 ? 1.0 : 0.0;
  options.seed = seed;
  test::SyntheticModel model = test::makeModel(options);
  static const int64_t batches[] = {1, 7, 8, 13, 32};
  step::Plan plan = step::randomPlan(model.summary, batches[seed % 5], 1 + seed * 7 % 6, seed);

  std::string error;
  step::ExpandOptions expand;
  expand.bodies = &model.bodies;
  auto graph = step::expandPlan(model.summary, plan, error, expand);
  ASSERT_TRUE(graph) << error;

  conversion::ExecNames names;
  names.summary = &model.summary;
  names.bodies = &model.bodies;
  for (const step::PlanDevice &device : plan.devices)
    names.devices.push_back(device.name);
  std::vector<bundle::Program> programs;
  for (uint32_t device = 0; device < plan.devices.size(); ++device) {
    mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
    auto module = conversion::stepToExec(&context, *graph, device, names);
    ASSERT_TRUE(mlir::succeeded(module)) << "device " << device;
    auto program = conversion::execToProgram(**module);
    ASSERT_TRUE(mlir::succeeded(program));
    programs.push_back(*program);

    std::string text;
    llvm::raw_string_ostream(text) << **module;
    auto parsed = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    ASSERT_TRUE(parsed);
    auto again = conversion::execToProgram(*parsed);
    ASSERT_TRUE(mlir::succeeded(again));
    EXPECT_EQ(bundle::serialize(*again), bundle::serialize(*program));
    auto back = conversion::programToExec(&context, *program, names);
    ASSERT_TRUE(mlir::succeeded(back));
    std::string second;
    llvm::raw_string_ostream(second) << **back;
    EXPECT_EQ(second, text);
  }

  auto view = verify::readPlanView(step::writePlan(plan, model.summary), error);
  ASSERT_TRUE(view) << error;
  for (const verify::Finding &finding : verify::verifyPrograms(model.summary, model.bodies, *view, programs))
    ADD_FAILURE() << verify::toString(finding, *view);
}

INSTANTIATE_TEST_SUITE_P(Random, StepPrograms, ::testing::Range(0, 100));

} // namespace
