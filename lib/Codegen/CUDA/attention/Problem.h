// Description of one attention, or of its gradient, for tensor-core kernels.
#pragma once

#include "RowProgram.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include <optional>

namespace zorse::codegen::cuda {

/// A tensor [rows, positions, heads, size] in a buffer. Strides are in elements; the stride of
/// `size` is 1.
struct HeadTensor {
  mlir::Value root;
  int64_t offset = 0, row = 0, position = 0, head = 0;
  mlir::Type element;
  int64_t numbers = 0; ///< elements per sample
};

/// A mask [rows, heads, queries, keys]. Strides are in elements: 0 for broadcast dimensions, 1 for
/// keys.
struct MaskTensor {
  mlir::Value root;
  int64_t offset = 0, row = 0, head = 0, query = 0;
  mlir::Type element; ///< i1: false hides; otherwise the mask is added
};

struct AttentionProblem {
  int capability = 80; ///< compute capability of the GPU: 80 for sm_80
  mlir::Type element;  ///< type of q, k, v, out and dout: bf16 or f16
  int64_t queries = 0, keys = 0, heads = 0, keyHeads = 0, size = 0;
  AttentionOptions options;
  HeadTensor q, k, v, out;
  std::optional<MaskTensor> mask;
  mlir::Value lse; ///< root, [rows, heads, queries] or [.., 2] (zorse.attention), contiguous; null:
                   ///< not used
  int64_t lseOffset = 0;
  HeadTensor dout, dq, dk, dv; ///< only for gradients

  /// Number of query heads that share one key head.
  int64_t group() const { return heads / keyHeads; }
  /// Key j is visible to query i iff j <= i + shift().
  int64_t shift() const { return keys - queries; }
  /// Whether scores are products times a positive number. The factor can then be applied in the
  /// exponent.
  bool isPlain() const { return !mask && !options.softcap && options.scale > 0; }
  /// Whether `causal` and `window` are the only element-wise changes of scores and probabilities.
  bool isRegular() const { return isPlain() && options.dropout == 0; }
  /// Whether a mask is added. Scores can then be so large that adding a query's log-sum to its
  /// maximum score would lose the log-sum.
  bool addsMask() const { return mask && !mask->element.isInteger(1); }
  /// Numbers per query that the forward saves.
  int64_t numbersOfQuery() const { return addsMask() ? 2 : 1; }
  /// Numbers per query that the gradients read (buildAttentionStatistics).
  int64_t statisticsOfQuery() const { return addsMask() ? 4 : 2; }
  /// Whether a query may see no key of a tile that other queries need, or no key at all.
  bool maySeeNothing() const { return mask || options.window; }
  /// Number of visible pairs (query, key) of a sample, all heads. A mask in memory counts as hiding
  /// none.
  double pairs() const;
};

/// Returns the views of the operands and the locations of the results of a supported attention or
/// attention_grad.
AttentionProblem problemOf(mlir::Operation *op, const BufferAliases &aliases, llvm::StringRef chip);

/// Returns the reason why the attention or attention_grad `op` has no kernels on `chip` ("sm_80";
/// "emu" is treated as sm_80); empty if it has kernels.
///
/// \post  problemOf and the kernels are defined for an operation that is supported and has rows
/// aligned to 16 bytes
std::string whyUnsupported(mlir::Operation *op, llvm::StringRef chip);

} // namespace zorse::codegen::cuda
