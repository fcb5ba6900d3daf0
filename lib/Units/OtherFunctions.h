// Functions that belong to no unit: counts and updates.
#pragma once

#include "ModelGraph.h"
#include "zorse/Units/Units.h"

#include "mlir/IR/Builders.h"

namespace zorse::units {

/// `@counts`, where the model returns counts, and what the summary says of the loss: terms, counts and known numbers. `inputIndex` numbers graph
/// inputs.
mlir::LogicalResult buildCounts(mlir::OpBuilder &builder, const ModelGraph &graph, const llvm::DenseMap<mlir::Value, unsigned> &inputIndex,
                                bundle::ModelSummary &summary);

/// `@update.decay`, `@update.plain` and, where the model has running statistics, `@update.statistics` for the options of the summary, over elements
/// of `type`; sets `moments`.
mlir::LogicalResult buildUpdates(mlir::OpBuilder &builder, mlir::Location loc, mlir::FloatType type, bundle::ModelSummary &summary);

} // namespace zorse::units
