// Differentiation of arith operations on tensors.
#include "VjpBuilder.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::autodiff;
using arith::CmpFPredicate;

namespace {

LogicalResult addRule(arith::AddFOp, VjpBuilder &b) {
  b.set(0, b.gradient());
  b.set(1, b.gradient());
  return success();
}

LogicalResult subRule(arith::SubFOp, VjpBuilder &b) {
  b.set(0, b.gradient());
  if (b.needs(1))
    b.set(1, b.neg(b.gradient()));
  return success();
}

LogicalResult mulRule(arith::MulFOp op, VjpBuilder &b) {
  if (b.needs(0))
    b.set(0, b.mul(b.gradient(), op.getRhs()));
  if (b.needs(1))
    b.set(1, b.mul(b.gradient(), op.getLhs()));
  return success();
}

// y = a / c: da = dy / c, dc = -dy y / c.
LogicalResult divRule(arith::DivFOp op, VjpBuilder &b) {
  Value scaled = b.div(b.gradient(), op.getRhs());
  b.set(0, scaled);
  if (b.needs(1))
    b.set(1, b.neg(b.mul(scaled, op.getResult())));
  return success();
}

LogicalResult negRule(arith::NegFOp, VjpBuilder &b) {
  b.set(0, b.neg(b.gradient()));
  return success();
}

// y = a - trunc(a / c) c.
LogicalResult remRule(arith::RemFOp op, VjpBuilder &b) {
  b.set(0, b.gradient());
  if (b.needs(1)) {
    Value quotient = b.div(b.sub(op.getLhs(), op.getResult()), op.getRhs());
    b.set(1, b.neg(b.mul(b.gradient(), quotient)));
  }
  return success();
}

// The larger (smaller) operand receives dy. If one operand is a constant, the rule is that of
// PyTorch's relu, relu6, hardtanh and clamp (2.15 and later): 0 at the bound. Two equal computed
// values share dy equally, as in PyTorch's maximum.
template <typename OpT, bool isMax> LogicalResult extremumRule(OpT op, VjpBuilder &b) {
  Value dy = b.gradient(), zero = b.splat(dy, 0.0);
  for (unsigned i : {0u, 1u}) {
    if (!b.needs(i))
      continue;
    Value self = op->getOperand(i), other = op->getOperand(1 - i);
    CmpFPredicate strict = isMax ? CmpFPredicate::OGT : CmpFPredicate::OLT;
    Value otherwise = splatValue(other) ? zero
                                        : b.select(b.compare(CmpFPredicate::OEQ, self, other),
                                                   b.mul(dy, 0.5), zero);
    b.set(i, b.select(b.compare(strict, self, other), dy, otherwise));
  }
  return success();
}

LogicalResult selectRule(arith::SelectOp op, VjpBuilder &b) {
  Value dy = b.gradient();
  if (b.needs(1))
    b.set(1, b.select(op.getCondition(), dy, b.splat(dy, 0.0)));
  if (b.needs(2))
    b.set(2, b.select(op.getCondition(), b.splat(dy, 0.0), dy));
  return success();
}

LogicalResult extRule(arith::ExtFOp op, VjpBuilder &b) {
  b.set(0, b.create<arith::TruncFOp>(op.getIn().getType(), b.gradient()));
  return success();
}

LogicalResult truncRule(arith::TruncFOp op, VjpBuilder &b) {
  b.set(0, b.create<arith::ExtFOp>(op.getIn().getType(), b.gradient()));
  return success();
}

template <typename OpT, Rule<OpT> rule> void attach(MLIRContext *context) {
  OpT::template attachInterface<RuleModel<OpT, rule>>(*context);
}

} // namespace

void autodiff::registerArithModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, arith::ArithDialect *) {
    attach<arith::AddFOp, addRule>(context);
    attach<arith::SubFOp, subRule>(context);
    attach<arith::MulFOp, mulRule>(context);
    attach<arith::DivFOp, divRule>(context);
    attach<arith::NegFOp, negRule>(context);
    attach<arith::RemFOp, remRule>(context);
    attach<arith::MaximumFOp, extremumRule<arith::MaximumFOp, true>>(context);
    attach<arith::MaxNumFOp, extremumRule<arith::MaxNumFOp, true>>(context);
    attach<arith::MinimumFOp, extremumRule<arith::MinimumFOp, false>>(context);
    attach<arith::MinNumFOp, extremumRule<arith::MinNumFOp, false>>(context);
    attach<arith::SelectOp, selectRule>(context);
    attach<arith::ExtFOp, extRule>(context);
    attach<arith::TruncFOp, truncRule>(context);
  });
}
