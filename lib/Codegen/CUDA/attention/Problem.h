// One attention, or its gradient, as kernels for tensor cores see it.
#pragma once

#include "RowProgram.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include <optional>

namespace zorse::codegen::cuda {

/// A tensor [rows, positions, heads, size] in some buffer. Strides in elements; those of `size` are 1.
struct HeadTensor {
  mlir::Value root;
  int64_t offset = 0, row = 0, position = 0, head = 0;
  mlir::Type element;
  int64_t numbers = 0; ///< elements of a sample
};

/// A mask [rows, heads, queries, keys]; strides in elements, 0 where it repeats, 1 of keys.
struct MaskTensor {
  mlir::Value root;
  int64_t offset = 0, row = 0, head = 0, query = 0;
  mlir::Type element; ///< i1: hides where false; else it is added
};

struct AttentionProblem {
  int capability = 80; ///< of the GPU: 80 for sm_80
  mlir::Type element;  ///< of q, k, v, out and dout: bf16 or f16
  int64_t queries = 0, keys = 0, heads = 0, keyHeads = 0, size = 0;
  AttentionOptions options;
  HeadTensor q, k, v, out;
  std::optional<MaskTensor> mask;
  mlir::Value lse; ///< root, [rows, heads, queries] or [.., 2] (zorse.attention) without gaps; null: nobody wants it
  int64_t lseOffset = 0;
  HeadTensor dout, dq, dk, dv; ///< of a gradient

  /// Heads of queries that share one of keys.
  int64_t group() const { return heads / keyHeads; }
  /// Key j is visible to query i iff j <= i + shift().
  int64_t shift() const { return keys - queries; }
  /// Scores are products times a positive number, so that it can be left to the exponent.
  bool isPlain() const { return !mask && !options.softcap && options.scale > 0; }
  /// Nothing happens to a score or a probability by itself but that `causal` and `window` hide it.
  bool isRegular() const { return isPlain() && options.dropout == 0; }
  /// Scores may be as large as numbers are, so that the logarithm of a query's sum would be lost beside its greatest score.
  bool addsMask() const { return mask && !mask->element.isInteger(1); }
  /// Numbers that a query's forward keeps.
  int64_t numbersOfQuery() const { return addsMask() ? 2 : 1; }
  /// Numbers that the gradients read of a query (buildAttentionStatistics).
  int64_t statisticsOfQuery() const { return addsMask() ? 4 : 2; }
  /// A query may see no key of a tile that others need, or none at all.
  bool maySeeNothing() const { return mask || options.window; }
  /// Visible pairs (query, key) of a sample, all heads; a mask in memory hides none.
  double pairs() const;
};

/// Views of the operands and places of the results of a supported attention or attention_grad.
AttentionProblem problemOf(mlir::Operation *op, const Claims &claims, llvm::StringRef chip);

/// Why the attention or attention_grad `op` has no kernels on `chip` ("sm_80"; "emu": what sm_80 has); empty: it has.
///
/// \post  of an operation that is supported and whose rows lie on multiples of 16 bytes, problemOf and the kernels are defined
std::string whyUnsupported(mlir::Operation *op, llvm::StringRef chip);

} // namespace zorse::codegen::cuda
