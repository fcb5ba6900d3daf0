// The products and the softmax that an attention stands for, where one of its parts needs a gradient that the whole has not.
#pragma once

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/IR/Builders.h"

namespace zorse {

/// `op` as scale, cap, mask, softmax and two products; its value, of the type of `out`.
mlir::Value writeAttentionInParts(mlir::OpBuilder &builder, AttentionOp op);

} // namespace zorse
