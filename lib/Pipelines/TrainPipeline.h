// The compiler's passes in order: zorse-compile builds them from its flags, zorse-opt from `--zorse-train-pipeline="..."`. No other code orders passes.
#pragma once

#include "zorse/Autodiff/Autodiff.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassOptions.h"

#include <string>

namespace zorse::pipelines {

/// What the module is, in order (docs/passes.md).
enum class Stage : uint8_t {
  Graph,      ///< as it was imported
  Recognized, ///< in one canonical form, with its content hash and roundings
  Units,      ///< @model a chain of units, a forward for each class
  Functions,  ///< all functions that programs call
};

struct TrainPipelineOptions : mlir::PassPipelineOptions<TrainPipelineOptions> {
  TrainPipelineOptions();

  Option<Stage> from, to;
  Option<std::string> round;
  Option<bool> wideResidual;
  Option<std::string> settings, decay;
  Option<int64_t> batch;
  Option<autodiff::SavePolicy> save;
  Option<bool> sampling;
};

void buildTrainPipeline(mlir::OpPassManager &passes, const TrainPipelineOptions &options);

/// Registers `zorse-train-pipeline`.
void registerTrainPipeline();

} // namespace zorse::pipelines
