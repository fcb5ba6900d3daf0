// Optimizer states in 8 bits.
#pragma once

#include "zorse/Dialect/Zorse/TensorBuilder.h"

namespace zorse::units {

/// Block-wise dynamic quantization (Dettmers et al., "8-bit Optimizers via Block-wise
/// Quantization", 2022), with the values of torchao and bitsandbytes: a number of a block is
/// scale * value[code], and the scale is the largest absolute value of the block. Values are exact
/// near 0 and near 1: seven decades from 1e-6, each with twice the values of the one below it.
struct BlockwiseCodes {
  mlir::Value codes;  ///< [blocks, elements], i8
  mlir::Value scales; ///< [blocks, 1], a float type
};

/// Returns the numbers, [blocks, elements] in the type of the scales.
/// \param isSigned  codes 0 to 126 are negative; otherwise no number is
mlir::Value decode(TensorBuilder &t, const BlockwiseCodes &in, bool isSigned);

/// Returns the nearest codes of numbers, [blocks, elements].
BlockwiseCodes encode(TensorBuilder &t, mlir::Value numbers, bool isSigned);

} // namespace zorse::units
