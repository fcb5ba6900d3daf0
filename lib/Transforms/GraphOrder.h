// One order for the ops and arguments of a graph, that depends on what is computed and not on who wrote it down.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace zorse {

/// Orders the operands of commutative ops by what they compute: deeper ones first, arguments and constants last; equal ones keep their order.
void orderCommutativeOperands(mlir::func::FuncOp function);

/// Orders ops depth-first from the results, operands left to right, and drops what no result needs.
void orderOps(mlir::func::FuncOp function);

/// Orders parameter arguments by first use after the inputs, which keep their order; drops non-trainable parameters that nothing uses.
void orderParameters(mlir::func::FuncOp function);

} // namespace zorse
