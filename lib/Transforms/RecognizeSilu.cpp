#include "Match.h"

#include "zorse/Transforms/Passes.h"

#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace zorse {
#define GEN_PASS_DEF_RECOGNIZESILU
#include "zorse/Transforms/Passes.h.inc"
} // namespace zorse

using namespace mlir;
using namespace zorse;

namespace {
/// x * sigmoid(x).
struct ProductForm : OpRewritePattern<arith::MulFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::MulFOp op, PatternRewriter &rewriter) const override {
    for (int i = 0; i < 2; ++i) {
      Value x = op->getOperand(i);
      if (matchSigmoid(op->getOperand(1 - i)) != x)
        continue;
      rewriter.replaceOpWithNewOp<SiluOp>(op, x.getType(), x);
      return success();
    }
    return failure();
  }
};

/// x / (1 + exp(-x)).
struct QuotientForm : OpRewritePattern<arith::DivFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::DivFOp op, PatternRewriter &rewriter) const override {
    double one = 0;
    Value exponential = matchWithSplat<arith::AddFOp>(op.getRhs(), one);
    auto exp = exponential ? exponential.getDefiningOp<math::ExpOp>() : math::ExpOp();
    auto negation = exp ? exp.getOperand().getDefiningOp<arith::NegFOp>() : arith::NegFOp();
    if (!negation || one != 1.0 || negation.getOperand() != op.getLhs())
      return failure();
    rewriter.replaceOpWithNewOp<SiluOp>(op, op.getType(), op.getLhs());
    return success();
  }
};

struct RecognizeSilu : zorse::impl::RecognizeSiluBase<RecognizeSilu> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<ProductForm, QuotientForm>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};
} // namespace
