// Factors of softmaxes and norms.
#include "FactorBuilder.h"

using namespace mlir;
using namespace zorse;

namespace {
/// Common part of norms and softmaxes: vectors [l..., d], statistics [l...] and channels [d].
class Vectors {
public:
  Vectors(Operation *op, Value x, FactorKind lead, FactorKind channels) : builder(op) {
    for (int64_t size : shapeOf(x).drop_back())
      dimensions.push_back(builder.add(lead, size));
    dimensions.push_back(builder.add(channels, shapeOf(x).back()));
  }

  FactorBuilder builder;

  void vector(OpFactors::Value &value) { FactorBuilder::set(value, dimensions); }
  void statistic(OpFactors::Value &value) {
    FactorBuilder::set(value, ArrayRef(dimensions).drop_back());
  }
  void channels(OpFactors::Value &value) { FactorBuilder::set(value, dimensions.back()); }

private:
  SmallVector<OpFactors::Segment> dimensions;
};
} // namespace

//===----------------------------------------------------------------------===//
// Softmax
//===----------------------------------------------------------------------===//

/// All operands and results are vectors.
static OpFactors softmaxLike(Operation *op) {
  Vectors vectors(op, op->getOperand(0), FactorKind::Parallel, FactorKind::Indivisible);
  for (unsigned i = 0; i < op->getNumOperands(); ++i)
    vectors.vector(vectors.builder.operand(i));
  vectors.vector(vectors.builder.result(0));
  return vectors.builder.take();
}

OpFactors SoftmaxOp::getFactors() { return softmaxLike(*this); }
OpFactors LogSoftmaxOp::getFactors() { return softmaxLike(*this); }
OpFactors SoftmaxGradOp::getFactors() { return softmaxLike(*this); }
OpFactors LogSoftmaxGradOp::getFactors() { return softmaxLike(*this); }

//===----------------------------------------------------------------------===//
// Norms
//===----------------------------------------------------------------------===//

/// Operands: x, then channels. Results: y, then statistics.
static OpFactors norm(Operation *op) {
  Vectors vectors(op, op->getOperand(0), FactorKind::Parallel, FactorKind::Indivisible);
  vectors.vector(vectors.builder.operand(0));
  for (unsigned i = 1; i < op->getNumOperands(); ++i)
    vectors.channels(vectors.builder.operand(i));
  vectors.vector(vectors.builder.result(0));
  for (unsigned i = 1; i < op->getNumResults(); ++i)
    vectors.statistic(vectors.builder.result(i));
  return vectors.builder.take();
}

OpFactors LayerNormOp::getFactors() { return norm(*this); }
OpFactors RmsNormOp::getFactors() { return norm(*this); }

/// Operands: dy, x, the given number of statistics, then channels. Result: dx.
static OpFactors normGradInput(Operation *op, unsigned statistics) {
  Vectors vectors(op, op->getOperand(1), FactorKind::Parallel, FactorKind::Indivisible);
  for (unsigned i = 0; i < op->getNumOperands(); ++i)
    if (OpFactors::Value &value = vectors.builder.operand(i); i < 2)
      vectors.vector(value);
    else if (i < 2 + statistics)
      vectors.statistic(value);
    else
      vectors.channels(value);
  vectors.vector(vectors.builder.result(0));
  return vectors.builder.take();
}

OpFactors LayerNormGradInputOp::getFactors() { return normGradInput(*this, 2); }
OpFactors RmsNormGradInputOp::getFactors() { return normGradInput(*this, 1); }

/// Operands: dy, x and statistics. Results: sums over all vectors, per channel.
static OpFactors normGradParams(Operation *op) {
  Vectors vectors(op, op->getOperand(1), FactorKind::Reduced, FactorKind::Parallel);
  for (unsigned i = 0; i < op->getNumOperands(); ++i)
    if (i < 2)
      vectors.vector(vectors.builder.operand(i));
    else
      vectors.statistic(vectors.builder.operand(i));
  for (unsigned i = 0; i < op->getNumResults(); ++i)
    vectors.channels(vectors.builder.result(i));
  return vectors.builder.take();
}

OpFactors LayerNormGradParamsOp::getFactors() { return normGradParams(*this); }
OpFactors RmsNormGradParamsOp::getFactors() { return normGradParams(*this); }
