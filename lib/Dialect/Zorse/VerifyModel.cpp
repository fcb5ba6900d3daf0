#include "VerifyCommon.h"

#include "zorse/Dialect/Zorse/SampleOps.h"
#include "zorse/runtime/Expression.h"

#include <cmath>

using namespace mlir;
using namespace zorse;

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

/// Checks the operands and attributes that attention and its gradient have in common. The gradient
/// cites all these constraints as C1.
template <typename Op> static LogicalResult verifyAttentionOperands(Op op, bool gradient) {
  auto fail = [&](const char *constraint) {
    return op.emitOpError() << "(" << (gradient ? "C1" : constraint) << ") expects ";
  };
  RankedTensorType q = tensorTypeOf(op.getQ()), k = tensorTypeOf(op.getK()),
                   v = tensorTypeOf(op.getV());
  bool sameKind = q.getRank() == 4 && k.getRank() == 4 && v.getRank() == 4 &&
                  q.getElementType() == k.getElementType() &&
                  q.getElementType() == v.getElementType() && q.getDimSize(0) == k.getDimSize(0) &&
                  q.getDimSize(0) == v.getDimSize(0);
  if (!sameKind)
    return fail("C1") << "q, k and v of rank 4, one element type and the same rows, got " << q
                      << ", " << k << " and " << v;
  int64_t heads = q.getDimSize(2), keyHeads = k.getDimSize(2);
  if (k.getDimSize(1) != v.getDimSize(1) || keyHeads != v.getDimSize(2) ||
      k.getDimSize(3) != q.getDimSize(3) || keyHeads == 0 || heads % keyHeads != 0)
    return fail("C2")
           << "k [?, S', H', D] and v [?, S', H', D'] with D of q and H' dividing H, got q " << q
           << ", k " << k << " and v " << v;

  if (op.getMask()) {
    RankedTensorType mask = tensorTypeOf(op.getMask());
    bool fits = mask.getRank() == 4 &&
                (mask.getDimSize(0) == q.getDimSize(0) || mask.getDimSize(0) == 1) &&
                (mask.getDimSize(1) == heads || mask.getDimSize(1) == 1) &&
                mask.getDimSize(2) == q.getDimSize(1) && mask.getDimSize(3) == k.getDimSize(1) &&
                (mask.getElementType().isInteger(1) || mask.getElementType() == q.getElementType());
    if (!fits)
      return fail("C3") << "mask [?|1, " << heads << "|1, " << q.getDimSize(1) << ", "
                        << k.getDimSize(1) << "] of i1 or " << q.getElementType() << ", got "
                        << mask;
  }
  AttentionOptions options = op.getOptions();
  if (!std::isfinite(options.scale) ||
      (options.softcap && (!(*options.softcap > 0) || !std::isfinite(*options.softcap))) ||
      !(options.dropout >= 0 && options.dropout < 1))
    return fail("C4")
           << "a finite scale, a positive, finite softcap and 0 <= dropout < 1, got scale "
           << options.scale << ", softcap " << options.softcap.value_or(0) << " and dropout "
           << options.dropout;
  if (options.firstHead < 0)
    return fail("C8") << "first_head >= 0, got " << options.firstHead;
  if (options.window && (*options.window < 1 || !options.causal))
    return fail("C5") << "window >= 1 together with causal, got " << *options.window
                      << (options.causal ? " with" : " without") << " causal";

  RankedTensorType out = reshaped(q, {q.getDimSize(0), q.getDimSize(1), heads, v.getDimSize(3)});
  if (op.getOut().getType() != out)
    return fail("C6") << "out " << out << ", got " << op.getOut().getType();
  RankedTensorType lse = attentionStatisticType(q, op.getMask());
  if (op.getLse() && op.getLse().getType() != lse)
    return fail("C7") << "lse " << lse << ", got " << op.getLse().getType();
  return success();
}

LogicalResult AttentionOp::verify() { return verifyAttentionOperands(*this, /*gradient=*/false); }

LogicalResult AttentionGradOp::verify() {
  if (failed(verifyAttentionOperands(*this, /*gradient=*/true)))
    return failure();
  if (getDout().getType() != getOut().getType())
    return emitOpError("(C2) expects dout ")
           << getOut().getType() << ", got " << getDout().getType();
  auto fits = [](Value gradient, Value value) {
    return isSumOf(gradient.getType(), tensorTypeOf(value));
  };
  if (!fits(getDq(), getQ()) || !fits(getDk(), getK()) || !fits(getDv(), getV()) ||
      getElementTypeOrSelf(getDq().getType()) != getElementTypeOrSelf(getDk().getType()) ||
      getElementTypeOrSelf(getDq().getType()) != getElementTypeOrSelf(getDv().getType()))
    return emitOpError("(C3) expects dq, dk and dv of the types of q, k and v, or all of f32, got ")
           << getDq().getType() << ", " << getDk().getType() << " and " << getDv().getType();
  return success();
}

LogicalResult CausalMaskOp::verify() {
  auto type = cast<RankedTensorType>(getY().getType());
  if (type.getRank() != 2 || !type.hasStaticShape())
    return emitOpError("(C1) expects a mask of rank 2, queries by keys, got ") << type;
  if (getWindow() && *getWindow() < 1)
    return emitOpError("(C2) expects a window of at least 1, got ") << *getWindow();
  if (type.getDimSize(0) > type.getDimSize(1))
    return emitOpError("(C3) expects no more queries than keys, got ") << type;
  if (getFill() && (!(getHidden() < 0) || !isa<FloatType>(type.getElementType())))
    return emitOpError("(C4) expects a fill below 0 of a float mask, got ")
           << getHidden() << " of " << type;
  return success();
}

LogicalResult RopeOp::verify() {
  RankedTensorType x = tensorTypeOf(getX()), cos = tensorTypeOf(getCos());
  if (x.getRank() != 4 || x.getDimSize(3) % 2 != 0)
    return emitOpError("(C1) expects x [?, S, H, D] with D even, got ") << x;
  int64_t positions = x.getDimSize(1), pairs = x.getDimSize(3) / 2;
  bool fits =
      getSin().getType() == cos && cos.getElementType() == x.getElementType() &&
      (cos.getShape() == ArrayRef({positions, pairs}) ||
       (carriesSamples(x) && cos.getShape() == ArrayRef({ShapedType::kDynamic, positions, pairs})));
  if (!fits)
    return emitOpError("(C2) expects cos and sin ")
           << reshaped(x, {positions, pairs})
           << (carriesSamples(x) ? " or the same per sample" : "") << ", got " << cos << " and "
           << getSin().getType();
  if (getY().getType() != x)
    return emitOpError("(C3) expects y ") << x << ", got " << getY().getType();
  return success();
}

//===----------------------------------------------------------------------===//
// Loss
//===----------------------------------------------------------------------===//

static LogicalResult verifyLossOperands(Operation *op, Value logitsValue, Value labels,
                                        Value weights, const char *first, const char *second) {
  RankedTensorType logits = tensorTypeOf(logitsValue);
  if (!hasStaticLastDimension(logits) ||
      tensorTypeOf(labels).getShape() != logits.getShape().drop_back())
    return op->emitOpError()
           << "(" << first
           << ") expects labels of the shape of logits without the (static) last dimension, got "
           << labels.getType() << " for " << logits;
  if (weights && weights.getType() != channelTypeOf(logits))
    return op->emitOpError() << "(" << second << ") expects weights " << channelTypeOf(logits)
                             << ", got " << weights.getType();
  return success();
}

LogicalResult CrossEntropyOp::verify() {
  if (failed(verifyLossOperands(*this, getLogits(), getLabels(), getWeights(), "C1", "C2")))
    return failure();
  const RankedTensorType loss = statisticType(tensorTypeOf(getLogits())),
                         statistics = statisticsOfEach(loss);
  if (getLoss().getType() != loss || (getStatistics() && getStatistics().getType() != statistics))
    return emitOpError("(C3) expects loss ") << loss << " and statistics " << statistics << ", got "
                                             << getOperation()->getResultTypes();
  return success();
}

LogicalResult CrossEntropyGradOp::verify() {
  if (failed(verifyLossOperands(*this, getLogits(), getLabels(), getWeights(), "C1", "C1")))
    return failure();
  const RankedTensorType loss = statisticType(tensorTypeOf(getLogits())),
                         statistics = statisticsOfEach(loss);
  if (getStatistics().getType() != statistics)
    return emitOpError("(C1) expects statistics ")
           << statistics << ", got " << getStatistics().getType();
  if (getDloss().getType() != loss)
    return emitOpError("(C2) expects dloss ") << loss << ", got " << getDloss().getType();
  if (getDlogits().getType() != getLogits().getType())
    return emitOpError("(C3) expects dlogits ")
           << getLogits().getType() << ", got " << getDlogits().getType();
  return success();
}

LogicalResult RoundOp::verify() {
  if (!getTo().isBF16() && !getTo().isF16())
    return emitOpError("(C1) expects to round to bf16 or f16, got ") << getTo();
  if (Type element = getElementTypeOrSelf(getX().getType()); !element.isF32() && !element.isF64())
    return emitOpError("(C2) expects elements of f32 or f64, got ") << element;
  if (!getStraightThrough() && !carriesSamples(getX().getType()))
    return emitOpError("(C3) expects straight_through for a value without samples");
  if (getStraightThrough() && getPerOperator())
    return emitOpError("(C4) expects one of straight_through and per_operator");
  return success();
}

LogicalResult DetachOp::verify() { return success(); } // its traits check everything

LogicalResult RunningStatOp::verify() {
  auto observed = cast<RankedTensorType>(getObserved().getType()),
       running = cast<RankedTensorType>(getRunning().getType());
  if (!carriesSamples(observed) || observed.getShape().drop_front() != running.getShape() ||
      observed.getElementType() != running.getElementType())
    return emitOpError("(C1) expects a statistic of every row and running ones of its shape "
                       "without the samples, got ")
           << observed << " and " << running;
  const double momentum = getMomentum().convertToDouble(),
               correction = getCorrection().convertToDouble();
  if (!(momentum > 0 && momentum <= 1) || !(correction > 0))
    return emitOpError("(C2) expects 0 < momentum <= 1 and a correction above 0, got ")
           << momentum << " and " << correction;
  return success();
}

LogicalResult GradientOfOp::verify() { return success(); } // its traits check everything

LogicalResult KnownOp::verify() {
  if (auto parsed = Expression::parse(getExpression()); parsed.failed())
    return emitOpError("(C1) expects an expression of B and counts, got \"")
           << getExpression() << "\": " << parsed.message();
  return success();
}

LogicalResult SampleNumberOp::verify() {
  auto type = cast<RankedTensorType>(getType());
  if (type.getRank() != 1 || !carriesSamples(type) || !type.getElementType().isInteger(64))
    return emitOpError("(C1) expects the result to be tensor<?xi64>, got ") << type;
  return success();
}

LogicalResult DropoutOp::verify() {
  double probability = getProbability().convertToDouble();
  if (!(probability >= 0 && probability < 1))
    return emitOpError("(C1) expects 0 <= probability < 1, got ") << probability;
  if (static_cast<int64_t>(getRngId()) < 0)
    return emitOpError("(C2) expects rng_id >= 0, got ") << static_cast<int64_t>(getRngId());
  if (std::optional<ArrayRef<int64_t>> element = getElement())
    if (static_cast<int64_t>(element->size()) != cast<RankedTensorType>(getType()).getRank() + 1 ||
        llvm::any_of(*element, [](int64_t number) { return number < 0; }))
      return emitOpError("(C3) expects element to have a first element and a stride per dimension, "
                         "none negative");
  return success();
}
