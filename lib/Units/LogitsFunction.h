// Builds the function for text generation.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"

#include <string>

namespace zorse::units {

/// Builds `@<name>`, which computes the input of `forward`'s cross-entropy at one position per row.
/// Its arguments are the arguments of `forward` that it needs and the positions, tensor<?xi64>,
/// which are the argument `input` with index `inputs` (the number of the unit's inputs). The result
/// tensor<?xVxT> is the argument `boundary_out` 0. Fails, with a diagnostic, if `forward` computes
/// no cross-entropy over positions.
mlir::FailureOr<mlir::func::FuncOp> buildLogits(mlir::OpBuilder &builder,
                                                mlir::func::FuncOp forward, int64_t inputs);

} // namespace zorse::units
