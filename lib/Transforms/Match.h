// Small matchers that the recognition passes share. They expect canonical graphs: broadcasts and
// dimensions of size 1 follow elementwise operations.
#pragma once

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

namespace zorse {

/// Whether the numbers are equal to the precision of a float32 constant.
bool isNear(double a, double b);
inline bool isNear(std::optional<double> a, double b) { return a && isNear(*a, b); }

inline mlir::RankedTensorType rankedType(mlir::Value value) {
  return mlir::cast<mlir::RankedTensorType>(value.getType());
}

/// If `value` broadcasts one number per vector to the type of the vectors, returns that statistic,
/// without dimensions of size 1; otherwise null.
mlir::Value matchStatistic(mlir::Value value);

/// If `value` broadcasts one vector [d] along the last dimension, returns that vector; otherwise
/// null.
mlir::Value matchChannels(mlir::Value value);

/// A flattened product: `scalar` times `factors`. Includes products and quotients by scalars that
/// have no other user.
struct Product {
  double scalar = 1;
  llvm::SmallVector<mlir::Value, 4> factors;
};
Product flattenProduct(mlir::Value value);

/// If `value` is a commutative operation of type `Op` with one splat operand, returns the other
/// operand and sets `number`; otherwise null.
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

/// If value = mean(x) over the last dimension, returns x; otherwise null.
mlir::Value matchMean(mlir::Value value);

/// If value = 1/sqrt(x) in any form, returns x; otherwise null.
mlir::Value matchReciprocalRoot(mlir::Value value);

/// If value = mean(y^2) + epsilon over the last dimension, returns y; otherwise null.
mlir::Value matchMeanSquarePlus(mlir::Value value, double &epsilon);

/// A reading of an operation as x * s or x / t with one number per vector: `reciprocal` is s,
/// `root` is t. matchScaledVectors returns all such readings.
struct Scaled {
  mlir::Value x, reciprocal, root;
};
llvm::SmallVector<Scaled, 2> matchScaledVectors(mlir::Operation *op);

/// Whether `value` depends on a trained parameter.
bool dependsOnTrained(mlir::Value value);

/// If value = 1/(1 + exp(-x)), returns x; otherwise null.
mlir::Value matchSigmoid(mlir::Value value);

} // namespace zorse
