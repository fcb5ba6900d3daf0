// A canonical order of the operations and arguments of a graph. It depends only on the computation,
// not on the exporter.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace zorse {

/// Orders the operands of commutative operations by their computation: deeper ones first, arguments
/// and constants last. Equal operands keep their order.
void orderCommutativeOperands(mlir::func::FuncOp function);

/// Orders operations depth-first from the results, operands left to right, and removes dead
/// operations.
void orderOps(mlir::func::FuncOp function);

/// Orders parameter arguments by first use, after the inputs, which keep their order. Removes
/// unused non-trainable parameters.
void orderParameters(mlir::func::FuncOp function);

} // namespace zorse
