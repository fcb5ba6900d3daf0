// What is known of a step before it begins.
#pragma once

#include "ModelGraph.h"

#include "mlir/IR/Builders.h"

namespace zorse::units {

inline constexpr llvm::StringLiteral kCounts = "counts"; ///< the symbol of the function that makes counts

/// How `@model` calls `@counts`.
struct Counts {
  llvm::SmallVector<mlir::Value> operands; ///< arguments and `zorse.known` of the model
  llvm::SmallVector<unsigned> results;     ///< of the model, one for each result of `@counts`; empty: the model has no counts
};

/// Adds `@counts` where the model returns counts, and `zorse.meaning` to these results. Fails, with diagnostics, where a count follows from a
/// parameter, or a factor or a known number is no expression of counts that are there.
mlir::FailureOr<Counts> buildCounts(mlir::OpBuilder &builder, const ModelGraph &graph);

} // namespace zorse::units
