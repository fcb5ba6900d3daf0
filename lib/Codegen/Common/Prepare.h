// Decides which values share the bytes of results and concats, and makes every copy that is really needed an op.
#pragma once

#include "Views.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace zorse::codegen {

/// Elementwise ops of arith and math, roundings and copies.
bool isElementwise(mlir::Operation *op);

/// Scalar ops on constants and arguments: computed again by every kernel that uses them, never stored.
bool isUniform(mlir::Operation *op);

/// Never stored: uniform ops, and causal masks that elementwise ops alone read, whose elements follow from their indices.
bool isMadeAgain(mlir::Operation *op);

/// After it
/// - the root of every result and of every concat operand has a claim: it is written directly to its place,
/// - every operand of every op is a view of its root's buffer, and library ops find strides that they can express.
/// \param fewLaunches  what cannot be written to its place at once is copied there once, from where it was made.
mlir::FailureOr<Claims> claimPlaces(mlir::func::FuncOp function, bool fewLaunches);

/// Moves what gradients of parameters alone need behind everything else, so that it does not part launches that belong together.
void moveParameterGradientsLast(mlir::func::FuncOp function);

} // namespace zorse::codegen
