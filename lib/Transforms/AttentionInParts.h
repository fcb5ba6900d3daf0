// Decomposes attention into its products and softmax, for attention with an operand that needs a
// gradient which zorse.attention does not have.
#pragma once

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/IR/Builders.h"

namespace zorse {

/// Writes `op` as scale, cap, mask, softmax and two products. Returns the result, of the type of
/// `out`.
mlir::Value writeAttentionInParts(mlir::OpBuilder &builder, AttentionOp op);

} // namespace zorse
