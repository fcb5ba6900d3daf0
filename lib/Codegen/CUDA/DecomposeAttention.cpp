// Expands attention to matrix products with a softmax between them. This works on every GPU,
// without tensor cores. Probabilities are in memory while the function runs. Nothing of size S x S'
// is saved for the backward, which recomputes the probabilities from the log-sum-exp. With H' key
// heads for H = g H' query heads, the g query heads that share a key head are contiguous and are
// treated as one head with g S positions.
#include "CudaEmitters.h"

#include "zorse/Dialect/Zorse/TensorBuilder.h"

#include <limits>

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

namespace {

class Attention {
public:
  template <typename Op>
  Attention(TensorBuilder &t, Op op)
      : t(t), options(op.getOptions()), mask(op.getMask()),
        element(TensorBuilder::elementOf(op.getQ())), wide(statisticElementType(element)) {
    auto q = TensorBuilder::typeOf(op.getQ()), k = TensorBuilder::typeOf(op.getK()),
         v = TensorBuilder::typeOf(op.getV());
    rows = q.getDimSize(0), queries = q.getDimSize(1), heads = q.getDimSize(2),
    size = q.getDimSize(3);
    keys = k.getDimSize(1), keyHeads = k.getDimSize(2), valueSize = v.getDimSize(3);
    group = heads / keyHeads;
    qs = grouped(op.getQ(), size);
    ks = byHead(op.getK());
    vs = byHead(op.getV());
    scores();
  }

  /// [?, S, heads, n] -> [?, heads, S, n]
  Value byHead(Value x) { return t.make<TransposeOp>(x, ArrayRef<int64_t>{0, 2, 1, 3}); }
  /// [?, S, H, n] -> [?, H', g S, n]
  Value grouped(Value x, int64_t n) {
    return t.reshape(byHead(x), {rows, keyHeads, group * queries, n});
  }
  /// [?, H', g S, n] -> [?, S, H, n]
  Value ungrouped(Value x, int64_t n) { return byHead(t.reshape(x, {rows, heads, queries, n})); }
  Value square(Value x) { return t.reshape(x, {rows, heads, queries, keys}); }
  Value tall(Value x) { return t.reshape(x, {rows, keyHeads, group * queries, keys}); }

  /// A product of operands in `element` that is accumulated and returned in f32 (f64 for f64).
  Value matmul(Value a, Value b, bool transposeA, bool transposeB) {
    auto type = MatmulOp::inferType(TensorBuilder::typeOf(a), TensorBuilder::typeOf(b), transposeA,
                                    transposeB);
    return MatmulOp::create(t.b, t.loc, RankedTensorType::get(type.getShape(), wide), a, b,
                            transposeA, transposeB);
  }
  Value narrow(Value x) { return t.cast(x, element); }

  Value infinite(Value like) { return t.splat(like, -std::numeric_limits<double>::infinity()); }

  void scores() {
    s = t.scale(square(matmul(qs, ks, false, true)), options.scale);
    if (options.softcap) {
      bent = t.tanh(t.scale(s, 1 / *options.softcap));
      s = t.scale(bent, *options.softcap);
    }
    auto everywhere = [&](Value x, ArrayRef<int64_t> dims) -> Value {
      auto type =
          RankedTensorType::get(TensorBuilder::typeOf(s).getShape(), TensorBuilder::elementOf(x));
      return t.make<BroadcastOp>(type, x, dims);
    };
    if (options.causal) {
      auto type = RankedTensorType::get({queries, keys}, t.b.getI1Type());
      Value visible = CausalMaskOp::create(
          t.b, t.loc, type, options.window ? t.b.getI64IntegerAttr(*options.window) : IntegerAttr(),
          FloatAttr());
      s = t.select(everywhere(visible, {2, 3}), s, infinite(s));
    }
    if (!mask)
      return;
    // Dimensions of size 1 are broadcast.
    auto type = TensorBuilder::typeOf(mask);
    SmallVector<int64_t> shape, dims;
    for (int64_t dim = 0; dim < 4; ++dim)
      if (dim >= 2 || type.getDimSize(dim) != 1) {
        shape.push_back(type.getDimSize(dim));
        dims.push_back(dim);
      }
    Value all = everywhere(t.reshape(mask, shape), dims);
    s = type.getElementType().isInteger(1) ? t.select(all, s, infinite(s))
                                           : t.add(s, t.cast(all, wide));
  }

  Value dropped(Value x) {
    if (options.dropout == 0)
      return x;
    auto type = cast<RankedTensorType>(x.getType()); // heads first, then queries and keys
    const SmallVector<int64_t, 6> strides = denseLayout(type).strides;
    SmallVector<int64_t> element{options.firstHead * type.getDimSize(type.getRank() - 2) *
                                 type.getDimSize(type.getRank() - 1)};
    element.append(strides.begin(), strides.end());
    return DropoutOp::create(t.b, t.loc, x, options.dropout, options.rngId, element);
  }

  /// Recomputes the probabilities from the statistics that the forward saved.
  Value probabilities(Value statistics) {
    const bool pairs = isAddedMask(mask);
    Value reference = pairs ? t.element(statistics, 0) : statistics;
    Value finite = t.select(isHidden(reference), t.splat(reference, 0), reference);
    Value e = t.exp(t.sub(s, t.alongLast(finite, s)));
    if (!pairs)
      return e;
    Value sum = t.element(statistics, 1), one = t.splat(sum, 1),
          nothing = t.make<arith::CmpFOp>(arith::CmpFPredicate::OEQ, sum, t.splat(sum, 0));
    return t.mul(e, t.alongLast(t.div(one, t.select(nothing, one, sum)), e));
  }

  Value isHidden(Value statistic) {
    return t.make<arith::CmpFOp>(arith::CmpFPredicate::OEQ, statistic, infinite(statistic));
  }

  TensorBuilder &t;
  AttentionOptions options;
  Value mask;
  Type element, wide;
  int64_t rows, queries, heads, size, keys, keyHeads, valueSize, group;
  Value qs, ks, vs;
  Value s, bent; ///< scores; and result of softcap's tanh, before the mask
};

void expand(TensorBuilder &t, AttentionOp op) {
  Attention a(t, op);
  Value greatest = t.reduceLast(a.s, ReduceKind::Max);
  // A query that attends to no key has zeros.
  greatest = t.select(a.isHidden(greatest), t.splat(greatest, 0), greatest);
  Value e = t.exp(t.sub(a.s, t.alongLast(greatest, a.s)));
  Value sum = t.sumLast(e);
  Value nothing = t.make<arith::CmpFOp>(arith::CmpFPredicate::OEQ, sum, t.splat(sum, 0));
  Value one = t.splat(sum, 1);
  Value inverse = t.select(nothing, t.splat(sum, 0), t.div(one, t.select(nothing, one, sum)));
  Value p = a.dropped(t.mul(e, t.alongLast(inverse, e)));
  Value out = a.ungrouped(a.matmul(a.tall(a.narrow(p)), a.vs, false, false), a.valueSize);
  op.getOut().replaceAllUsesWith(t.cast(out, TensorBuilder::elementOf(op.getOut())));
  if (Value lse = op.getLse(); lse && isAddedMask(op.getMask())) {
    lse.replaceAllUsesWith(t.join(t.select(nothing, a.infinite(greatest), greatest), sum));
  } else if (lse) {
    Value logarithm = t.add(t.log(t.select(nothing, one, sum)), greatest);
    lse.replaceAllUsesWith(t.select(nothing, a.infinite(logarithm), logarithm));
  }
}

void expand(TensorBuilder &t, AttentionGradOp op) {
  Attention a(t, op);
  Value p = a.probabilities(op.getLse());
  Value dout = a.grouped(op.getDout(), a.valueSize);
  Value dv = a.matmul(a.tall(a.narrow(a.dropped(p))), dout, true, false);
  Value dp = a.dropped(a.square(a.matmul(dout, a.vs, false, true)));
  // [?, S, H].
  Value delta = t.sumLast(t.mul(t.cast(op.getDout(), a.wide), t.cast(op.getOut(), a.wide)));
  delta = t.make<TransposeOp>(delta, ArrayRef<int64_t>{0, 2, 1});
  Value ds = t.mul(p, t.sub(dp, t.alongLast(delta, p)));
  if (a.bent)
    ds = t.mul(ds, t.sub(t.splat(ds, 1), t.mul(a.bent, a.bent)));
  ds = a.tall(a.narrow(t.scale(ds, a.options.scale)));
  auto give = [&](Value result, Value found) {
    result.replaceAllUsesWith(t.cast(found, TensorBuilder::elementOf(result)));
  };
  give(op.getDq(), a.ungrouped(a.matmul(ds, a.ks, false, false), a.size));
  give(op.getDk(), a.byHead(a.matmul(ds, a.qs, true, false)));
  give(op.getDv(), a.byHead(dv));
}

} // namespace

LogicalResult cuda::decomposeAttention(func::FuncOp function,
                                       function_ref<bool(Operation *)> stays) {
  SmallVector<Operation *> ops;
  for (Operation &op : function.getBody().front())
    if (isa<AttentionOp, AttentionGradOp>(op) && !(stays && stays(&op)))
      ops.push_back(&op);
  OpBuilder builder(function.getContext());
  for (Operation *op : ops) {
    builder.setInsertionPoint(op);
    TensorBuilder t{builder, op->getLoc()};
    if (auto forward = dyn_cast<AttentionOp>(op))
      expand(t, forward);
    else
      expand(t, cast<AttentionGradOp>(op));
    op->erase();
  }
  return success();
}
