#include "Decompose.h"

#include "Views.h"
#include "zorse/Dialect/Zorse/TensorBuilder.h"

#include <cmath>

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

namespace {

/// Type for statistics and losses: f32 for half-precision inputs.
Type wide(Value x) { return statisticElementType(TensorBuilder::elementOf(x)); }

Value decomposeSoftmax(TensorBuilder &t, Value x, bool logarithm) {
  Type element = TensorBuilder::elementOf(x);
  x = t.cast(x, wide(x));
  Value shifted = t.sub(x, t.alongLast(t.reduceLast(x, ReduceKind::Max), x));
  Value exponential = t.expNearly(shifted);
  Value sum = t.sumLast(exponential);
  if (logarithm)
    return t.cast(t.sub(shifted, t.alongLast(t.log(sum), x)), element);
  return t.cast(t.mul(exponential, t.alongLast(t.div(t.splat(sum, 1.0), sum), x)), element);
}

Value decomposeSoftmaxGrad(TensorBuilder &t, Value y, Value dy, bool logarithm) {
  Type element = TensorBuilder::elementOf(y);
  y = t.cast(y, wide(y));
  dy = t.cast(dy, wide(dy));
  if (logarithm)
    return t.cast(t.sub(dy, t.mul(t.expNearly(y), t.alongLast(t.sumLast(dy), y))), element);
  return t.cast(t.mul(y, t.sub(dy, t.alongLast(t.sumLast(t.mul(y, dy)), y))), element);
}

void decomposeLayerNorm(TensorBuilder &t, LayerNormOp op) {
  Value x = t.cast(op.getX(), wide(op.getX()));
  Value mean = t.meanLast(x);
  Value centered = t.sub(x, t.alongLast(mean, x));
  Value variance = t.meanLast(t.mul(centered, centered));
  Value rstd =
      t.div(t.splat(variance, 1.0), t.sqrt(t.plus(variance, op.getEpsilon().convertToDouble())));
  Value y = t.mul(centered, t.alongLast(rstd, x));
  if (Value weight = op.getWeight())
    y = t.mul(y, t.alongLead(t.cast(weight, wide(x)), x));
  if (Value bias = op.getBias())
    y = t.add(y, t.alongLead(t.cast(bias, wide(x)), x));
  op.getY().replaceAllUsesWith(t.cast(y, TensorBuilder::elementOf(op.getX())));
  if (Value result = op.getMean()) {
    result.replaceAllUsesWith(mean);
    op.getRstd().replaceAllUsesWith(rstd);
  }
}

Value decomposeLayerNormGrad(TensorBuilder &t, LayerNormGradInputOp op) {
  Value x = t.cast(op.getX(), wide(op.getX())), g = t.cast(op.getDy(), wide(op.getX()));
  Value h = t.mul(t.sub(x, t.alongLast(op.getMean(), x)), t.alongLast(op.getRstd(), x));
  if (Value weight = op.getWeight())
    g = t.mul(g, t.alongLead(t.cast(weight, wide(x)), x));
  Value meanG = t.meanLast(g), meanGh = t.meanLast(t.mul(g, h));
  Value inner = t.sub(t.sub(g, t.alongLast(meanG, x)), t.mul(h, t.alongLast(meanGh, x)));
  return t.cast(t.mul(t.alongLast(op.getRstd(), x), inner), TensorBuilder::elementOf(op.getX()));
}

void decomposeRmsNorm(TensorBuilder &t, RmsNormOp op) {
  Value x = t.cast(op.getX(), wide(op.getX()));
  Value square = t.meanLast(t.mul(x, x));
  Value rrms =
      t.div(t.splat(square, 1.0), t.sqrt(t.plus(square, op.getEpsilon().convertToDouble())));
  Value y = t.mul(x, t.alongLast(rrms, x));
  if (Value weight = op.getWeight())
    y = t.mul(y, t.alongLead(t.cast(weight, wide(x)), x));
  op.getY().replaceAllUsesWith(t.cast(y, TensorBuilder::elementOf(op.getX())));
  if (Value result = op.getRrms())
    result.replaceAllUsesWith(rrms);
}

Value decomposeRmsNormGrad(TensorBuilder &t, RmsNormGradInputOp op) {
  Value x = t.cast(op.getX(), wide(op.getX())), g = t.cast(op.getDy(), wide(op.getX()));
  Value r = t.alongLast(op.getRrms(), x);
  Value h = t.mul(x, r);
  if (Value weight = op.getWeight())
    g = t.mul(g, t.alongLead(t.cast(weight, wide(x)), x));
  Value meanGh = t.meanLast(t.mul(g, h));
  return t.cast(t.mul(r, t.sub(g, t.mul(h, t.alongLast(meanGh, x)))),
                TensorBuilder::elementOf(op.getX()));
}

constexpr double kGeluTanh = 0.7978845608028654; // sqrt(2/pi)
constexpr double kGeluCube = 0.044715;
constexpr double kRsqrt2 = 0.7071067811865476;

Value sigmoid(TensorBuilder &t, Value x) {
  return t.divNearly(t.splat(x, 1.0), t.plus(t.expNearly(t.neg(x)), 1.0));
}

/// (1 + tanh(u)) / 2 with GELU's u, computed as the sigmoid of 2 u, which keeps full precision if
/// tanh is near -1.
Value geluShare(TensorBuilder &t, Value x) {
  return sigmoid(t, t.mul(t.scale(x, 2 * kGeluTanh), t.plus(t.scale(t.mul(x, x), kGeluCube), 1.0)));
}

Value decomposeGelu(TensorBuilder &t, Value x, bool approximate) {
  if (approximate)
    return t.mul(x, geluShare(t, x));
  return t.mul(t.scale(x, 0.5), t.plus(t.erf(t.scale(x, kRsqrt2)), 1.0));
}

Value decomposeGeluGrad(TensorBuilder &t, Value x, Value dy, bool approximate) {
  Value square = t.mul(x, x);
  if (approximate) {
    Value share = geluShare(t, x), rest = t.sub(t.splat(x, 1.0), share);
    Value slope = t.scale(t.plus(t.scale(square, 3 * kGeluCube), 1.0), 2 * kGeluTanh);
    return t.mul(dy, t.add(share, t.mul(t.mul(x, slope), t.mul(share, rest))));
  }
  Value cdf = t.scale(t.plus(t.erf(t.scale(x, kRsqrt2)), 1.0), 0.5);
  Value pdf = t.scale(t.expNearly(t.scale(square, -0.5)), 0.3989422804014327); // 1/sqrt(2 pi)
  return t.mul(dy, t.add(cdf, t.mul(x, pdf)));
}

Value decomposeSiluGrad(TensorBuilder &t, Value x, Value dy) {
  Value s = sigmoid(t, x);
  return t.mul(dy, t.mul(s, t.plus(t.mul(x, t.sub(t.splat(x, 1.0), s)), 1.0)));
}

/// Labels with ignored ones replaced by 0, and which are not ignored (null: all).
std::pair<Value, Value> splitLabels(TensorBuilder &t, Value labels, std::optional<int64_t> ignore) {
  if (!ignore)
    return {labels, Value()};
  Value valid = t.make<arith::CmpIOp>(arith::CmpIPredicate::ne, labels,
                                      t.splat(labels, static_cast<double>(*ignore)));
  return {t.select(valid, labels, t.splat(labels, 0)), valid};
}

std::optional<int64_t> toOptional(std::optional<uint64_t> value) {
  return value ? std::optional<int64_t>(static_cast<int64_t>(*value)) : std::nullopt;
}

void decomposeCrossEntropy(TensorBuilder &t, CrossEntropyOp op) {
  Value x = t.cast(op.getLogits(), wide(op.getLogits()));
  Value max = t.reduceLast(x, ReduceKind::Max);
  Value sum = t.sumLast(t.expNearly(t.sub(x, t.alongLast(max, x))));
  auto [label, valid] = splitLabels(t, op.getLabels(), toOptional(op.getIgnoreIndex()));
  // Subtract first: adding a large logit would absorb the logarithm.
  Value loss =
      t.add(t.sub(max, t.cast(t.make<TakeAlongDimOp>(op.getLogits(), label), wide(x))), t.log(sum));
  if (Value weights = op.getWeights())
    loss = t.mul(loss, t.cast(t.make<GatherOp>(weights, label), wide(x)));
  if (valid)
    loss = t.select(valid, loss, t.splat(loss, 0.0));
  op.getLoss().replaceAllUsesWith(loss);
  if (Value result = op.getStatistics())
    result.replaceAllUsesWith(t.join(max, sum));
}

Value decomposeCrossEntropyGrad(TensorBuilder &t, CrossEntropyGradOp op) {
  Value x = t.cast(op.getLogits(), wide(op.getLogits()));
  auto [label, valid] = splitLabels(t, op.getLabels(), toOptional(op.getIgnoreIndex()));
  Value seed = op.getDloss();
  if (Value weights = op.getWeights())
    seed = t.mul(seed, t.cast(t.make<GatherOp>(weights, label), wide(x)));
  if (valid)
    seed = t.select(valid, seed, t.splat(seed, 0.0));
  Value exponential = t.expNearly(t.sub(x, t.alongLast(t.element(op.getStatistics(), 0), x)));
  Value weighted =
      t.mul(exponential, t.alongLast(t.div(seed, t.element(op.getStatistics(), 1)), x));
  Value hit = t.make<TakeAlongDimGradOp>(TensorBuilder::typeOf(x), seed, label);
  return t.cast(t.sub(weighted, hit), TensorBuilder::elementOf(op.getLogits()));
}

/// Rotates pairs of halves that are slices of x, and joins them. The slices and the join are
/// strides, not copies.
Value decomposeRope(TensorBuilder &t, RopeOp op) {
  Value x = op.getX();
  SmallVector<int64_t> shape(TensorBuilder::typeOf(x).getShape());
  int64_t half = shape.back() / 2;
  SmallVector<int64_t> split(shape);
  split.back() = op.getInterleaved() ? half : 2;
  split.push_back(op.getInterleaved() ? 2 : half);
  int64_t pairDim = op.getInterleaved() ? 4 : 3;
  Value pairs = t.reshape(x, split);
  SmallVector<int64_t> part(shape);
  part.back() = half;
  Value a = t.reshape(t.make<SliceOp>(pairs, pairDim, 0, 1), part),
        b = t.reshape(t.make<SliceOp>(pairs, pairDim, 1, 1), part);
  auto angles = [&](Value v) -> Value {
    SmallVector<int64_t> dims = TensorBuilder::typeOf(v).getRank() == 2
                                    ? SmallVector<int64_t>{1, 3}
                                    : SmallVector<int64_t>{0, 1, 3};
    return t.make<BroadcastOp>(t.withElement(a, TensorBuilder::elementOf(v)), v, dims);
  };
  Value cosine = angles(op.getCos()), sine = angles(op.getSin());
  Value first, second;
  if (op.getInverse()) {
    first = t.add(t.mul(a, cosine), t.mul(b, sine));
    second = t.sub(t.mul(b, cosine), t.mul(a, sine));
  } else {
    first = t.sub(t.mul(a, cosine), t.mul(b, sine));
    second = t.add(t.mul(a, sine), t.mul(b, cosine));
  }
  SmallVector<int64_t> unit(split);
  unit[pairDim] = 1;
  Value joined =
      t.make<ConcatOp>(ValueRange{t.reshape(first, unit), t.reshape(second, unit)}, pairDim);
  return t.reshape(joined, shape);
}

/// Turns a reduction over several trailing dimensions into a reduction over one. A reduction of
/// unit dimensions only becomes a reshape.
Value regroupReduce(TensorBuilder &t, ReduceOp op) {
  RankedTensorType type = TensorBuilder::typeOf(op.getX());
  int64_t rank = type.getRank();
  SmallVector<bool> reduced(rank, false);
  for (int64_t dim : op.getDims())
    reduced[dim] = true;
  int64_t first = rank; // first dimension of the trailing group, including unit dimensions
  while (first > 0 && !type.isDynamicDim(first - 1) &&
         (reduced[first - 1] || type.getDimSize(first - 1) == 1))
    --first;
  int64_t inside = 1, others = 0, members = 0;
  for (int64_t dim = 0; dim < rank; ++dim) {
    if (dim >= first) {
      inside *= type.getDimSize(dim);
      members += type.getDimSize(dim) != 1;
    } else if (reduced[dim] && type.getDimSize(dim) != 1) {
      ++others;
    }
  }
  if (others > 0 || (members == 1 && reduced[rank - 1] && op.getDims().size() == 1))
    return Value();
  SmallVector<int64_t> shape(type.getShape().take_front(first));
  Value x = op.getX();
  if (members > 0) {
    shape.push_back(inside);
    x = t.reduceLast(t.reshape(x, shape), op.getKind());
  }
  return t.reshape(x, TensorBuilder::typeOf(op.getY()).getShape());
}

/// Uses dropout to detect evaluation: only in evaluation does it leave a 1 unchanged; otherwise the
/// 1 becomes 0 or 2.
Value decomposeRunningStat(TensorBuilder &t, RunningStatOp op) {
  Value one = t.splat(op.getObserved(), 1.0);
  Value kept = t.make<DropoutOp>(one, 0.5, 0);
  Value evaluating = t.make<arith::CmpFOp>(arith::CmpFPredicate::OEQ, kept, one);
  SmallVector<int64_t> dims;
  for (int64_t dim = 1; dim < TensorBuilder::typeOf(op.getObserved()).getRank(); ++dim)
    dims.push_back(dim);
  return t.select(
      evaluating,
      t.make<BroadcastOp>(TensorBuilder::typeOf(op.getObserved()), op.getRunning(), dims),
      op.getObserved());
}

/// Half-precision elementwise composites are expanded in their own type, because kernels compute
/// these types in f32.
Value decomposeOne(TensorBuilder &t, Operation *operation) {
  if (auto op = dyn_cast<SoftmaxOp>(operation))
    return decomposeSoftmax(t, op.getX(), false);
  if (auto op = dyn_cast<LogSoftmaxOp>(operation))
    return decomposeSoftmax(t, op.getX(), true);
  if (auto op = dyn_cast<SoftmaxGradOp>(operation))
    return decomposeSoftmaxGrad(t, op.getY(), op.getDy(), false);
  if (auto op = dyn_cast<LogSoftmaxGradOp>(operation))
    return decomposeSoftmaxGrad(t, op.getY(), op.getDy(), true);
  if (auto op = dyn_cast<LayerNormGradInputOp>(operation))
    return decomposeLayerNormGrad(t, op);
  if (auto op = dyn_cast<RmsNormGradInputOp>(operation))
    return decomposeRmsNormGrad(t, op);
  if (auto op = dyn_cast<GeluOp>(operation))
    return decomposeGelu(t, op.getX(), op.getApproximate());
  if (auto op = dyn_cast<GeluGradOp>(operation))
    return decomposeGeluGrad(t, op.getX(), op.getDy(), op.getApproximate());
  if (auto op = dyn_cast<SiluOp>(operation))
    return t.mul(op.getX(), sigmoid(t, op.getX()));
  if (auto op = dyn_cast<SiluGradOp>(operation))
    return decomposeSiluGrad(t, op.getX(), op.getDy());
  if (auto op = dyn_cast<CrossEntropyGradOp>(operation))
    return decomposeCrossEntropyGrad(t, op);
  if (auto op = dyn_cast<RunningStatOp>(operation))
    return decomposeRunningStat(t, op);
  if (auto op = dyn_cast<RopeOp>(operation))
    return decomposeRope(t, op);
  if (auto op = dyn_cast<ReduceOp>(operation))
    return regroupReduce(t, op);
  return Value();
}

} // namespace

void zorse::codegen::decomposeRowOps(func::FuncOp function) {
  SmallVector<Operation *> ops;
  for (Operation &op : function.getBody().front())
    ops.push_back(&op);
  OpBuilder builder(function.getContext());
  for (Operation *op : ops) {
    builder.setInsertionPoint(op);
    TensorBuilder t{builder, op->getLoc()};
    if (Value result = decomposeOne(t, op))
      op->getResult(0).replaceAllUsesWith(result);
    else if (auto norm = dyn_cast<LayerNormOp>(op))
      decomposeLayerNorm(t, norm);
    else if (auto norm = dyn_cast<RmsNormOp>(op))
      decomposeRmsNorm(t, norm);
    else if (auto loss = dyn_cast<CrossEntropyOp>(op))
      decomposeCrossEntropy(t, loss);
    else
      continue;
    op->erase();
  }
}

void zorse::codegen::decomposeColumnOps(func::FuncOp function) {
  SmallVector<Operation *> ops;
  for (Operation &op : function.getBody().front())
    if (isa<LayerNormGradParamsOp, RmsNormGradParamsOp>(op))
      ops.push_back(&op);
  OpBuilder builder(function.getContext());
  int64_t group = 0;
  for (Operation *operation : ops) {
    builder.setInsertionPoint(operation);
    TensorBuilder t{builder, operation->getLoc()};
    Operation *before = operation->getPrevNode();
    if (auto op = dyn_cast<LayerNormGradParamsOp>(operation)) {
      Type element = TensorBuilder::elementOf(op.getX());
      Value x = t.cast(op.getX(), wide(op.getX())), dy = t.cast(op.getDy(), wide(op.getX()));
      Value h = t.mul(t.sub(x, t.alongLast(op.getMean(), x)), t.alongLast(op.getRstd(), x));
      op.getDweight().replaceAllUsesWith(t.cast(t.sumLead(t.mul(dy, h)), element));
      op.getDbias().replaceAllUsesWith(t.cast(t.sumLead(dy), element));
    } else {
      auto rms = cast<RmsNormGradParamsOp>(operation);
      Value x = t.cast(rms.getX(), wide(rms.getX())), dy = t.cast(rms.getDy(), wide(rms.getX()));
      Value h = t.mul(x, t.alongLast(rms.getRrms(), x));
      rms.getDweight().replaceAllUsesWith(
          t.cast(t.sumLead(t.mul(dy, h)), TensorBuilder::elementOf(rms.getX())));
    }
    for (Operation *op = before ? before->getNextNode() : &function.getBody().front().front();
         op != operation; op = op->getNextNode())
      if (!isViewOp(op) && !isa<arith::ConstantOp>(op) &&
          TensorBuilder::typeOf(op->getResult(0)).getRank() > 1)
        op->setAttr(kGroupAttr, builder.getI64IntegerAttr(group));
      else if (isa<ReduceOp>(op))
        op->setAttr(kGroupAttr, builder.getI64IntegerAttr(group));
    ++group;
    operation->erase();
  }
}
