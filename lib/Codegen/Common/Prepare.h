// Decides which values share the memory of results and concats, and turns every necessary copy into
// an op.
#pragma once

#include "Views.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace zorse::codegen {

/// Whether the op is an elementwise arith or math op, a rounding or a copy.
bool isElementwise(mlir::Operation *op);

/// Whether the op is a scalar op on constants and arguments. Every kernel that uses it recomputes
/// it; it is never stored.
bool isUniform(mlir::Operation *op);

/// Whether the op is never stored: uniform ops, and causal masks with only elementwise users,
/// because their elements follow from the indices.
bool isMadeAgain(mlir::Operation *op);

/// Claims the memory of results and concats. Afterwards
/// - the root of every result and of every concat operand has a claim: it is written directly to
///   its final location;
/// - every operand of every op is a view of its root's buffer, and library ops have strides that
///   they can express.
///
/// \param fewLaunches  copy a value that cannot be written to its final location from its buffer
/// once, at the end
mlir::FailureOr<BufferAliases> assignAliases(mlir::func::FuncOp function, bool fewLaunches);

/// Moves ops that only parameter gradients need to the end, so that they do not separate launches
/// that could be merged.
void moveParameterGradientsLast(mlir::func::FuncOp function);

/// Moves every op before the first exchange that its operands permit. Segments between exchanges
/// then write the same results on all targets. \returns whether the function has exchanges
bool orderByExchanges(mlir::func::FuncOp function);

} // namespace zorse::codegen
