#include "Match.h"

#include "zorse/Transforms/Passes.h"

#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

#include <cmath>

namespace zorse {
#define GEN_PASS_DEF_RECOGNIZEGELU
#include "zorse/Transforms/Passes.h.inc"
} // namespace zorse

using namespace mlir;
using namespace zorse;

/// Whether value = number * x.
static bool isScaled(Value value, Value x, double number) {
  Product product = flattenProduct(value);
  return product.factors.size() == 1 && product.factors[0] == x && isNear(product.scalar, number);
}

/// Whether value = x + 0.044715 x^3. If `factored`, x is factored out, and the caller has it as
/// another factor.
static bool isCubicSum(Value value, Value x, bool factored) {
  auto add = value.getDefiningOp<arith::AddFOp>();
  if (!add)
    return false;
  for (int i = 0; i < 2; ++i) {
    Value head = add->getOperand(i);
    bool headMatches = factored ? isNear(splatValue(head), 1.0) : head == x;
    if (!headMatches)
      continue;
    Product tail = flattenProduct(add->getOperand(1 - i));
    double expected = factored ? 2 : 3, power = 0;
    bool onlyPowers = true;
    // x^3 may be a power, x * x * x, or (x * x) * x with other uses of the square.
    SmallVector<Value> open(tail.factors.begin(), tail.factors.end());
    while (!open.empty() && onlyPowers) {
      Value factor = open.pop_back_val();
      if (factor == x) {
        power += 1;
      } else if (auto pow = factor.getDefiningOp<math::PowFOp>()) {
        onlyPowers = pow.getLhs() == x && splatValue(pow.getRhs());
        power += splatValue(pow.getRhs()).value_or(0);
      } else if (auto mul = factor.getDefiningOp<arith::MulFOp>()) {
        open.push_back(mul.getLhs());
        open.push_back(mul.getRhs());
      } else {
        onlyPowers = false;
      }
    }
    if (onlyPowers && power == expected && isNear(tail.scalar, 0.044715))
      return true;
  }
  return false;
}

/// Whether value = sqrt(2/pi) * (x + 0.044715 x^3).
static bool isTanhArgument(Value value, Value x) {
  Product product = flattenProduct(value);
  if (!isNear(product.scalar, std::sqrt(2 / M_PI)))
    return false;
  if (product.factors.size() == 1)
    return isCubicSum(product.factors[0], x, false);
  if (product.factors.size() != 2)
    return false;
  return (product.factors[0] == x && isCubicSum(product.factors[1], x, true)) ||
         (product.factors[1] == x && isCubicSum(product.factors[0], x, true));
}

namespace {
/// x/2 * (1 + erf(x / sqrt 2)) and x/2 * (1 + tanh(...)), in any association.
struct Gelu : OpRewritePattern<arith::MulFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::MulFOp op, PatternRewriter &rewriter) const override {
    Product product = flattenProduct(op);
    if (product.factors.size() != 2 || !isNear(product.scalar, 0.5))
      return failure();
    for (int i = 0; i < 2; ++i) {
      Value x = product.factors[i];
      double one = 0;
      Value bell = matchWithSplat<arith::AddFOp>(product.factors[1 - i], one);
      if (!bell || one != 1.0)
        continue;
      if (auto erf = bell.getDefiningOp<math::ErfOp>();
          erf && isScaled(erf.getOperand(), x, std::sqrt(0.5))) {
        rewriter.replaceOpWithNewOp<GeluOp>(op, x.getType(), x, false);
        return success();
      }
      if (auto tanh = bell.getDefiningOp<math::TanhOp>();
          tanh && isTanhArgument(tanh.getOperand(), x)) {
        rewriter.replaceOpWithNewOp<GeluOp>(op, x.getType(), x, true);
        return success();
      }
    }
    return failure();
  }
};

struct RecognizeGelu : zorse::impl::RecognizeGeluBase<RecognizeGelu> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<Gelu>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};
} // namespace
