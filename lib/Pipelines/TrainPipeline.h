// The compiler's passes in order: zorse-compile builds them from its flags, zorse-opt from `--zorse-train-pipeline="..."`. No other code orders
// passes.
#pragma once

#include "zorse/Autodiff/Autodiff.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassOptions.h"

#include <memory>
#include <string>
#include <vector>

namespace zorse::pipelines {

/// What the module is, in order (docs/passes.md).
enum class Stage : uint8_t {
  Graph,      ///< as it was imported
  Recognized, ///< in one canonical form, with its content hash and roundings
  Units,      ///< @model a chain of units, a forward for each class
  Functions,  ///< all functions that programs call
  Bodies,     ///< a zorse.target for each architecture: bodies, and their kernels
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
  ListOption<std::string> architectures;
  Option<unsigned> sumTerms;
};

void buildTrainPipeline(mlir::OpPassManager &passes, const TrainPipelineOptions &options);

/// Registers `zorse-train-pipeline`.
void registerTrainPipeline();

/// \param sumTerms  as codegen::appendBuiltinBodies takes it
std::unique_ptr<mlir::Pass> createLowerBodies(const std::vector<std::string> &architectures, uint32_t sumTerms);
/// Registers `zorse-lower-bodies`.
void registerLowerBodies();

} // namespace zorse::pipelines
