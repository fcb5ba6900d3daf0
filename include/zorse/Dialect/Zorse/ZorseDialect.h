// The `zorse` dialect: graph IR in value semantics (docs/architecture.md). For the ops include ZorseOps.h.
#pragma once

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"

#include "zorse/Dialect/Zorse/ZorseDialect.h.inc"

namespace zorse {

/// True for what graph IR values are: ranked tensors of integers, floats or booleans whose only dynamic dimension, if any, is dimension 0.
bool isGraphTensor(mlir::Type type);

/// True if a value of this type carries samples: dimension 0 is dynamic.
bool carriesSamples(mlir::Type type);

/// Elements per row: dimension 0 counts as 1 if it is dynamic.
int64_t elementsPerRow(mlir::RankedTensorType type);

/// The element type of statistics and losses of inputs of this element type: f64 for f64, f32 otherwise.
mlir::Type statisticElementType(mlir::Type elementType);

/// One statistic per vector: `x` without its last dimension, in the statistic element type.
mlir::RankedTensorType statisticType(mlir::RankedTensorType x);

/// Two statistics, a greatest score and the sum of exponentials relative to it, for each element of `x`: one more dimension of 2.
mlir::RankedTensorType statisticsOfEach(mlir::RankedTensorType x);

/// True if an attention adds this mask (null, or of booleans or floats) to its scores, which may then be as large as numbers are.
bool isAddedMask(mlir::Value mask);

/// What attention of queries `q` [?, S, H, D] keeps of its scores for the backward: [?, H, S], or [?, H, S, 2] where it adds a mask
/// (zorse.attention).
mlir::RankedTensorType attentionStatisticType(mlir::RankedTensorType q, mlir::Value mask);

/// Names of the attributes of models and unit functions (docs/architecture.md, "A model" and "Unit functions").
namespace attributes {
inline constexpr llvm::StringLiteral kModel = "model"; ///< the symbol of the model's function
inline constexpr llvm::StringLiteral kInput = "zorse.input";
inline constexpr llvm::StringLiteral kParameter = "zorse.parameter";
inline constexpr llvm::StringLiteral kTrainable = "zorse.trainable";
inline constexpr llvm::StringLiteral kStatistic = "zorse.statistic"; ///< beside kTrainable: running statistics (zorse.track)
inline constexpr llvm::StringLiteral kConstant = "zorse.constant";   ///< beside kTrainable = false: no parameter of the model, not in checkpoints
inline constexpr llvm::StringLiteral kTerm = "zorse.term";
inline constexpr llvm::StringLiteral kRole = "zorse.role";
inline constexpr llvm::StringLiteral kFactor = "zorse.factor";
inline constexpr llvm::StringLiteral kCount = "zorse.count";
inline constexpr llvm::StringLiteral kReduce = "zorse.reduce";   ///< beside kCount: "sum", "max" or "min"
inline constexpr llvm::StringLiteral kMeaning = "zorse.meaning"; ///< beside kCount, set by zorse-find-units: what people read of the count
inline constexpr llvm::StringLiteral kLowerBound = "zorse.lower_bound", kUpperBound = "zorse.upper_bound"; ///< of an input's values
inline constexpr llvm::StringLiteral kIgnoreIndex = "zorse.ignore_index", kShiftedInGraph = "zorse.shifted_in_graph";
inline constexpr llvm::StringLiteral kSlot = "zorse.slot"; ///< SlotAttr
} // namespace attributes

} // namespace zorse
