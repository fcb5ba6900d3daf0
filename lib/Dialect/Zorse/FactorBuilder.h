// What the rules of ops are made with.
//
// Operands and results go by their numbers: one value may be two operands.
#pragma once

#include "zorse/Dialect/Zorse/ZorseOps.h"

namespace zorse {

inline llvm::ArrayRef<int64_t> shapeOf(mlir::Value value) { return mlir::cast<mlir::RankedTensorType>(value.getType()).getShape(); }

/// The factors of one op. Every dimension begins as one segment that relates to nothing.
class FactorBuilder {
public:
  explicit FactorBuilder(mlir::Operation *op);

  using Segment = OpFactors::Segment;

  /// A segment that is one new factor; of one point: without factors.
  Segment add(FactorKind kind, int64_t size, Combiner combiner = Combiner::Sum);
  Segment parallel(int64_t size) { return add(FactorKind::Parallel, size); }
  Segment indivisible(int64_t size) { return add(FactorKind::Indivisible, size); }
  Segment reduced(int64_t size, Combiner combiner = Combiner::Sum) { return add(FactorKind::Reduced, size, combiner); }
  /// One factor for each dimension of a shape.
  llvm::SmallVector<Segment> parallel(llvm::ArrayRef<int64_t> shape);
  static Segment nothing(int64_t size) { return {{}, size}; }
  /// The product of two segments, the first of them outside.
  static Segment product(const Segment &outer, const Segment &inner);

  /// Ids of `operand`, or the op itself where there is none, count along the factors of a segment.
  void countAlong(const Segment &segment, std::optional<unsigned> operand = std::nullopt);

  OpFactors::Value &operand(unsigned index) { return rule.operands[index]; }
  OpFactors::Value &result(unsigned index) { return rule.results[index]; }
  /// What ODS says of an operand group that is there or not: nothing is kept of one that is not.
  OpFactors::Value &optionalOperand(std::pair<unsigned, unsigned> indexAndLength) {
    return indexAndLength.second ? rule.operands[indexAndLength.first] : none;
  }
  /// Gives the leading dimensions of a value these segments, one each.
  static void set(OpFactors::Value &value, llvm::ArrayRef<Segment> dimensions);

  OpFactors take() { return std::move(rule); }

private:
  OpFactors rule;
  OpFactors::Value none;
};

} // namespace zorse
