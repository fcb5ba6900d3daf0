// Composite ops → reductions, broadcasts, arith and math, which fusion then sees as one row program.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace zorse::codegen {

/// Replaces rope, softmax, norms, activations, losses and updates (and their gradients) by their parts; reductions over the last dimensions
/// become reductions over one.
void expandRowOps(mlir::func::FuncOp function);

/// Replaces gradients of norm parameters by column reductions with elementwise ops of their own (kGroupAttr): recomputed from what is in
/// memory, never shared with the row programs that need the same terms.
void expandColumnOps(mlir::func::FuncOp function);

} // namespace zorse::codegen
