// The compiler's passes in order: zorse-compile builds them from its flags, zorse-opt from `--zorse-train-pipeline="..."`. No other code orders
// passes.
#pragma once

#include "zorse/Autodiff/SaveOption.h"
#include "zorse/Pipelines/Compile.h"
#include "zorse/Units/Units.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassOptions.h"

#include <string>

namespace zorse::pipelines {

struct TrainPipelineOptions : mlir::PassPipelineOptions<TrainPipelineOptions> {
  Option<Stage> from{*this, "from", llvm::cl::desc("What the module is"), llvm::cl::init(Stage::Graph), stages()};
  Option<Stage> to{*this, "to", llvm::cl::desc("What it becomes"), llvm::cl::init(Stage::Functions), stages()};
  Option<std::string> round{*this, "round", llvm::cl::desc("What values are rounded to: bf16 or f16; none: nothing is"), llvm::cl::init("")};
  Option<bool> wideResidual{*this, "wide-residual", llvm::cl::desc("As zorse-insert-rounds has it"), llvm::cl::init(false)};
  Option<std::string> settings{*this, "settings", llvm::cl::desc("As zorse-configure has it"), llvm::cl::init(units::ConfigureOptions().settings)};
  Option<std::string> decay{*this, "decay", llvm::cl::desc("As zorse-configure has it"), llvm::cl::init(units::ConfigureOptions().decay)};
  Option<int64_t> batch{*this, "batch", llvm::cl::desc("Samples of a step"), llvm::cl::init(units::ConfigureOptions().batch)};
  Option<std::string> cluster{*this, "cluster", llvm::cl::desc("As zorse-configure has it"), llvm::cl::init("")};
  ListOption<std::string> profiles{*this, "profile", llvm::cl::desc("As zorse-configure has it")};
  Option<std::string> plan{*this, "plan", llvm::cl::desc("As zorse-configure has it"), llvm::cl::init("")};
  Option<autodiff::SavePolicy> save{*this, "save", llvm::cl::desc("What forwards keep for their backwards"),
                                    llvm::cl::init(autodiff::SavePolicy::MinimumCut), autodiff::savePolicies()};
  Option<bool> sampling{*this, "sampling", llvm::cl::desc("Add the function that text is sampled by"), llvm::cl::init(false)};
  ListOption<std::string> architectures{*this, "arch", llvm::cl::desc("As zorse-lower-bodies has it")};
  Option<bool> simulateOnly{*this, "simulate-only", llvm::cl::desc("As zorse-lower-bodies has it"), llvm::cl::init(false)};

  static llvm::cl::ValuesClass stages();
  Option<bool> keepSplit{*this, "keep-split", llvm::cl::desc("As zorse-drop-unused-bodies has it"), llvm::cl::init(false)};
  Option<unsigned> threads{*this, "threads", llvm::cl::desc("As zorse-compile-kernels has it"), llvm::cl::init(2)};
  Option<bool> cache{*this, "cache", llvm::cl::desc("As zorse-compile-kernels has it"), llvm::cl::init(true)};
  Option<std::string> kernelTexts{*this, "dump-dir", llvm::cl::desc("As zorse-compile-kernels has it"), llvm::cl::init("")};
};

void buildTrainPipeline(mlir::OpPassManager &passes, const TrainPipelineOptions &options);

} // namespace zorse::pipelines
