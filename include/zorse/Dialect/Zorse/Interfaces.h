// Interfaces that ops implement for the rest of the compiler: gradients, cost, factors.
#pragma once

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <string>

namespace zorse {

/// Cost as an affine function of the number of rows n: fixed + perRow * n. FLOPs count a multiply-add as 2; bytes are all operands read and results
/// written once.
struct OpCost {
  double flops = 0;
  double flopsPerRow = 0;
  double bytes = 0;
  double bytesPerRow = 0;

  OpCost &operator+=(const OpCost &other) {
    flops += other.flops, flopsPerRow += other.flopsPerRow, bytes += other.bytes, bytesPerRow += other.bytesPerRow;
    return *this;
  }
};

enum class FactorKind : uint8_t { Parallel, Reduced, Indivisible };

/// See FactorsOpInterface. A factor's size is kDynamic if it is (all of) the sample axis.
struct OpFactors {
  struct Factor {
    FactorKind kind;
    int64_t size;
  };
  using Dimension = llvm::SmallVector<unsigned, 1>; ///< indices into `factors`, outermost first
  using Value = llvm::SmallVector<Dimension, 4>;    ///< one per dimension

  llvm::SmallVector<Factor, 6> factors;
  llvm::SmallVector<Value, 4> operands;
  llvm::SmallVector<Value, 2> results;
};

/// What the default implementations of the interfaces answer: they know every op of the dialect, and elementwise ops of arith and math.
namespace detail {
OpCost computeCost(mlir::Operation *op);
OpFactors computeFactors(mlir::Operation *op);
} // namespace detail

/// As text, `([i, k], [k, j]) -> ([i, j]) parallel: i j, reduced: k` with letters for factors.
std::string toString(const OpFactors &factors);

} // namespace zorse

#include "zorse/Dialect/Zorse/Interfaces.h.inc"
