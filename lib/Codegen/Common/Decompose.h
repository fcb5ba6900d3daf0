// Expands composite ops into reductions, broadcasts, arith and math ops, which clustering then
// fuses.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace zorse::codegen {

/// Expands rope, softmax, norms, activations, losses and updates (and their gradients). Reductions
/// over several trailing dimensions become reductions over one.
void decomposeRowOps(mlir::func::FuncOp function);

/// Replaces gradients of norm parameters by column reductions with private elementwise ops
/// (kGroupAttr). These ops recompute their terms from values in memory and never share them with
/// row programs that need the same terms.
void decomposeColumnOps(mlir::func::FuncOp function);

} // namespace zorse::codegen
