#include "TrainPipeline.h"

#include "zorse/Pipelines/Passes.h"
#include "zorse/Transforms/Passes.h"

#include "mlir/Pass/PassRegistry.h"

using namespace mlir;

namespace zorse::pipelines {

llvm::cl::ValuesClass TrainPipelineOptions::stages() {
  return llvm::cl::values(clEnumValN(Stage::Graph, "graph", "as zorse-import writes it"),
                          clEnumValN(Stage::Recognized, "recognized", "in canonical form, with its content hash and roundings"),
                          clEnumValN(Stage::Units, "units", "a chain of units, with a forward for each class"),
                          clEnumValN(Stage::Functions, "functions", "all functions that programs call"),
                          clEnumValN(Stage::Bodies, "bodies", "bodies and kernels for each architecture"),
                          clEnumValN(Stage::Plan, "plan", "a plan, and of bodies what it uses"),
                          clEnumValN(Stage::Kernels, "kernels", "machine code"), clEnumValN(Stage::Step, "step", "the plan expanded, which can run"),
                          clEnumValN(Stage::Programs, "programs", "a program for each device"), clEnumValN(Stage::Verified, "verified", "verified"));
}

void buildTrainPipeline(OpPassManager &passes, const TrainPipelineOptions &options) {
  auto list = [](const auto &option) { return SmallVector<std::string>(option.begin(), option.end()); };
  auto makes = [&](Stage stage) { return options.from < stage && stage <= options.to; };
  if (makes(Stage::Recognized)) {
    addRecognitionPasses(passes);
    passes.addPass(units::createHashModel());
    if (!options.round.empty())
      passes.addPass(createInsertRounds({options.round, options.wideResidual}));
  }
  if (makes(Stage::Units)) {
    passes.addPass(units::createHashModel()); // a module that begins here
    passes.addPass(units::createConfigure({options.settings, options.decay, options.batch, options.cluster, list(options.profiles), options.plan}));
    passes.addPass(units::createFindUnits());
  }
  if (makes(Stage::Functions))
    units::addFunctionPasses(passes, {options.save, options.sampling});
  // Bodies before the plan: they say which slots a task has and how much workspace, and the plan must fit.
  if (makes(Stage::Bodies))
    passes.addPass(createLowerBodies({list(options.architectures), options.simulateOnly}));
  if (makes(Stage::Plan)) {
    passes.addPass(createMakePlan());
    passes.addPass(createDropUnusedBodies({options.keepSplit}));
  }
  // Machine code behind the plan: one that does not split the backward needs half of the backwards' kernels, and one that is refused none.
  if (makes(Stage::Kernels))
    passes.addPass(createCompileKernels({options.threads, options.cache, options.kernelTexts}));
  if (makes(Stage::Step))
    passes.addPass(createExpandStep());
  if (makes(Stage::Programs))
    passes.addPass(createWritePrograms({options.threads}));
  if (makes(Stage::Verified))
    passes.addPass(createVerifyPrograms({options.threads}));
}

#define GEN_PASS_REGISTRATION
#include "zorse/Pipelines/Passes.h.inc"

void registerPasses() {
  registerPipelinesPasses();
  PassPipelineRegistration<TrainPipelineOptions>(
      "zorse-train-pipeline", "What zorse-compile makes of a model: from what the module is to what it becomes", buildTrainPipeline);
}

} // namespace zorse::pipelines
