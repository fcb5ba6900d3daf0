#include "Match.h"

#include "zorse/Transforms/Passes.h"

#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace zorse {
#define GEN_PASS_DEF_RECOGNIZECROSSENTROPY
#include "zorse/Transforms/Passes.h.inc"
} // namespace zorse

using namespace mlir;
using namespace zorse;

namespace {
/// take_along_dim(log_softmax(logits), labels) is the negative cross-entropy. The negation usually
/// folds with another one.
struct TakeAlongDim : OpRewritePattern<TakeAlongDimOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(TakeAlongDimOp op, PatternRewriter &rewriter) const override {
    auto logarithm = op.getX().getDefiningOp<LogSoftmaxOp>();
    // In lower precision than the loss, fusion would change the casts, so the parts remain.
    if (!logarithm || statisticElementType(rankedType(op.getX()).getElementType()) !=
                          rankedType(op.getX()).getElementType())
      return failure();
    Value loss = CrossEntropyOp::create(rewriter, op.getLoc(), logarithm.getX(), op.getIndices(),
                                        Value(), std::nullopt)
                     .getLoss();
    rewriter.replaceOpWithNewOp<arith::NegFOp>(op, loss);
    return success();
  }
};

/// Returns the `labels` from which a select made safe ids: labels == c ? safe : labels, or labels
/// != c ? labels : safe.
static Value unsafeLabels(Value condition, Value ids, int64_t &ignored, bool &conditionMeansKept) {
  auto compare = condition.getDefiningOp<arith::CmpIOp>();
  if (!compare || (compare.getPredicate() != arith::CmpIPredicate::ne &&
                   compare.getPredicate() != arith::CmpIPredicate::eq))
    return {};
  std::optional<double> constant = splatValue(compare.getRhs());
  Value labels = compare.getLhs();
  if (!constant) {
    constant = splatValue(compare.getLhs());
    labels = compare.getRhs();
  }
  if (!constant)
    return {};
  ignored = static_cast<int64_t>(*constant);
  conditionMeansKept = compare.getPredicate() == arith::CmpIPredicate::ne;
  if (ids == labels)
    return labels;
  auto select = ids.getDefiningOp<arith::SelectOp>();
  if (!select)
    return {};
  // The select may have a separate comparison, which must be equal.
  auto own = select.getCondition().getDefiningOp<arith::CmpIOp>();
  if (!own)
    return {};
  bool keepsWhenTrue = own.getPredicate() == arith::CmpIPredicate::ne;
  bool compares = (keepsWhenTrue || own.getPredicate() == arith::CmpIPredicate::eq) &&
                  ((own.getLhs() == labels && splatValue(own.getRhs()) == *constant) ||
                   (own.getRhs() == labels && splatValue(own.getLhs()) == *constant));
  Value kept = keepsWhenTrue ? select.getTrueValue() : select.getFalseValue();
  return compares && kept == labels ? labels : Value();
}

/// select(labels != c, cross_entropy(logits, safe labels), 0) is a cross-entropy that ignores c.
struct Ignore : OpRewritePattern<arith::SelectOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::SelectOp op, PatternRewriter &rewriter) const override {
    for (bool lossWhenTrue : {true, false}) {
      Value lossValue = lossWhenTrue ? op.getTrueValue() : op.getFalseValue(),
            zero = lossWhenTrue ? op.getFalseValue() : op.getTrueValue();
      auto negation = lossValue.getDefiningOp<arith::NegFOp>();
      auto loss = (negation ? negation.getOperand() : lossValue).getDefiningOp<CrossEntropyOp>();
      if (!loss || loss.getIgnoreIndexAttr() || loss.getStatistics() || splatValue(zero) != 0.0)
        continue;
      int64_t ignored = 0;
      bool kept = false;
      Value labels = unsafeLabels(op.getCondition(), loss.getLabels(), ignored, kept);
      if (!labels || kept != lossWhenTrue)
        continue;
      Value result = CrossEntropyOp::create(rewriter, op.getLoc(), loss.getLogits(), labels,
                                            loss.getWeights(), ignored)
                         .getLoss();
      if (negation)
        result = arith::NegFOp::create(rewriter, op.getLoc(), result);
      rewriter.replaceOp(op, result);
      return success();
    }
    return failure();
  }
};

struct RecognizeCrossEntropy : zorse::impl::RecognizeCrossEntropyBase<RecognizeCrossEntropy> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<TakeAlongDim, Ignore>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};
} // namespace
