// The compiler's passes in order. zorse-compile builds them from its flags, zorse-opt from
// `--zorse-train-pipeline="..."`. No other code orders passes.
#pragma once

#include "zorse/Autodiff/SaveOption.h"
#include "zorse/Pipelines/Compile.h"
#include "zorse/Units/Units.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassOptions.h"

#include <string>

namespace zorse::pipelines {

struct TrainPipelineOptions : mlir::PassPipelineOptions<TrainPipelineOptions> {
  Option<Stage> from{*this, "from", llvm::cl::desc("Stage of the input module"),
                     llvm::cl::init(Stage::Graph), stages()};
  Option<Stage> to{*this, "to", llvm::cl::desc("Stage of the output module"),
                   llvm::cl::init(Stage::Functions), stages()};
  Option<std::string> round{
      *this, "round",
      llvm::cl::desc("Type to which values are rounded: bf16 or f16; none: no rounding"),
      llvm::cl::init("")};
  Option<bool> fp32Residual{*this, "fp32-residual", llvm::cl::desc("Option of zorse-insert-rounds"),
                            llvm::cl::init(false)};
  Option<std::string> settings{*this, "settings", llvm::cl::desc("Option of zorse-configure"),
                               llvm::cl::init(units::ConfigureOptions().settings)};
  Option<std::string> decay{*this, "decay", llvm::cl::desc("Option of zorse-configure"),
                            llvm::cl::init(units::ConfigureOptions().decay)};
  Option<int64_t> batch{*this, "batch", llvm::cl::desc("Samples of a step"),
                        llvm::cl::init(units::ConfigureOptions().batch)};
  Option<std::string> cluster{*this, "cluster", llvm::cl::desc("Option of zorse-configure"),
                              llvm::cl::init("")};
  ListOption<std::string> profiles{*this, "profile", llvm::cl::desc("Option of zorse-configure")};
  Option<std::string> plan{*this, "plan", llvm::cl::desc("Option of zorse-configure"),
                           llvm::cl::init("")};
  Option<std::string> gradientWire{*this, "gradient-wire", llvm::cl::desc("Option of zorse-plan"),
                                   llvm::cl::init("")};
  Option<std::string> near{*this, "near", llvm::cl::desc("Option of zorse-plan"),
                           llvm::cl::init("")};
  Option<autodiff::RecomputePolicy> save{
      *this, "save", llvm::cl::desc("Activations that forwards save for their backwards"),
      llvm::cl::init(autodiff::RecomputePolicy::MinCut), autodiff::savePolicies()};
  Option<bool> sampling{*this, "sampling", llvm::cl::desc("Add the function for text generation"),
                        llvm::cl::init(false)};
  ListOption<std::string> architectures{*this, "arch",
                                        llvm::cl::desc("Option of zorse-lower-functions")};
  Option<bool> simulateOnly{*this, "simulate-only",
                            llvm::cl::desc("Option of zorse-lower-functions"),
                            llvm::cl::init(false)};

  static llvm::cl::ValuesClass stages();
  Option<bool> keepAll{*this, "keep-all", llvm::cl::desc("Option of zorse-drop-unused-functions"),
                       llvm::cl::init(false)};
  Option<unsigned> threads{*this, "threads", llvm::cl::desc("Option of zorse-compile-kernels"),
                           llvm::cl::init(2)};
  Option<bool> cache{*this, "cache", llvm::cl::desc("Option of zorse-compile-kernels"),
                     llvm::cl::init(true)};
  Option<std::string> kernelTexts{
      *this, "dump-dir", llvm::cl::desc("Option of zorse-compile-kernels"), llvm::cl::init("")};
};

void buildTrainPipeline(mlir::OpPassManager &passes, const TrainPipelineOptions &options);

} // namespace zorse::pipelines
