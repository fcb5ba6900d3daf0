#include "Match.h"

#include "zorse/Transforms/Passes.h"

#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

#include <cmath>

namespace zorse {
#define GEN_PASS_DEF_RECOGNIZERMSNORM
#include "zorse/Transforms/Passes.h.inc"
} // namespace zorse

using namespace mlir;
using namespace zorse;

/// If value = ratio * mean(y^2) + epsilon over the last dimension with ratio > 0, returns y;
/// otherwise null. The ratio differs from 1 if a scalar on x was merged with another factor
/// (Gemma's embedding scale).
static Value matchScaledSquares(Value value, double &ratio, double &epsilon) {
  ratio = 1;
  if (Value y = matchMeanSquarePlus(value, epsilon))
    return y;
  Value sum = matchWithSplat<arith::AddFOp>(value, epsilon);
  if (!sum || !(epsilon > 0) || !std::isfinite(epsilon))
    return {};
  Product product = flattenProduct(sum);
  auto reduce = product.factors.size() == 1 ? product.factors[0].getDefiningOp<ReduceOp>()
                                            : ReduceOp();
  if (!reduce || reduce.getKind() != ReduceKind::Sum)
    return {};
  RankedTensorType type = rankedType(reduce.getX());
  auto square = reduce.getX().getDefiningOp<arith::MulFOp>();
  if (reduce.getDims() != ArrayRef<int64_t>{type.getRank() - 1} ||
      type.isDynamicDim(type.getRank() - 1) || !square || square.getLhs() != square.getRhs())
    return {};
  ratio = product.scalar * type.getShape().back();
  return ratio > 0 && std::isfinite(ratio) ? square.getLhs() : Value();
}

namespace {
/// x * rsqrt(mean(x^2) + epsilon), or x / sqrt(...).
template <typename Op> struct Normalise : OpRewritePattern<Op> {
  using OpRewritePattern<Op>::OpRewritePattern;
  LogicalResult matchAndRewrite(Op op, PatternRewriter &rewriter) const override {
    for (const Scaled &scaled : matchScaledVectors(op)) {
      Value sum;
      if (scaled.reciprocal) {
        sum = matchReciprocalRoot(scaled.reciprocal);
      } else if (auto root = scaled.root.getDefiningOp<math::SqrtOp>()) {
        sum = root.getOperand();
      }
      double epsilon = 0, ratio = 1;
      if (!sum || matchScaledSquares(sum, ratio, epsilon) != scaled.x)
        continue;
      // 1/sqrt(ratio m + epsilon) = 1/sqrt(m + epsilon/ratio) / sqrt(ratio).
      Value norm =
          RmsNormOp::create(rewriter, op.getLoc(), scaled.x, Value(), epsilon / ratio).getY();
      if (!isNear(ratio, 1))
        norm = arith::MulFOp::create(
            rewriter, op.getLoc(), norm,
            createSplat(rewriter, op.getLoc(), rankedType(norm), 1 / std::sqrt(ratio)));
      rewriter.replaceOp(op, norm);
      return success();
    }
    return failure();
  }
};

/// rms_norm(x) * weight. The norm must have no other use. Scalars between them that cancel are
/// removed.
struct Weight : OpRewritePattern<arith::MulFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::MulFOp op, PatternRewriter &rewriter) const override {
    Product product = flattenProduct(op);
    bool cancels = isNear(product.scalar, 1);
    if (product.factors.size() == 1 && cancels && product.factors[0].getDefiningOp<RmsNormOp>()) {
      rewriter.replaceOp(op, product.factors[0]);
      return success();
    }
    if (product.factors.size() != 2)
      return failure();
    for (int i = 0; i < 2; ++i) {
      auto norm = product.factors[i].getDefiningOp<RmsNormOp>();
      Value weight = matchChannels(product.factors[1 - i]);
      if (!norm || !weight || norm.getWeight() || norm.getRrms() || !norm.getY().hasOneUse())
        continue;
      Value scaled = RmsNormOp::create(rewriter, op.getLoc(), norm.getX(), weight,
                                       norm.getEpsilon().convertToDouble())
                         .getY();
      if (!cancels)
        scaled = arith::MulFOp::create(
            rewriter, op.getLoc(), scaled,
            createSplat(rewriter, op.getLoc(), rankedType(scaled), product.scalar));
      rewriter.replaceOp(op, scaled);
      return success();
    }
    return failure();
  }
};

struct RecognizeRmsNorm : zorse::impl::RecognizeRmsNormBase<RecognizeRmsNorm> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<Normalise<arith::MulFOp>, Normalise<arith::DivFOp>, Weight>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};
} // namespace
