// Masks of attention: patterns known by value, and what may be combined without changing the meaning of a row that sees no key.
#pragma once

#include "Views.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/IR/PatternMatch.h"

namespace zorse {

/// One mask between scores and softmax: a condition that puts `fill` in place of a hidden score, or, without `fill`, a float that is added.
struct MaskPart {
  mlir::Value value;
  bool openWhenTrue = true;
  std::optional<double> fill;
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

/// All `parts` as attributes in `options` and at most one mask operand [?|1, H|1, S, S'] (null for none). `guarded`: a row that sees no key yields
/// zeros. Fails, with a remark, if such a row could change its meaning.
mlir::FailureOr<mlir::Value> combineMasks(mlir::PatternRewriter &rewriter, mlir::Operation *op, llvm::ArrayRef<MaskPart> parts, bool guarded,
                                          mlir::Type elementType, AttentionOptions &options);

/// A mask of the shape of the scores, as [?|1, H|1, S, S'] without repeats along rows and heads; null if it has no such layout.
mlir::Value compactMask(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value);

} // namespace zorse
