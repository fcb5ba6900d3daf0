// Helpers of the verifiers. Each numbered constraint has one check, in order. A message states the
// expected and the actual value.
#pragma once

#include "zorse/Dialect/Zorse/ZorseOps.h"

namespace zorse {

inline mlir::RankedTensorType tensorTypeOf(mlir::Value value) {
  return mlir::cast<mlir::RankedTensorType>(value.getType());
}

inline mlir::RankedTensorType reshaped(mlir::RankedTensorType type, llvm::ArrayRef<int64_t> shape) {
  return mlir::RankedTensorType::get(shape, type.getElementType());
}

/// Whether the last dimension exists and is static, as softmaxes, norms and losses require.
inline bool hasStaticLastDimension(mlir::RankedTensorType type) {
  return type.getRank() >= 1 && !type.isDynamicDim(type.getRank() - 1);
}

/// Returns [d], where d is the last dimension of x.
inline mlir::RankedTensorType channelTypeOf(mlir::RankedTensorType x) {
  return reshaped(x, x.getShape().take_back());
}

/// Whether a result may be of type `found` if `expected` is inferred from the operands: sums of
/// half precision may be kept in f32.
inline bool isSumOf(mlir::Type found, mlir::RankedTensorType expected) {
  if (found == expected)
    return true;
  mlir::Type element = expected.getElementType();
  return element.isIntOrFloat() && element.isFloat() && element.getIntOrFloatBitWidth() == 16 &&
         found == mlir::RankedTensorType::get(expected.getShape(),
                                              mlir::Float32Type::get(expected.getContext()));
}

} // namespace zorse
