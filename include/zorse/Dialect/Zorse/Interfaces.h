// Interfaces of operations for the rest of the compiler: gradients, cost and factors.
#pragma once

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <optional>
#include <string>

namespace zorse {

/// Cost as an affine function of the number of rows n: fixed + perRow * n. A multiply-add counts as
/// 2 FLOPs. Bytes count every operand read once and every result written once.
struct OpCost {
  double flops = 0;
  double flopsPerRow = 0;
  double bytes = 0;
  double bytesPerRow = 0;

  OpCost &operator+=(const OpCost &other) {
    flops += other.flops, flopsPerRow += other.flopsPerRow, bytes += other.bytes,
        bytesPerRow += other.bytesPerRow;
    return *this;
  }
};

enum class FactorKind : uint8_t {
  Parallel,   ///< every point of a result that has the factor is computed independently
  Reduced,    ///< no result has the factor, or results are combined over it: the parts of the op
              ///< combine to the result
  Indivisible ///< all points are needed together, as in a softmax
};

/// How to combine the results of parts that cover different points of a factor.
enum class Combiner : uint8_t {
  Sum,
  Max,
  Min,
  Product,
  LogSumExp ///< as in a softmax: each part yields its maximum and its sum of exponentials relative
            ///< to this maximum
};

/// Relates the dimensions of the operands and results of an op; see FactorsOpInterface.
///
/// A result may be without one of the parallel factors. Such a result is a sum over the factor: if
/// the op is split over the factor, each part yields one summand.
struct OpFactors {
  struct Factor {
    FactorKind kind;
    int64_t size; ///< kDynamic if it is the complete sample axis
    Combiner combiner = Combiner::Sum;
  };
  /// Consecutive points of a dimension: a product of factors, outermost first. A segment without
  /// factors is unrelated to other dimensions: a dimension of size 1, or points that the op does
  /// not read.
  struct Segment {
    llvm::SmallVector<unsigned, 1> factors; ///< indices into `OpFactors::factors`
    int64_t size;
  };
  using Dimension = llvm::SmallVector<Segment, 1>; ///< segments in order
  using Value = llvm::SmallVector<Dimension, 4>;   ///< one per dimension; scalars have none

  /// A factor along which indices count. The part that begins at point b must know b. It subtracts
  /// b from the indices of `operand`; indices outside the part read zero and write nothing, and
  /// ignored labels stay ignored. Without an operand the op itself counts: causal attention,
  /// dropout, a padding row. The sample axis is not included, because calls specify their first
  /// sample.
  struct Offset {
    unsigned factor;
    std::optional<unsigned> operand;
  };

  llvm::SmallVector<Factor, 6> factors;
  llvm::SmallVector<Value, 4> operands;
  llvm::SmallVector<Value, 2> results;
  llvm::SmallVector<Offset, 1> offsets;
};

/// Checks the factors against the types of an op: segments cover the dimension, the sizes of a
/// segment's factors multiply to its size, and no result has a Reduced factor. Returns the violated
/// rule, or "".
std::string check(const OpFactors &factors, mlir::Operation *op);

/// Returns the factors of an op with operands and results of one shape, except scalars.
OpFactors elementwiseFactors(mlir::Operation *op);

namespace detail {
constexpr double kSpecialFunction = 10; ///< FLOPs of one exp, tanh, erf, ...
OpCost costOf(double flops, llvm::ArrayRef<mlir::Value> touched);
} // namespace detail

/// Formats factors as `([i, k], [k, j]) -> ([i, j]) parallel: i j, sum: k`. Letters are factors,
/// `ij` is a product, `i|j` are segments, and `_` is an unrelated segment.
std::string toString(const OpFactors &factors);

} // namespace zorse

#include "zorse/Dialect/Zorse/Interfaces.h.inc"
