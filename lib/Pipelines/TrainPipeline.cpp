#include "TrainPipeline.h"

#include "zorse/Pipelines/Passes.h"
#include "zorse/Transforms/Passes.h"

#include "mlir/Pass/PassRegistry.h"

using namespace mlir;

namespace zorse::pipelines {

llvm::cl::ValuesClass TrainPipelineOptions::stages() {
  return llvm::cl::values(
      clEnumValN(Stage::Graph, "graph", "imported, as zorse-import writes it"),
      clEnumValN(Stage::Recognized, "recognized",
                 "in canonical form, with its content hash and roundings"),
      clEnumValN(Stage::Units, "units", "a chain of units, with a forward function for each class"),
      clEnumValN(Stage::Functions, "functions", "all functions that programs call"),
      clEnumValN(Stage::Lowered, "lowered", "compiled functions and kernels for each architecture"),
      clEnumValN(Stage::Plan, "plan", "a plan, and the functions that it uses"),
      clEnumValN(Stage::Kernels, "kernels", "machine code"),
      clEnumValN(Stage::Step, "step", "the expanded plan, checked to run"),
      clEnumValN(Stage::Programs, "programs", "a program for each device"),
      clEnumValN(Stage::Verified, "verified", "verified"));
}

void buildTrainPipeline(OpPassManager &passes, const TrainPipelineOptions &options) {
  auto list = [](const auto &option) {
    return SmallVector<std::string>(option.begin(), option.end());
  };
  auto makes = [&](Stage stage) { return options.from < stage && stage <= options.to; };
  if (makes(Stage::Recognized)) {
    addRecognitionPasses(passes);
    passes.addPass(units::createHashModel());
    if (!options.round.empty())
      passes.addPass(createInsertRounds({options.round, options.fp32Residual}));
  }
  if (makes(Stage::Units)) {
    passes.addPass(units::createHashModel()); // a module that enters the pipeline here
    passes.addPass(units::createConfigure({options.settings, options.decay, options.batch,
                                           options.cluster, list(options.profiles), options.plan}));
    passes.addPass(units::createFindUnits());
  }
  if (makes(Stage::Functions))
    units::addFunctionPasses(passes, {options.save, createDivideByPlan, options.sampling});
  // Compiled functions precede the plan. They define the arguments and the workspace of a task, and
  // the plan must fit in memory.
  if (makes(Stage::Lowered))
    passes.addPass(createLowerFunctions({list(options.architectures), options.simulateOnly}));
  if (makes(Stage::Plan)) {
    passes.addPass(createMakePlan({options.gradientWire, options.near}));
    if (options.near.empty()) // otherwise the module has the machine code of all functions
      passes.addPass(createDropUnusedFunctions({options.keepAll}));
  }
  // Kernels are compiled after the plan. A plan without split backwards needs half of the backward
  // kernels, and a rejected plan needs none.
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
      "zorse-train-pipeline",
      "All passes of zorse-compile, from one stage of the module to another", buildTrainPipeline);
}

} // namespace zorse::pipelines
