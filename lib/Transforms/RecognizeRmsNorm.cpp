#include "Match.h"

#include "zorse/Transforms/Passes.h"

#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace zorse {
#define GEN_PASS_DEF_RECOGNIZERMSNORM
#include "zorse/Transforms/Passes.h.inc"
} // namespace zorse

using namespace mlir;
using namespace zorse;

namespace {
/// x * rsqrt(mean(x^2) + epsilon), or x / sqrt(...).
template <typename Op>
struct Normalise : OpRewritePattern<Op> {
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
      rewriter.replaceOpWithNewOp<RmsNormOp>(op, scaled.x, Value(), epsilon);
      return success();
    }
    return failure();
  }
};

/// rms_norm(x) * gain, where only the product uses the norm.
struct Gain : OpRewritePattern<arith::MulFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::MulFOp op, PatternRewriter &rewriter) const override {
    for (int i = 0; i < 2; ++i) {
      auto norm = op->getOperand(i).getDefiningOp<RmsNormOp>();
      Value gain = matchChannels(op->getOperand(1 - i));
      if (!norm || !gain || norm.getGain() || norm.getRrms() || !norm.getY().hasOneUse())
        continue;
      rewriter.replaceOpWithNewOp<RmsNormOp>(op, norm.getX(), gain, norm.getEpsilon().convertToDouble());
      return success();
    }
    return failure();
  }
};

struct RecognizeRmsNorm : zorse::impl::RecognizeRmsNormBase<RecognizeRmsNorm> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<Normalise<arith::MulFOp>, Normalise<arith::DivFOp>, Gain>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};
} // namespace
