// Small matchers that the recognisers share. All look at canonical graphs: broadcasts and dimensions of size 1 stand behind elementwise ops.
#pragma once

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

namespace zorse {

/// Equal to the precision of a float32 constant.
bool isNear(double a, double b);
inline bool isNear(std::optional<double> a, double b) { return a && isNear(*a, b); }

inline mlir::RankedTensorType rankedType(mlir::Value value) { return mlir::cast<mlir::RankedTensorType>(value.getType()); }

/// `value` = broadcast of one number per vector to the type of vectors: that statistic, without dimensions of size 1. Null otherwise.
mlir::Value matchStatistic(mlir::Value value);

/// `value` = broadcast of one vector [d] along the last dimension: that vector. Null otherwise.
mlir::Value matchChannels(mlir::Value value);

/// A product flattened: `scalar` times `factors`. Goes through products and quotients by scalars whose only user is the product itself.
struct Product {
  double scalar = 1;
  llvm::SmallVector<mlir::Value, 4> factors;
};
Product flattenProduct(mlir::Value value);

/// For a commutative op of type `Op` at `value`: one operand is a splat; yields the other and the number.
template <typename Op> mlir::Value matchWithSplat(mlir::Value value, double &number) {
  auto op = value.getDefiningOp<Op>();
  if (!op)
    return {};
  for (int i = 0; i < 2; ++i) {
    if (std::optional<double> splat = splatValue(op->getOperand(i))) {
      number = *splat;
      return op->getOperand(1 - i);
    }
  }
  return {};
}

/// mean(x) over the last dimension: x, or null.
mlir::Value matchMean(mlir::Value value);

/// 1/sqrt(x) in any spelling: x, or null.
mlir::Value matchReciprocalRoot(mlir::Value value);

/// value = mean(y^2) + epsilon over the last dimension: y, or null.
mlir::Value matchMeanSquarePlus(mlir::Value value, double &epsilon);

/// value = x * s or x / t with one number per vector: x; `reciprocal` is s, `root` is t. Tries every such reading.
struct Scaled {
  mlir::Value x, reciprocal, root;
};
llvm::SmallVector<Scaled, 2> matchScaledVectors(mlir::Operation *op);

/// True if a parameter that is trained is among what `value` is computed from.
bool dependsOnTrained(mlir::Value value);

/// 1/(1 + exp(-x)): x, or null.
mlir::Value matchSigmoid(mlir::Value value);

} // namespace zorse
