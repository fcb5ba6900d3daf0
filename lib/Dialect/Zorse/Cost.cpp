// FLOPs and bytes of operations without fusion. The weights of special functions approximate the
// FLOPs of a polynomial evaluation.
#include "zorse/Dialect/Zorse/SampleOps.h"

using namespace mlir;
using namespace zorse;

using zorse::detail::kSpecialFunction;

static RankedTensorType typeOf(Value value) { return dyn_cast<RankedTensorType>(value.getType()); }

static double elements(Value value) {
  RankedTensorType type = typeOf(value);
  return type ? static_cast<double>(elementsPerRow(type)) : 1.0;
}

static double elementBytes(Type type) {
  return std::max(1u, getElementTypeOrSelf(type).getIntOrFloatBitWidth() / 8);
}

/// Returns the number of (query, key) pairs that the mask of `causal` and `window` leaves visible.
static double visiblePairs(double queries, double keys, const AttentionOptions &options) {
  if (!options.causal)
    return queries * keys;
  double pairs = 0;
  for (double query = 0; query < queries; ++query) {
    double visible = std::clamp(query + keys - queries + 1, 0.0, keys);
    pairs += options.window ? std::min(visible, static_cast<double>(*options.window)) : visible;
  }
  return pairs;
}

template <typename Op> static double attentionFlops(Op op, double products) {
  ArrayRef<int64_t> q = typeOf(op.getQ()).getShape(), v = typeOf(op.getV()).getShape();
  double pairs = visiblePairs(q[1], v[1], op.getOptions()) * q[2] *
                 (ShapedType::isDynamic(q[0]) ? 1 : q[0]);
  return pairs * (products * (q[3] + v[3]) + kSpecialFunction);
}

double ReshapeOp::getFlops() { return 0; }
double TransposeOp::getFlops() { return 0; }
double SliceOp::getFlops() { return 0; }
double ConcatOp::getFlops() { return 0; }
double BroadcastOp::getFlops() { return 0; }
double DetachOp::getFlops() { return 0; }
double GradientOfOp::getFlops() { return 0; }
double GatherOp::getFlops() { return 0; }
double TakeAlongDimOp::getFlops() { return 0; }
double TakeAlongDimGradOp::getFlops() { return 0; }
double KnownOp::getFlops() { return 0; }
double SampleNumberOp::getFlops() { return 0; }

double ReduceOp::getFlops() { return elements(getX()); }
double MatmulOp::getFlops() {
  return 2 * elements(getY()) *
         typeOf(getA()).getShape().take_back(getTransposeA() ? 2 : 1).front();
}
double BiasedMatmulOp::getFlops() {
  return (2.0 * typeOf(getA()).getShape().back() + 1) * elements(getY());
}
double MatmulGradWeightOp::getFlops() {
  return 2 * elements(getA()) * typeOf(getB()).getShape().back();
}
double ScatterAddOp::getFlops() { return elements(getUpdates()); }

double SoftmaxOp::getFlops() { return elements(getX()) * (kSpecialFunction + 4); }
double LogSoftmaxOp::getFlops() { return elements(getX()) * (kSpecialFunction + 4); }
double SoftmaxGradOp::getFlops() { return elements(getY()) * 4; }
double LogSoftmaxGradOp::getFlops() { return elements(getY()) * (kSpecialFunction + 3); }
double LayerNormOp::getFlops() { return elements(getX()) * 8; }
double LayerNormGradInputOp::getFlops() { return elements(getX()) * 11; }
double LayerNormGradParamsOp::getFlops() { return elements(getX()) * 5; }
double RmsNormOp::getFlops() { return elements(getX()) * 4; }
double RmsNormGradInputOp::getFlops() { return elements(getX()) * 8; }
double RmsNormGradParamsOp::getFlops() { return elements(getX()) * 3; }
double GeluOp::getFlops() { return elements(getX()) * (kSpecialFunction + 6); }
double SiluOp::getFlops() { return elements(getX()) * (kSpecialFunction + 6); }
double GeluGradOp::getFlops() { return elements(getX()) * (kSpecialFunction + 12); }
double SiluGradOp::getFlops() { return elements(getX()) * (kSpecialFunction + 12); }

double AttentionOp::getFlops() { return attentionFlops(*this, 2); }
double AttentionGradOp::getFlops() { return attentionFlops(*this, 5); }
double CausalMaskOp::getFlops() { return elements(getY()); }
double RopeOp::getFlops() { return elements(getX()) * 3; }
double CrossEntropyOp::getFlops() { return elements(getLogits()) * (kSpecialFunction + 4); }
double CrossEntropyGradOp::getFlops() { return elements(getLogits()) * (kSpecialFunction + 4); }
double DropoutOp::getFlops() { return elements(getX()) * kSpecialFunction; }
double RunningStatOp::getFlops() { return elements(getY()); }
double RoundOp::getFlops() { return elements(getY()); }

// These operations only change the type or the role of the same bytes.
SmallVector<Value> ReshapeOp::getTouchedValues() { return {}; }
SmallVector<Value> DetachOp::getTouchedValues() { return {}; }
SmallVector<Value> GradientOfOp::getTouchedValues() { return {}; }
/// Reads only the rows of the table that it returns.
SmallVector<Value> GatherOp::getTouchedValues() { return {getY(), getIndices(), getY()}; }

OpCost zorse::detail::costOf(double flops, ArrayRef<Value> touched) {
  OpCost cost;
  bool sampled = false;
  for (Value value : touched) {
    double bytes = elements(value) * elementBytes(value.getType());
    bool carries = carriesSamples(value.getType());
    (carries ? cost.bytesPerRow : cost.bytes) += bytes;
    sampled |= carries;
  }
  (sampled ? cost.flopsPerRow : cost.flops) = flops;
  return cost;
}
