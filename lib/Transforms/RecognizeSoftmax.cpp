#include "Match.h"

#include "zorse/Transforms/Passes.h"

#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace zorse {
#define GEN_PASS_DEF_RECOGNIZESOFTMAX
#include "zorse/Transforms/Passes.h.inc"
} // namespace zorse

using namespace mlir;
using namespace zorse;

/// Returns the operand of a reduction over the last dimension, or null.
static Value matchReduction(Value value, ReduceKind kind) {
  while (value && isa_and_nonnull<ReshapeOp>(value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  auto reduce = value ? value.getDefiningOp<ReduceOp>() : ReduceOp();
  if (!reduce || reduce.getKind() != kind ||
      reduce.getDims() != ArrayRef<int64_t>{rankedType(reduce.getX()).getRank() - 1})
    return {};
  return reduce.getX();
}

/// Returns x if value = x - max(x).
static Value matchShifted(Value value) {
  auto sub = value.getDefiningOp<arith::SubFOp>();
  Value statistic = sub ? matchStatistic(sub.getRhs()) : Value();
  return statistic && matchReduction(statistic, ReduceKind::Max) == sub.getLhs() ? sub.getLhs()
                                                                                 : Value();
}

namespace {
/// exp(s) / sum(exp(s)) with s = x - max(x).
struct Softmax : OpRewritePattern<arith::DivFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::DivFOp op, PatternRewriter &rewriter) const override {
    Value statistic = matchStatistic(op.getRhs());
    auto exp = op.getLhs().getDefiningOp<math::ExpOp>();
    if (!statistic || !exp || matchReduction(statistic, ReduceKind::Sum) != exp.getResult())
      return failure();
    Value x = matchShifted(exp.getOperand());
    if (!x)
      return failure();
    rewriter.replaceOpWithNewOp<SoftmaxOp>(op, op.getType(), x);
    return success();
  }
};

/// s - log(sum(exp(s))) with s = x - max(x).
struct LogSoftmax : OpRewritePattern<arith::SubFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::SubFOp op, PatternRewriter &rewriter) const override {
    Value statistic = matchStatistic(op.getRhs());
    auto log = statistic ? statistic.getDefiningOp<math::LogOp>() : math::LogOp();
    Value exponentials = log ? matchReduction(log.getOperand(), ReduceKind::Sum) : Value();
    auto exp = exponentials ? exponentials.getDefiningOp<math::ExpOp>() : math::ExpOp();
    if (!exp || exp.getOperand() != op.getLhs())
      return failure();
    Value x = matchShifted(op.getLhs());
    if (!x)
      return failure();
    rewriter.replaceOpWithNewOp<LogSoftmaxOp>(op, op.getType(), x);
    return success();
  }
};

/// log(softmax(x)).
struct LogOfSoftmax : OpRewritePattern<math::LogOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::LogOp op, PatternRewriter &rewriter) const override {
    auto softmax = op.getOperand().getDefiningOp<SoftmaxOp>();
    if (!softmax)
      return failure();
    rewriter.replaceOpWithNewOp<LogSoftmaxOp>(op, op.getType(), softmax.getX());
    return success();
  }
};

struct RecognizeSoftmax : zorse::impl::RecognizeSoftmaxBase<RecognizeSoftmax> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<Softmax, LogSoftmax, LogOfSoftmax>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};
} // namespace
