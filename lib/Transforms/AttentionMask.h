// Masks of attention: patterns that are recognized by value, and combinations that do not change
// the meaning of a row that sees no key.
#pragma once

#include "Views.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/IR/PatternMatch.h"

namespace zorse {

/// One mask between scores and softmax: a condition that hides scores with `fill` or, without
/// `fill`, a float that is added.
struct MaskPart {
  mlir::Value value;
  bool openWhenTrue = true;
  std::optional<double> fill;
  bool replaces = false; ///< `fill` replaces the score, which then has no gradient; otherwise it is
                         ///< added
};

/// The part of the masks that the attributes of attention do not represent.
struct CombinedMask {
  mlir::Value mask; ///< [?|1, H|1, S, S'] of booleans, or of floats that are added; null: none
  bool meanOfUnseen = false; ///< a query that sees no key yields the mean of all values instead of
                             ///< the zeros of a boolean mask
};

/// A mask that attributes of attention can represent: open everywhere, or causal, optionally with a
/// window.
struct MaskPattern {
  bool causal = false;
  std::optional<int64_t> window;
};

/// Whether the fill hides a score in every case: -inf, or so low that no score compensates for it.
bool isMaskFill(double value);

/// Whether `value` is a product of queries and keys with masks, scales or caps.
bool leadsToProduct(mlir::Value value, int depth = 0);

/// Returns the pattern of a constant mask, by value. `view` shows [..., S, S'] and repeats along
/// all other dimensions.
std::optional<MaskPattern> readMaskPattern(const View &view, bool openWhenTrue);

/// Adds `pattern` to the attributes. Returns false if they cannot represent both.
bool mergePattern(const MaskPattern &pattern, AttentionOptions &options);

/// Combines all `parts` into attributes in `options` and at most one mask operand. Fails, with a
/// remark, if the meaning or the gradients of a row that sees no key could change.
///
/// \param guarded  a row that sees no key yields zeros
mlir::FailureOr<CombinedMask> combineMasks(mlir::PatternRewriter &rewriter, mlir::Operation *op,
                                           llvm::ArrayRef<MaskPart> parts, bool guarded,
                                           mlir::Type elementType, AttentionOptions &options);

/// Returns `attention`, plus the mean of `v` [?, S', H', D'] over keys for queries that see no key
/// in the boolean `mask` [?|1, H|1, S, S'].
mlir::Value addMeanOfUnseen(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value attention,
                            mlir::Value v, mlir::Value mask);

/// Returns a mask that has the shape of the scores as [?|1, H|1, S, S'], without repeats along rows
/// and heads; null if it has no such layout.
mlir::Value compactMask(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value);

} // namespace zorse
