#include "TrainPipeline.h"

#include "zorse/Autodiff/SaveOption.h"
#include "zorse/Transforms/Passes.h"
#include "zorse/Units/Units.h"

#include "mlir/Pass/PassRegistry.h"

using namespace mlir;

namespace zorse::pipelines {

static llvm::cl::ValuesClass stages() {
  return llvm::cl::values(clEnumValN(Stage::Graph, "graph", "as zorse-import writes it"),
                          clEnumValN(Stage::Recognized, "recognized", "in canonical form, with its content hash and roundings"),
                          clEnumValN(Stage::Units, "units", "a chain of units, with a forward for each class"),
                          clEnumValN(Stage::Functions, "functions", "all functions that programs call"),
                          clEnumValN(Stage::Bodies, "bodies", "bodies and kernels for each architecture"));
}

TrainPipelineOptions::TrainPipelineOptions()
    : from(*this, "from", llvm::cl::desc("What the module is"), llvm::cl::init(Stage::Graph), stages()),
      to(*this, "to", llvm::cl::desc("What it becomes"), llvm::cl::init(Stage::Functions), stages()),
      round(*this, "round", llvm::cl::desc("What values are rounded to: bf16 or f16; none: nothing is"), llvm::cl::init("")),
      wideResidual(*this, "wide-residual", llvm::cl::desc("As zorse-insert-rounds has it"), llvm::cl::init(false)),
      settings(*this, "settings", llvm::cl::desc("As zorse-configure has it"), llvm::cl::init(units::ConfigureOptions().settings)),
      decay(*this, "decay", llvm::cl::desc("As zorse-configure has it"), llvm::cl::init(units::ConfigureOptions().decay)),
      batch(*this, "batch", llvm::cl::desc("Samples of a step"), llvm::cl::init(units::ConfigureOptions().batch)),
      save(*this, "save", llvm::cl::desc("What forwards keep for their backwards"), llvm::cl::init(autodiff::SavePolicy::MinimumCut),
           autodiff::savePolicies()),
      sampling(*this, "sampling", llvm::cl::desc("Add the function that text is sampled by"), llvm::cl::init(false)),
      architectures(*this, "arch", llvm::cl::desc("As zorse-lower-bodies has it")),
      sumTerms(*this, "sum-terms", llvm::cl::desc("As zorse-lower-bodies has it"), llvm::cl::init(0)) {}

void buildTrainPipeline(OpPassManager &passes, const TrainPipelineOptions &options) {
  auto makes = [&](Stage stage) { return options.from < stage && stage <= options.to; };
  if (makes(Stage::Recognized)) {
    addRecognitionPasses(passes);
    passes.addPass(units::createHashModel());
    if (!options.round.empty())
      passes.addPass(createInsertRounds({options.round, options.wideResidual}));
  }
  if (makes(Stage::Units)) {
    passes.addPass(units::createHashModel()); // a module that begins here
    passes.addPass(units::createConfigure({options.settings, options.decay, options.batch}));
    passes.addPass(units::createFindUnits());
  }
  if (makes(Stage::Functions))
    units::addFunctionPasses(passes, {options.save, options.sampling});
  if (makes(Stage::Bodies))
    passes.addPass(createLowerBodies(std::vector<std::string>(options.architectures.begin(), options.architectures.end()), options.sumTerms));
}

void registerTrainPipeline() {
  PassPipelineRegistration<TrainPipelineOptions>(
      "zorse-train-pipeline", "What zorse-compile makes of a model: from what the module is to what it becomes", buildTrainPipeline);
}

} // namespace zorse::pipelines
