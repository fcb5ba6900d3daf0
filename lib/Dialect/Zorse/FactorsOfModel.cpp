// Factors of attention, position embeddings, the loss and dropout.
#include "FactorBuilder.h"

using namespace mlir;
using namespace zorse;

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

namespace {
/// q [r, s, h g, d], k [r, t, h, d], v [r, t, h, e] and out [r, s, h g, e]: h key heads, each
/// shared by g query heads.
class AttentionDimensions {
public:
  using Segment = OpFactors::Segment;

  AttentionDimensions(Operation *op, Value q, Value k, Value v, FactorKind keys,
                      FactorKind valueChannels)
      : builder(op) {
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
  /// [r, h g, s], followed by two numbers per query if the mask is a float mask.
  void statistics(OpFactors::Value &value) { FactorBuilder::set(value, {r, heads, s}); }
  /// Dimensions of size 1 repeat.
  void mask(OpFactors::Value &value, Value mask) {
    if (!mask)
      return;
    auto unlessOne = [&](unsigned dimension, const Segment &segment) {
      return shapeOf(mask)[dimension] == 1 ? FactorBuilder::nothing(1) : segment;
    };
    FactorBuilder::set(value, {unlessOne(0, r), unlessOne(1, heads), s, t});
  }
  /// The keys that a query sees depend on positions. Dropped probabilities also depend on the head.
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

/// Probabilities need all keys. Statistics are equal for all channels of the values and are not
/// sums over them.
OpFactors AttentionOp::getFactors() {
  AttentionDimensions dimensions(*this, getQ(), getK(), getV(), FactorKind::Indivisible,
                                 getLse() ? FactorKind::Indivisible : FactorKind::Parallel);
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

/// With the statistics of all keys given, (query, key) pairs are independent: dq is a sum over
/// keys; dk and dv are sums over queries and over the query heads of a key head. The sum of dout *
/// out over the channels of the values cannot be split into parts.
OpFactors AttentionGradOp::getFactors() {
  AttentionDimensions dimensions(*this, getQ(), getK(), getV(), FactorKind::Parallel,
                                 FactorKind::Indivisible);
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

/// Channels are rotated in pairs (p, p + D/2) or (2p, 2p + 1): a product of 2 and the pairs. The
/// tables have one entry per pair.
OpFactors RopeOp::getFactors() {
  FactorBuilder builder(*this);
  ArrayRef<int64_t> shape = shapeOf(getX());
  OpFactors::Segment r = builder.parallel(shape[0]), s = builder.parallel(shape[1]),
                     h = builder.parallel(shape[2]);
  OpFactors::Segment pairs = builder.parallel(shape[3] / 2), both = builder.indivisible(2);
  OpFactors::Segment channels = getInterleaved() ? FactorBuilder::product(pairs, both)
                                                 : FactorBuilder::product(both, pairs);
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

/// Logits [l..., v]: parts of the classes combine like parts of a softmax. The part that contains
/// the label yields its logit and its weight.
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

/// Every class needs the weight of the label, which may belong to another part, so the weights are
/// not divided.
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

/// Whether an element is dropped depends on its position in the sample.
OpFactors DropoutOp::getFactors() {
  OpFactors factors = elementwiseFactors(*this);
  for (unsigned factor = 0; factor < factors.factors.size(); ++factor)
    if (factors.factors[factor].size != ShapedType::kDynamic)
      factors.offsets.push_back({factor, std::nullopt});
  return factors;
}

/// observed [r, c...] and running [c...].
OpFactors RunningStatOp::getFactors() {
  FactorBuilder builder(*this);
  SmallVector<OpFactors::Segment> dimensions = builder.parallel(shapeOf(getObserved()));
  FactorBuilder::set(builder.operand(0), dimensions);
  FactorBuilder::set(builder.operand(1), ArrayRef(dimensions).drop_front());
  FactorBuilder::set(builder.result(0), dimensions);
  return builder.take();
}
