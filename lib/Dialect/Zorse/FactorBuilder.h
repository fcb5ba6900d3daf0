// Builds the factors of an operation.
//
// Operands and results are identified by number, because one value may be two operands.
#pragma once

#include "zorse/Dialect/Zorse/ZorseOps.h"

namespace zorse {

inline llvm::ArrayRef<int64_t> shapeOf(mlir::Value value) {
  return mlir::cast<mlir::RankedTensorType>(value.getType()).getShape();
}

/// The factors of one op. Initially every dimension is one segment without factors.
class FactorBuilder {
public:
  explicit FactorBuilder(mlir::Operation *op);

  using Segment = OpFactors::Segment;

  /// Returns a segment with one new factor. A segment of one point has no factors.
  Segment add(FactorKind kind, int64_t size, Combiner combiner = Combiner::Sum);
  Segment parallel(int64_t size) { return add(FactorKind::Parallel, size); }
  Segment indivisible(int64_t size) { return add(FactorKind::Indivisible, size); }
  Segment reduced(int64_t size, Combiner combiner = Combiner::Sum) {
    return add(FactorKind::Reduced, size, combiner);
  }
  /// Returns one factor per dimension of a shape.
  llvm::SmallVector<Segment> parallel(llvm::ArrayRef<int64_t> shape);
  static Segment nothing(int64_t size) { return {{}, size}; }
  /// Returns the product of two segments, with the first one outermost.
  static Segment product(const Segment &outer, const Segment &inner);

  /// Records that indices of `operand`, or of the op itself if there is none, count along the
  /// factors of a segment.
  void countAlong(const Segment &segment, std::optional<unsigned> operand = std::nullopt);

  OpFactors::Value &operand(unsigned index) { return rule.operands[index]; }
  OpFactors::Value &result(unsigned index) { return rule.results[index]; }
  /// Returns the dimensions of an optional operand group, from its ODS index and length. If the
  /// group is absent, returns a dummy that is discarded.
  OpFactors::Value &optionalOperand(std::pair<unsigned, unsigned> indexAndLength) {
    return indexAndLength.second ? rule.operands[indexAndLength.first] : none;
  }
  /// Assigns one segment to each of the leading dimensions of a value.
  static void set(OpFactors::Value &value, llvm::ArrayRef<Segment> dimensions);

  OpFactors take() { return std::move(rule); }

private:
  OpFactors rule;
  OpFactors::Value none;
};

} // namespace zorse
