// What the verifiers share. One check per numbered constraint, in order; a message says what was expected and what was found.
#pragma once

#include "zorse/Dialect/Zorse/ZorseOps.h"

namespace zorse {

inline mlir::RankedTensorType tensorTypeOf(mlir::Value value) { return mlir::cast<mlir::RankedTensorType>(value.getType()); }

inline mlir::RankedTensorType reshaped(mlir::RankedTensorType type, llvm::ArrayRef<int64_t> shape) {
  return mlir::RankedTensorType::get(shape, type.getElementType());
}

/// True if the last dimension exists and is static: what softmaxes, norms and losses work on.
inline bool hasStaticLastDimension(mlir::RankedTensorType type) { return type.getRank() >= 1 && !type.isDynamicDim(type.getRank() - 1); }

/// [d] where d is the last dimension of x.
inline mlir::RankedTensorType channelTypeOf(mlir::RankedTensorType x) { return reshaped(x, x.getShape().take_back()); }

} // namespace zorse
