// Masks of attention: patterns known by value, and what may be combined without changing the meaning of a row that sees no key.
#pragma once

#include "Views.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/IR/PatternMatch.h"

namespace zorse {

/// One mask between scores and softmax: a condition by which scores are hidden with `fill`, or, without `fill`, a float that is added.
struct MaskPart {
  mlir::Value value;
  bool openWhenTrue = true;
  std::optional<double> fill;
  bool replaces = false; ///< `fill` stands in place of a score, which has no gradient then; otherwise it is added to it
};

/// What masks come to beside the attributes of attention.
struct CombinedMask {
  mlir::Value mask;          ///< [?|1, H|1, S, S'] of booleans or floats that are added; null: none
  bool meanOfUnseen = false; ///< a query that sees no key yields the mean of all values, in place of the zeros of a boolean mask
};

/// What attributes of attention can say: open everywhere, or causal, perhaps with a window.
struct MaskPattern {
  bool causal = false;
  std::optional<int64_t> window;
};

/// True for what hides a score in every case: -inf, or so far below that no score makes up for it.
bool isMaskFill(double value);

/// True if a product of queries and keys is what `value` masks, scales or caps.
bool leadsToProduct(mlir::Value value, int depth = 0);

/// The pattern of a constant mask, by value. `view` shows [..., S, S'] with everything before repeated.
std::optional<MaskPattern> readMaskPattern(const View &view, bool openWhenTrue);

/// Adds `pattern` to the attributes; false if they cannot say both.
bool mergePattern(const MaskPattern &pattern, AttentionOptions &options);

/// All `parts` as attributes in `options` and at most one mask operand. `guarded`: a row that sees no key yields zeros. Fails, with a remark, if such
/// a row could change its meaning or its gradients.
mlir::FailureOr<CombinedMask> combineMasks(mlir::PatternRewriter &rewriter, mlir::Operation *op, llvm::ArrayRef<MaskPart> parts, bool guarded,
                                           mlir::Type elementType, AttentionOptions &options);

/// attention + mean of `v` [?, S', H', D'] over keys for queries of which the boolean `mask` [?|1, H|1, S, S'] leaves no key open.
mlir::Value addMeanOfUnseen(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value attention, mlir::Value v, mlir::Value mask);

/// A mask of the shape of the scores, as [?|1, H|1, S, S'] without repeats along rows and heads; null if it has no such layout.
mlir::Value compactMask(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value);

} // namespace zorse
