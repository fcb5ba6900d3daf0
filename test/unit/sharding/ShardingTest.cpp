// Divides the joint functions of models among the devices of a group, with random shares, and
// evaluates the devices' functions together: losses, activations and gradients are those of one
// device.
#include "../autodiff/UnitFunctions.h"
#include "../units/Models.h"
#include "GroupEvaluation.h"

#include "zorse/Autodiff/Autodiff.h"
#include "zorse/Units/Units.h"

#include "mlir/Pass/PassManager.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace zorse;
using namespace zorse::testing;

namespace {

/// Builds the joint functions of a model.
OwningOpRef<ModuleOp> jointFunctions(MLIRContext &context, const std::string &text) {
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context);
  EXPECT_TRUE(module);
  PassManager passes(&context);
  bundle::ModelSummary settings;
  settings.mutable_training()->set_optimizer(bundle::TrainingOptions::SGD);
  passes.addPass(units::createHashModel());
  passes.addPass(units::createConfigure({units::settingsText(settings), "rank", 1}));
  passes.addPass(units::createFindUnits());
  passes.addPass(autodiff::createJoinBackward());
  EXPECT_TRUE(succeeded(passes.run(*module)));
  return module;
}

/// Returns the fraction of the FLOPs that is divided.
double compareClasses(const std::string &text, int tries, double flopsPerByte = 0) {
  auto context = makeContext();
  OwningOpRef<ModuleOp> module = jointFunctions(*context, text);
  std::mt19937 random(5); // NOLINT(bugprone-random-generator-seed): the same numbers in every run
  double worst = 0, divided = 0, flops = 0;
  for (auto unitClass : module->getOps<ClassOp>()) {
    func::FuncOp joint = unitClass.function(Task::Joint);
    autodiff::dropPairs(joint);
    const ClassSharding sharding = sharding::deriveSharding(joint, flopsPerByte);
    SCOPED_TRACE(unitClass.getSymName().str() + "\n" + sharding::toString(sharding, joint));
    divided += sharding.dividedFlops, flops += sharding.flops;
    for (int i = 0; i < tries; ++i) {
      reference::Options options;
      options.rows = 3;
      const size_t devices = 2 + random() % 3;
      GroupEvaluation group(joint, sharding, randomShares(sharding, devices, random), options);
      EXPECT_EQ(group.compare(randomArguments(joint, options.rows, random), devices, worst), "")
          << devices << " devices";
    }
  }
  EXPECT_LE(worst, 1e-9);
  return divided / flops;
}

/// The loss of logits of which a device may have only masked ones.
constexpr const char *kMaskedLoss = R"(
func.func @joint(%x: tensor<?x3x4xf64> {zorse.argument = #zorse.argument<boundary_in, 0>},
                 %w: tensor<11x4xf64> {zorse.argument = #zorse.argument<parameter, 0>},
                 %mask: tensor<11xf64> {zorse.argument = #zorse.argument<parameter, 1>},
                 %labels: tensor<?x3xi64> {zorse.argument = #zorse.argument<input, 0>})
    -> (tensor<?x3xf64> {zorse.argument = #zorse.argument<loss, 0>}) {
  %0 = zorse.matmul %x, %w {transpose_b} : tensor<?x3x4xf64>, tensor<11x4xf64> -> tensor<?x3x11xf64>
  %1 = zorse.broadcast %mask dims [2] : tensor<11xf64> -> tensor<?x3x11xf64>
  %2 = arith.addf %0, %1 : tensor<?x3x11xf64>
  %3 = zorse.cross_entropy %2, %labels {ignore_index = 7 : i64} : (tensor<?x3x11xf64>, tensor<?x3xi64>) -> tensor<?x3xf64>
  return %3 : tensor<?x3xf64>
}
)";

} // namespace

TEST(Sharding, ADeviceWithoutPossibleClasses) {
  auto context = makeContext();
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(kMaskedLoss, context.get());
  ASSERT_TRUE(module);
  auto joint = *module->getOps<func::FuncOp>().begin();
  const ClassSharding sharding = sharding::deriveSharding(joint, 0);
  EXPECT_EQ(sharding.combined, 1U) << sharding::toString(sharding, joint);
  std::mt19937 random(3); // NOLINT(bugprone-random-generator-seed): the same numbers in every run
  double worst = 0;
  for (int i = 0; i < 50; ++i) {
    reference::Options options;
    options.rows = 2;
    std::vector<Tensor> arguments = randomArguments(joint, options.rows, random);
    for (size_t v = 0; v < 5; ++v)
      arguments[2].values[v] = -INFINITY;
    for (double &label : arguments[3].values)
      label = static_cast<double>(5 + random() % 6);
    const size_t devices = 2 + random() % 3;
    GroupEvaluation group(joint, sharding, randomShares(sharding, devices, random), options);
    EXPECT_EQ(group.compare(arguments, devices, worst), "");
  }
  EXPECT_LE(worst, 1e-12);
}

TEST(Sharding, Gpt) { EXPECT_GT(compareClasses(readModel("gpt.mlir"), 10), 0.5); }
TEST(Sharding, Llama) { EXPECT_GT(compareClasses(readModel("llama.mlir"), 10), 0.5); }
TEST(Sharding, PostNorm) { EXPECT_GT(compareClasses(postNormModel(2), 10), 0.5); }
TEST(Sharding, SkipConnections) { compareClasses(skipModel(3), 10); }
TEST(Sharding, SeveralLosses) { compareClasses(auxiliaryLossModel(), 10); }
TEST(Sharding, FrozenLayers) { compareClasses(frozenModel(), 10); }
TEST(Sharding, Regression) { compareClasses(regressionModel(4), 10); }
TEST(Sharding, ParallelLayers) { EXPECT_GT(compareClasses(parallelModel(2), 10), 0.5); }
TEST(Sharding, KnownNumbers) { compareClasses(knownModel(), 10); }
TEST(Sharding, EncoderDecoder) { EXPECT_GT(compareClasses(encoderDecoderModel(2), 10), 0.5); }
