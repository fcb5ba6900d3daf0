#include "Match.h"

#include "zorse/Transforms/Passes.h"

#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace zorse {
#define GEN_PASS_DEF_RECOGNIZELAYERNORM
#include "zorse/Transforms/Passes.h.inc"
} // namespace zorse

using namespace mlir;
using namespace zorse;

namespace {
/// c * rsqrt(mean(c^2) + epsilon), or c / sqrt(...), with c = x - mean(x).
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
      double epsilon = 0;
      if (!sum || matchMeanSquarePlus(sum, epsilon) != scaled.x)
        continue;
      auto centred = scaled.x.getDefiningOp<arith::SubFOp>();
      Value mean = centred ? matchStatistic(centred.getRhs()) : Value();
      if (!mean || matchMean(mean) != centred.getLhs())
        continue;
      rewriter.replaceOpWithNewOp<LayerNormOp>(op, centred.getLhs(), Value(), Value(), epsilon);
      return success();
    }
    return failure();
  }
};

/// layer_norm(x) * weight or layer_norm(x) + bias. The norm must have no other use.
template <typename Op> struct Affine : OpRewritePattern<Op> {
  using OpRewritePattern<Op>::OpRewritePattern;
  LogicalResult matchAndRewrite(Op op, PatternRewriter &rewriter) const override {
    constexpr bool isWeight = std::is_same_v<Op, arith::MulFOp>;
    for (int i = 0; i < 2; ++i) {
      auto norm = op->getOperand(i).template getDefiningOp<LayerNormOp>();
      Value channels = matchChannels(op->getOperand(1 - i));
      // The weight precedes the bias, and each occurs at most once.
      if (!norm || !channels || norm.getBias() || (isWeight && norm.getWeight()) ||
          !norm.getStatistics().empty() || !norm.getY().hasOneUse())
        continue;
      rewriter.replaceOpWithNewOp<LayerNormOp>(
          op, norm.getX(), isWeight ? channels : norm.getWeight(), isWeight ? Value() : channels,
          norm.getEpsilon().convertToDouble());
      return success();
    }
    return failure();
  }
};

struct RecognizeLayerNorm : zorse::impl::RecognizeLayerNormBase<RecognizeLayerNorm> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<Normalise<arith::MulFOp>, Normalise<arith::DivFOp>, Affine<arith::MulFOp>,
                 Affine<arith::AddFOp>>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};
} // namespace
