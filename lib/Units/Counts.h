// Values of a step that are known before it begins.
#pragma once

#include "ModelGraph.h"

#include "mlir/IR/Builders.h"

namespace zorse::units {

inline constexpr llvm::StringLiteral kCounts = "counts"; ///< symbol of the function that computes
                                                         ///< counts

/// The call of `@counts` in `@model`.
struct Counts {
  llvm::SmallVector<mlir::Value> operands; ///< arguments and `zorse.known` results of the model
  llvm::SmallVector<unsigned> results;     ///< result numbers of the model, one per result of
                                           ///< `@counts`; empty: the model has no counts
};

/// Adds `@counts` if the model returns counts, and `zorse.meaning` to these results. Fails, with
/// diagnostics, if a count depends on a parameter, or if a factor or a known number is not an
/// expression of existing counts.
mlir::FailureOr<Counts> buildCounts(mlir::OpBuilder &builder, const ModelGraph &graph);

} // namespace zorse::units
