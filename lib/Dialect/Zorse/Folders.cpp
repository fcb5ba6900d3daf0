// Exact folds and canonicalization patterns: they change no bit of any result.
#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace zorse;

//===----------------------------------------------------------------------===//
// Reshape
//===----------------------------------------------------------------------===//

OpFoldResult ReshapeOp::fold(FoldAdaptor adaptor) {
  if (getX().getType() == getType())
    return getX();
  if (auto constant = dyn_cast_or_null<DenseElementsAttr>(adaptor.getX()))
    return constant.reshape(cast<ShapedType>(getType()));
  return {};
}

namespace {
/// reshape(reshape(x)) is one reshape.
struct MergeReshapes : OpRewritePattern<ReshapeOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ReshapeOp op, PatternRewriter &rewriter) const override {
    auto inner = op.getX().getDefiningOp<ReshapeOp>();
    if (!inner)
      return failure();
    rewriter.replaceOpWithNewOp<ReshapeOp>(op, op.getType(), inner.getX());
    return success();
  }
};
} // namespace

void ReshapeOp::getCanonicalizationPatterns(RewritePatternSet &patterns, MLIRContext *context) {
  patterns.add<MergeReshapes>(context);
}

//===----------------------------------------------------------------------===//
// Transpose
//===----------------------------------------------------------------------===//

static bool isIdentity(ArrayRef<int64_t> permutation) {
  for (size_t i = 0; i < permutation.size(); ++i)
    if (permutation[i] != static_cast<int64_t>(i))
      return false;
  return true;
}

OpFoldResult TransposeOp::fold(FoldAdaptor adaptor) {
  if (isIdentity(getPermutation()))
    return getX();
  if (auto constant = dyn_cast_or_null<SplatElementsAttr>(adaptor.getX()))
    return constant.resizeSplat(cast<ShapedType>(getType()));
  return {};
}

namespace {
/// transpose(transpose(x)) is one transpose.
struct MergeTransposes : OpRewritePattern<TransposeOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(TransposeOp op, PatternRewriter &rewriter) const override {
    auto inner = op.getX().getDefiningOp<TransposeOp>();
    if (!inner)
      return failure();
    SmallVector<int64_t> permutation;
    for (int64_t dimension : op.getPermutation())
      permutation.push_back(inner.getPermutation()[dimension]);
    rewriter.replaceOpWithNewOp<TransposeOp>(op, inner.getX(), permutation);
    return success();
  }
};
} // namespace

void TransposeOp::getCanonicalizationPatterns(RewritePatternSet &patterns, MLIRContext *context) {
  patterns.add<MergeTransposes>(context);
}

//===----------------------------------------------------------------------===//
// Slice and concat
//===----------------------------------------------------------------------===//

OpFoldResult SliceOp::fold(FoldAdaptor adaptor) {
  // If the types are equal, offsets are 0, and strides other than 1 occur only in dimensions of
  // size 1, where they have no effect.
  if (getX().getType() == getType())
    return getX();
  if (auto constant = dyn_cast_or_null<SplatElementsAttr>(adaptor.getX()))
    return constant.resizeSplat(cast<ShapedType>(getType()));
  return {};
}

namespace {
/// slice(slice(x)) is one slice.
struct MergeSlices : OpRewritePattern<SliceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(SliceOp op, PatternRewriter &rewriter) const override {
    auto inner = op.getX().getDefiningOp<SliceOp>();
    if (!inner)
      return failure();
    SmallVector<int64_t> offsets, strides;
    for (size_t i = 0; i < op.getOffsets().size(); ++i) {
      offsets.push_back(inner.getOffsets()[i] + op.getOffsets()[i] * inner.getStrides()[i]);
      strides.push_back(inner.getStrides()[i] * op.getStrides()[i]);
    }
    rewriter.replaceOpWithNewOp<SliceOp>(op, inner.getX(), offsets, op.getSizes(), strides);
    return success();
  }
};
} // namespace

void SliceOp::getCanonicalizationPatterns(RewritePatternSet &patterns, MLIRContext *context) {
  patterns.add<MergeSlices>(context);
}

OpFoldResult ConcatOp::fold(FoldAdaptor) {
  return getXs().size() == 1 ? OpFoldResult(getXs().front()) : OpFoldResult();
}

//===----------------------------------------------------------------------===//
// Broadcast, reduce, dropout
//===----------------------------------------------------------------------===//

OpFoldResult BroadcastOp::fold(FoldAdaptor adaptor) {
  return getX().getType() == getType() ? OpFoldResult(getX()) : OpFoldResult();
}

namespace {
/// broadcast(broadcast(x)) is one broadcast.
struct MergeBroadcasts : OpRewritePattern<BroadcastOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(BroadcastOp op, PatternRewriter &rewriter) const override {
    auto inner = op.getX().getDefiningOp<BroadcastOp>();
    if (!inner)
      return failure();
    SmallVector<int64_t> dims;
    for (int64_t dimension : inner.getDims())
      dims.push_back(op.getDims()[dimension]);
    rewriter.replaceOpWithNewOp<BroadcastOp>(op, op.getType(), inner.getX(), dims);
    return success();
  }
};
} // namespace

void BroadcastOp::getCanonicalizationPatterns(RewritePatternSet &patterns, MLIRContext *context) {
  patterns.add<MergeBroadcasts>(context);
}

OpFoldResult ReduceOp::fold(FoldAdaptor) {
  return getDims().empty() ? OpFoldResult(getX()) : OpFoldResult();
}

OpFoldResult DetachOp::fold(FoldAdaptor) {
  return getX().getDefiningOp<DetachOp>() ? OpFoldResult(getX()) : OpFoldResult();
}

OpFoldResult RoundOp::fold(FoldAdaptor) {
  // The inner of two equal roundings remains. They must have the same gradient rule: a
  // straight-through inner rounding would otherwise lose the rounding of the gradient.
  auto inner = getX().getDefiningOp<RoundOp>();
  const bool isSame = inner && inner.getTo() == getTo() &&
                      inner.getStraightThrough() == getStraightThrough();
  return isSame && (inner.getPerOperator() || !getPerOperator()) ? OpFoldResult(getX())
                                                                 : OpFoldResult();
}

OpFoldResult DropoutOp::fold(FoldAdaptor) {
  return getProbability().isZero() ? OpFoldResult(getX()) : OpFoldResult();
}
