// Divides the joint functions of models among the devices of a group, with random shares, and evaluates the devices'
// functions together: losses, activations and gradients are those of one device.
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
  std::mt19937 random(5);
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
      EXPECT_EQ(group.compare(randomArguments(joint, options.rows, random), devices, worst), "") << devices << " devices";
    }
  }
  EXPECT_LE(worst, 1e-9);
  return divided / flops;
}

} // namespace

TEST(Sharding, Gpt) { EXPECT_GT(compareClasses(withoutDropout(readModel("gpt.mlir")), 10), 0.5); }
TEST(Sharding, Llama) { EXPECT_GT(compareClasses(readModel("llama.mlir"), 10), 0.5); }
TEST(Sharding, PostNorm) { EXPECT_GT(compareClasses(postNormModel(2), 10), 0.5); }
TEST(Sharding, SkipConnections) { compareClasses(skipModel(3), 10); }
TEST(Sharding, SeveralLosses) { compareClasses(auxiliaryLossModel(), 10); }
TEST(Sharding, FrozenLayers) { compareClasses(frozenModel(), 10); }
TEST(Sharding, Regression) { compareClasses(regressionModel(4), 10); }
TEST(Sharding, ParallelLayers) { EXPECT_GT(compareClasses(parallelModel(2), 10), 0.5); }
TEST(Sharding, KnownNumbers) { compareClasses(knownModel(), 10); }
TEST(Sharding, EncoderDecoder) { EXPECT_GT(compareClasses(encoderDecoderModel(2), 10), 0.5); }
