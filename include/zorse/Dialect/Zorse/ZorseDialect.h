// The `zorse` dialect: graph IR in value semantics (docs/internals/compiler.md). Include ZorseOps.h
// for the operations.
#pragma once

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"

#include "zorse/Dialect/Zorse/ZorseDialect.h.inc"

namespace zorse {

/// Whether graph IR values may have this type: a ranked tensor of integers, floats or booleans with
/// no dynamic dimension except dimension 0.
bool isGraphTensor(mlir::Type type);

/// Whether values of this type carry samples: dimension 0 is dynamic.
bool carriesSamples(mlir::Type type);

/// Returns the elements per row. A dynamic dimension 0 counts as 1.
int64_t elementsPerRow(mlir::RankedTensorType type);

/// Returns the element type of statistics and losses of inputs with this element type: f64 for f64,
/// f32 otherwise.
mlir::Type statisticElementType(mlir::Type elementType);

/// Returns the type of one statistic per vector: `x` without its last dimension, in the statistic
/// element type.
mlir::RankedTensorType statisticType(mlir::RankedTensorType x);

/// Returns the type of two statistics per element of `x`, the maximum score and the sum of
/// exponentials relative to it: `x` with another dimension of size 2.
mlir::RankedTensorType statisticsOfEach(mlir::RankedTensorType x);

/// Whether attention adds this mask (null, or a tensor of booleans or floats) to its scores. The
/// scores may then be as large as the number format allows.
bool isAddedMask(mlir::Value mask);

/// Returns the type of the statistics that attention of queries `q` [?, S, H, D] saves for its
/// backward: [?, H, S], or
/// [?, H, S, 2] if it adds a mask (zorse.attention).
mlir::RankedTensorType attentionStatisticType(mlir::RankedTensorType q, mlir::Value mask);

/// Names of the attributes of models and unit functions (docs/internals/compiler.md, "The model
/// function" and "Units and classes").
namespace attributes {
inline constexpr llvm::StringLiteral kModel = "model"; ///< symbol of the model's function
inline constexpr llvm::StringLiteral kInput = "zorse.input";
inline constexpr llvm::StringLiteral kParameter = "zorse.parameter";
inline constexpr llvm::StringLiteral kTrainable = "zorse.trainable";
/// With kTrainable: a running statistic, read by zorse.running_stat.
inline constexpr llvm::StringLiteral kRunningStat = "zorse.running_stat";
/// With kTrainable = false: no model parameter, not in checkpoints.
inline constexpr llvm::StringLiteral kConstant = "zorse.constant";
inline constexpr llvm::StringLiteral kTerm = "zorse.term";
inline constexpr llvm::StringLiteral kRole = "zorse.role";
inline constexpr llvm::StringLiteral kFactor = "zorse.factor";
inline constexpr llvm::StringLiteral kCount = "zorse.count";
inline constexpr llvm::StringLiteral kReduce = "zorse.reduce"; ///< with kCount: "sum", "max" or
                                                               ///< "min"
/// With kCount, set by zorse-find-units: its human-readable meaning.
inline constexpr llvm::StringLiteral kMeaning = "zorse.meaning";
inline constexpr llvm::StringLiteral kLowerBound = "zorse.lower_bound",
                                     kUpperBound = "zorse.upper_bound"; ///< bounds of an input's
                                                                        ///< values
inline constexpr llvm::StringLiteral kIgnoreIndex = "zorse.ignore_index",
                                     kShiftedInGraph = "zorse.shifted_in_graph";
inline constexpr llvm::StringLiteral kArgument = "zorse.argument"; ///< ArgumentAttr
} // namespace attributes

} // namespace zorse
