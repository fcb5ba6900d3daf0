// Differentiation of products, reductions and indexed access.
#include "VjpBuilder.h"

#include <numeric>

using namespace mlir;
using namespace zorse;
using namespace zorse::autodiff;

namespace {

RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

Value swapLastTwo(VjpBuilder &b, Value x) {
  SmallVector<int64_t> permutation(typeOf(x).getRank());
  std::iota(permutation.begin(), permutation.end(), 0);
  std::swap(permutation[permutation.size() - 1], permutation[permutation.size() - 2]);
  return b.create<TransposeOp>(x, permutation);
}

// y = op(a) op(b). With a weight b, the gradient of a is a product with b, and the gradient of b is
// a contraction over all leading dimensions. If batched, both are products.
LogicalResult matmulRule(MatmulOp op, VjpBuilder &b) {
  Value a = op.getA(), w = op.getB(), dy = b.gradient();
  bool ta = op.getTransposeA(), tb = op.getTransposeB();
  bool weight = typeOf(w).getRank() == 2 && (typeOf(a).getRank() > 2 || typeOf(a).isDynamicDim(0));
  if (b.needs(1)) {
    if (weight) {
      Value rows = ta ? swapLastTwo(b, a) : a; // [lead..., K]
      b.set(1, tb ? b.create<MatmulGradWeightOp>(dy, rows).getResult()
                  : b.create<MatmulGradWeightOp>(rows, dy).getResult());
    } else {
      b.set(1,
            tb ? b.create<MatmulOp>(dy, a, /*transposeA=*/true, /*transposeB=*/ta).getResult()
               : b.create<MatmulOp>(a, dy, /*transposeA=*/!ta, /*transposeB=*/false).getResult());
    }
  }
  if (b.needs(0)) {
    if (!ta)
      b.set(0, b.create<MatmulOp>(dy, w, false, !tb));
    else if (weight)
      b.set(0, swapLastTwo(b, b.create<MatmulOp>(dy, w, false, !tb)));
    else
      b.set(0, b.create<MatmulOp>(w, dy, tb, true));
  }
  return success();
}

LogicalResult matmulGradWeightRule(MatmulGradWeightOp op, VjpBuilder &b) {
  if (b.needs(0))
    b.set(0, b.create<MatmulOp>(op.getB(), b.gradient(), false, true));
  if (b.needs(1))
    b.set(1, b.create<MatmulOp>(op.getA(), b.gradient(), false, false));
  return success();
}

LogicalResult gatherRule(GatherOp op, VjpBuilder &b) {
  b.set(0, b.create<ScatterAddOp>(op.getTable().getType(), op.getIndices(), b.gradient(),
                                  op.getPaddingAttr()));
  return success();
}

LogicalResult scatterAddRule(ScatterAddOp op, VjpBuilder &b) {
  Value rows = b.create<GatherOp>(b.gradient(), op.getIndices());
  if (op.getPadding()) { // updates of the padding row are discarded
    auto indices = cast<RankedTensorType>(op.getIndices().getType()),
         type = cast<RankedTensorType>(rows.getType());
    Value padding = createSplat(b.builder, b.loc, indices, static_cast<double>(*op.getPadding()));
    Value isPadding = b.create<arith::CmpIOp>(arith::CmpIPredicate::eq, op.getIndices(), padding);
    SmallVector<int64_t> dims = llvm::to_vector(llvm::seq<int64_t>(0, indices.getRank()));
    isPadding = b.create<BroadcastOp>(RankedTensorType::get(type.getShape(), b.builder.getI1Type()),
                                      isPadding, dims);
    rows = b.select(isPadding, b.splat(rows, 0.0), rows);
  }
  b.set(1, rows);
  return success();
}

LogicalResult takeAlongDimRule(TakeAlongDimOp op, VjpBuilder &b) {
  b.set(0, b.create<TakeAlongDimGradOp>(op.getX().getType(), b.gradient(), op.getIndices()));
  return success();
}

LogicalResult takeAlongDimGradRule(TakeAlongDimGradOp op, VjpBuilder &b) {
  b.set(0, b.create<TakeAlongDimOp>(b.gradient(), op.getIndices()));
  return success();
}

// Products of all other elements along the last dimension: prefix times suffix, each computed by
// doubling. Exact if elements are zero.
Value productOfOthers(VjpBuilder &b, Value x) {
  int64_t dim = typeOf(x).getRank() - 1, size = typeOf(x).getDimSize(dim);
  // Shifts elements by `count` along the last dimension, toward higher indices if `up`; fills with
  // 1.
  auto shift = [&](Value v, int64_t count, bool up) -> Value {
    SmallVector<int64_t> shape(typeOf(v).getShape());
    shape[dim] = std::min(count, size);
    Value ones = createSplat(b.builder, b.loc,
                             RankedTensorType::get(shape, typeOf(v).getElementType()), 1.0);
    if (count >= size)
      return ones;
    Value rest = b.create<SliceOp>(v, dim, up ? 0 : count, size - count);
    return up ? b.create<ConcatOp>(ValueRange{ones, rest}, dim)
              : b.create<ConcatOp>(ValueRange{rest, ones}, dim);
  };
  Value before = shift(x, 1, true), after = shift(x, 1, false);
  for (int64_t step = 1; step < size; step *= 2) {
    before = b.mul(before, shift(before, step, true));
    after = b.mul(after, shift(after, step, false));
  }
  return b.mul(before, after);
}

LogicalResult reduceRule(ReduceOp op, VjpBuilder &b) {
  Value x = op.getX(), y = op.getY(), dy = b.gradient();
  RankedTensorType type = typeOf(x);
  SmallVector<int64_t> kept;
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    if (!llvm::is_contained(op.getDims(), dim))
      kept.push_back(dim);
  auto spread = [&](Value v) -> Value {
    return op.getDims().empty() ? v : b.create<BroadcastOp>(type, v, kept).getResult();
  };

  switch (op.getKind()) {
  case ReduceKind::Sum:
    b.set(0, spread(dy));
    return success();
  case ReduceKind::Max:
  case ReduceKind::Min: {
    // Equal extrema share the gradient equally, as in PyTorch's amax.
    Value mask =
        b.create<arith::UIToFPOp>(type, b.compare(arith::CmpFPredicate::OEQ, x, spread(y)));
    Value count = b.create<ReduceOp>(mask, ReduceKind::Sum, op.getDims());
    b.set(0, b.mul(mask, spread(b.div(dy, count))));
    return success();
  }
  case ReduceKind::Prod: {
    if (llvm::any_of(op.getDims(), [&](int64_t dim) { return type.isDynamicDim(dim); }))
      return op.emitOpError("has no gradient: it multiplies over samples");
    // Move the reduced dimensions to the end and merge them.
    SmallVector<int64_t> order(kept);
    llvm::append_range(order, op.getDims());
    Value moved = b.create<TransposeOp>(x, order);
    SmallVector<int64_t> shape;
    for (int64_t dim : kept)
      shape.push_back(type.getDimSize(dim));
    int64_t size = 1;
    for (int64_t dim : op.getDims())
      size *= type.getDimSize(dim);
    shape.push_back(size);
    Value others = productOfOthers(b, b.create<ReshapeOp>(moved, shape));
    SmallVector<int64_t> inverse(order.size());
    for (auto [i, from] : llvm::enumerate(order))
      inverse[from] = i;
    Value back = b.create<TransposeOp>(type, b.create<ReshapeOp>(moved.getType(), others), inverse);
    b.set(0, b.mul(spread(dy), back));
    return success();
  }
  }
  return failure();
}

} // namespace

void autodiff::registerLinearModels(MLIRContext *context) {
  MatmulOp::attachInterface<RuleModel<MatmulOp, matmulRule>>(*context);
  MatmulGradWeightOp::attachInterface<RuleModel<MatmulGradWeightOp, matmulGradWeightRule>>(
      *context);
  GatherOp::attachInterface<RuleModel<GatherOp, gatherRule>>(*context);
  ScatterAddOp::attachInterface<RuleModel<ScatterAddOp, scatterAddRule>>(*context);
  TakeAlongDimOp::attachInterface<RuleModel<TakeAlongDimOp, takeAlongDimRule>>(*context);
  TakeAlongDimGradOp::attachInterface<RuleModel<TakeAlongDimGradOp, takeAlongDimGradRule>>(
      *context);
  ReduceOp::attachInterface<RuleModel<ReduceOp, reduceRule>>(*context);
}
