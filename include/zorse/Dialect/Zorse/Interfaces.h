// Interfaces that ops implement for the rest of the compiler: gradients, cost, factors.
#pragma once

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <optional>
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

enum class FactorKind : uint8_t {
  Parallel,   ///< every point of a result that has the factor is computed alone
  Reduced,    ///< no result has the factor, or it is combined over it: the parts of the op combine to the result
  Indivisible ///< all points are needed together, as in a softmax
};

/// How the results of parts that cover different points of a factor combine.
enum class Combiner : uint8_t {
  Sum,
  Max,
  Min,
  Product,
  LogSumExp ///< as a softmax: parts yield a maximum and a sum of exponentials less this maximum
};

/// How the dimensions of the operands and results of an op relate; see FactorsOpInterface.
///
/// Parallel factors may be missing in some results. Those results are sums over the factor: split over it, each part yields a summand.
struct OpFactors {
  struct Factor {
    FactorKind kind;
    int64_t size; ///< kDynamic if it is (all of) the sample axis
    Combiner combiner = Combiner::Sum;
  };
  /// Consecutive points of a dimension: the product of factors, outermost first. Without factors they relate to nothing: a dimension of size 1, or
  /// points that the op does not read.
  struct Segment {
    llvm::SmallVector<unsigned, 1> factors; ///< indices into `OpFactors::factors`
    int64_t size;
  };
  using Dimension = llvm::SmallVector<Segment, 1>; ///< segments in order
  using Value = llvm::SmallVector<Dimension, 4>;   ///< one per dimension; scalars have none

  /// A factor along which indices count. A part that begins at point b needs b: it subtracts b from the ids of `operand`, and ids outside of the part
  /// read zero and write nothing (what is ignored stays ignored). Without an operand the op itself counts: causal attention, dropout, a padding row.
  /// The sample axis is not among them: calls say with which sample they begin.
  struct Offset {
    unsigned factor;
    std::optional<unsigned> operand;
  };

  llvm::SmallVector<Factor, 6> factors;
  llvm::SmallVector<Value, 4> operands;
  llvm::SmallVector<Value, 2> results;
  llvm::SmallVector<Offset, 1> offsets;
};

/// Which rule of a dimension does not hold for the types of an op, or nothing: segments cover the dimension, sizes of factors multiply to those of
/// segments, and Reduced factors are in no result.
std::string check(const OpFactors &factors, mlir::Operation *op);

/// The factors of an op whose operands and results have one shape, scalars apart.
OpFactors elementwiseFactors(mlir::Operation *op);

namespace detail {
constexpr double kSpecialFunction = 10; ///< FLOPs of one exp, tanh, erf, ...
OpCost costOf(double flops, llvm::ArrayRef<mlir::Value> touched);
} // namespace detail

/// As text, `([i, k], [k, j]) -> ([i, j]) parallel: i j, sum: k` with letters for factors: `ij` is a product, `i|j` are segments, `_` relates to
/// nothing.
std::string toString(const OpFactors &factors);

} // namespace zorse

#include "zorse/Dialect/Zorse/Interfaces.h.inc"
