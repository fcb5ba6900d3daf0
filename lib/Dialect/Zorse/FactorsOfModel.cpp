// Factors of attention, positions, the loss and dropout.
#include "FactorBuilder.h"

using namespace mlir;
using namespace zorse;

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

namespace {
/// q [r, s, h g, d], k [r, t, h, d], v [r, t, h, e] and out [r, s, h g, e]: h key heads, each for g query heads.
class AttentionDimensions {
public:
  using Segment = OpFactors::Segment;

  AttentionDimensions(Operation *op, Value q, Value k, Value v, FactorKind keys, FactorKind valueChannels) : builder(op) {
    ArrayRef<int64_t> qShape = shapeOf(q), kShape = shapeOf(k);
    r = builder.parallel(qShape[0]);
    s = builder.parallel(qShape[1]);
    t = builder.add(keys, kShape[1]);
    h = builder.parallel(kShape[2]);
    d = builder.indivisible(qShape[3]);
    e = builder.add(valueChannels, shapeOf(v)[3]);
    heads = FactorBuilder::product(h, builder.parallel(qShape[2] / kShape[2]));
  }

  FactorBuilder builder;

  void query(OpFactors::Value &value) { FactorBuilder::set(value, {r, s, heads, d}); }
  void key(OpFactors::Value &value) { FactorBuilder::set(value, {r, t, h, d}); }
  void values(OpFactors::Value &value) { FactorBuilder::set(value, {r, t, h, e}); }
  void out(OpFactors::Value &value) { FactorBuilder::set(value, {r, s, heads, e}); }
  /// [r, h g, s], and two numbers of a query beside a mask of floats.
  void statistics(OpFactors::Value &value) { FactorBuilder::set(value, {r, heads, s}); }
  /// Dimensions of size 1 repeat.
  void mask(OpFactors::Value &value, Value mask) {
    if (!mask)
      return;
    auto unlessOne = [&](unsigned dimension, const Segment &segment) { return shapeOf(mask)[dimension] == 1 ? FactorBuilder::nothing(1) : segment; };
    FactorBuilder::set(value, {unlessOne(0, r), unlessOne(1, heads), s, t});
  }
  /// Which keys a query sees depends on positions, and which probabilities are dropped on heads, too.
  void countAlong(const AttentionOptions &options) {
    if (options.dropout > 0)
      builder.countAlong(heads);
    if (options.dropout > 0 || options.causal) {
      builder.countAlong(s);
      builder.countAlong(t);
    }
  }

private:
  Segment r, s, t, h, d, e, heads;
};
} // namespace

/// Probabilities need all keys. Statistics are the same for all channels of values, and no sum over them.
OpFactors AttentionOp::getFactors() {
  AttentionDimensions dimensions(*this, getQ(), getK(), getV(), FactorKind::Indivisible, getLse() ? FactorKind::Indivisible : FactorKind::Parallel);
  FactorBuilder &builder = dimensions.builder;
  dimensions.query(builder.operand(0));
  dimensions.key(builder.operand(1));
  dimensions.values(builder.operand(2));
  dimensions.mask(builder.optionalOperand(getODSOperandIndexAndLength(3)), getMask());
  dimensions.out(builder.result(0));
  if (getLse())
    dimensions.statistics(builder.result(1));
  dimensions.countAlong(getOptions());
  return builder.take();
}

/// Given the statistics of all keys, pairs of query and key are on their own: dq is a sum over keys, dk and dv are sums over queries and over the
/// query heads of a key head. The sum of dout * out over channels of values is not one of parts.
OpFactors AttentionGradOp::getFactors() {
  AttentionDimensions dimensions(*this, getQ(), getK(), getV(), FactorKind::Parallel, FactorKind::Indivisible);
  FactorBuilder &builder = dimensions.builder;
  dimensions.out(builder.operand(0));
  dimensions.query(builder.operand(1));
  dimensions.key(builder.operand(2));
  dimensions.values(builder.operand(3));
  dimensions.out(builder.operand(4));
  dimensions.statistics(builder.operand(5));
  dimensions.mask(builder.optionalOperand(getODSOperandIndexAndLength(6)), getMask());
  dimensions.query(builder.result(0));
  dimensions.key(builder.result(1));
  dimensions.values(builder.result(2));
  dimensions.countAlong(getOptions());
  return builder.take();
}

OpFactors CausalMaskOp::getFactors() {
  OpFactors factors = elementwiseFactors(*this);
  for (unsigned factor = 0; factor < factors.factors.size(); ++factor)
    factors.offsets.push_back({factor, std::nullopt});
  return factors;
}

/// Channels turn in pairs (p, p + D/2), or (2p, 2p + 1): a product of 2 and of pairs, of which the tables have the pairs.
OpFactors RopeOp::getFactors() {
  FactorBuilder builder(*this);
  ArrayRef<int64_t> shape = shapeOf(getX());
  OpFactors::Segment r = builder.parallel(shape[0]), s = builder.parallel(shape[1]), h = builder.parallel(shape[2]);
  OpFactors::Segment pairs = builder.parallel(shape[3] / 2), both = builder.indivisible(2);
  OpFactors::Segment channels = getInterleaved() ? FactorBuilder::product(pairs, both) : FactorBuilder::product(both, pairs);
  FactorBuilder::set(builder.operand(0), {r, s, h, channels});
  for (unsigned table : {1, 2})
    if (carriesSamples(getCos().getType()))
      FactorBuilder::set(builder.operand(table), {r, s, pairs});
    else
      FactorBuilder::set(builder.operand(table), {s, pairs});
  FactorBuilder::set(builder.result(0), {r, s, h, channels});
  return builder.take();
}

//===----------------------------------------------------------------------===//
// Loss
//===----------------------------------------------------------------------===//

/// Logits [l..., v]: parts of the classes combine as parts of a softmax do, and the one that has the label yields its logit and its weight.
OpFactors CrossEntropyOp::getFactors() {
  FactorBuilder builder(*this);
  SmallVector<OpFactors::Segment> lead = builder.parallel(shapeOf(getLabels()));
  OpFactors::Segment v = builder.reduced(shapeOf(getLogits()).back(), Combiner::LogSumExp);
  FactorBuilder::set(builder.operand(0), lead);
  builder.operand(0).back() = {v};
  FactorBuilder::set(builder.operand(1), lead);
  FactorBuilder::set(builder.optionalOperand(getODSOperandIndexAndLength(2)), {v});
  for (unsigned i = 0; i < getNumResults(); ++i)
    FactorBuilder::set(builder.result(i), lead);
  builder.countAlong(v, 1);
  return builder.take();
}

/// Every class needs the weight of the label, which may be in another part: weights stay whole.
OpFactors CrossEntropyGradOp::getFactors() {
  FactorBuilder builder(*this);
  SmallVector<OpFactors::Segment> lead = builder.parallel(shapeOf(getLabels()));
  OpFactors::Segment v = builder.parallel(shapeOf(getLogits()).back());
  for (unsigned i = 0; i < 4; ++i)
    FactorBuilder::set(builder.operand(i), lead);
  FactorBuilder::set(builder.result(0), lead);
  builder.operand(1).back() = builder.result(0).back() = {v};
  builder.countAlong(v, 2);
  return builder.take();
}

//===----------------------------------------------------------------------===//
// Dropout and statistics
//===----------------------------------------------------------------------===//

/// What is dropped is a function of the element's place in the sample.
OpFactors DropoutOp::getFactors() {
  OpFactors factors = elementwiseFactors(*this);
  for (unsigned factor = 0; factor < factors.factors.size(); ++factor)
    if (factors.factors[factor].size != ShapedType::kDynamic)
      factors.offsets.push_back({factor, std::nullopt});
  return factors;
}

/// observed [r, c...] and running [c...].
OpFactors TrackOp::getFactors() {
  FactorBuilder builder(*this);
  SmallVector<OpFactors::Segment> dimensions = builder.parallel(shapeOf(getObserved()));
  FactorBuilder::set(builder.operand(0), dimensions);
  FactorBuilder::set(builder.operand(1), ArrayRef(dimensions).drop_front());
  FactorBuilder::set(builder.result(0), dimensions);
  return builder.take();
}
