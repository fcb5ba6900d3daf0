// Functions that belong to no unit: denominators and updates.
#pragma once

#include "ModelGraph.h"
#include "zorse/Units/Units.h"

#include "mlir/IR/Builders.h"

namespace zorse::units {

/// `@denominators` for the terms whose D_k is counted, and the loss terms of the summary. `inputIndex` numbers graph inputs.
mlir::LogicalResult buildDenominators(mlir::OpBuilder &builder, const ModelGraph &graph, const llvm::DenseMap<mlir::Value, unsigned> &inputIndex,
                                      bundle::ModelSummary &summary);

/// `@update.decay`, `@update.plain` and, where the model has running statistics, `@update.statistics` for the options of the summary, over elements
/// of `type`; sets `moments`.
mlir::LogicalResult buildUpdates(mlir::OpBuilder &builder, mlir::Location loc, mlir::FloatType type, bundle::ModelSummary &summary);

} // namespace zorse::units
