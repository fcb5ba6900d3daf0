// The function that text is sampled by.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"

#include <string>

namespace zorse::units {

/// `@<name>`: what `forward` hands to its cross-entropy, at one position a row: those arguments of `forward` that it needs, and last the positions,
/// tensor<?xi64>, as the slot `input` of index `inputs` (the number of the unit's inputs); the result tensor<?xVxT> is the slot `boundary_out` 0.
/// Fails, with a diagnostic, where `forward` computes no cross-entropy over positions.
mlir::FailureOr<mlir::func::FuncOp> buildLogits(mlir::OpBuilder &builder, mlir::func::FuncOp forward, int64_t inputs);

} // namespace zorse::units
