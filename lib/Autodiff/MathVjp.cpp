// Differentiation of math operations on tensors.
#include "VjpBuilder.h"

#include "mlir/Dialect/Math/IR/Math.h"

#include <cmath>

using namespace mlir;
using namespace zorse;
using namespace zorse::autodiff;
using arith::CmpFPredicate;

namespace {

constexpr double kLn2 = 0.693147180559945309417232121458;
constexpr double kLn10 = 2.302585092994045684017991454684;
constexpr double kTwoOverSqrtPi = 1.128379167095512573896158903122;

/// A rule for y = f(x) that returns dy f'(x).
using UnaryDerivative = Value (*)(VjpBuilder &b, Value dy, Value x, Value y);

template <typename OpT, UnaryDerivative derivative> LogicalResult unaryRule(OpT op, VjpBuilder &b) {
  b.set(0, derivative(b, b.gradient(), op->getOperand(0), VjpBuilder::asRead(op->getResult(0))));
  return success();
}

Value one(VjpBuilder &b, Value like) { return b.splat(like, 1.0); }
Value oneMinusSquare(VjpBuilder &b, Value v) { return b.sub(one(b, v), b.mul(v, v)); }
Value onePlusSquare(VjpBuilder &b, Value v) { return b.add(b.mul(v, v), 1.0); }
template <typename OpT> Value apply(VjpBuilder &b, Value v) { return b.create<OpT>(v); }

Value dExp(VjpBuilder &b, Value dy, Value, Value y) { return b.mul(dy, y); }
Value dExp2(VjpBuilder &b, Value dy, Value, Value y) { return b.mul(b.mul(dy, y), kLn2); }
Value dExpM1(VjpBuilder &b, Value dy, Value, Value y) { return b.mul(dy, b.add(y, 1.0)); }
Value dLog(VjpBuilder &b, Value dy, Value x, Value) { return b.div(dy, x); }
Value dLog2(VjpBuilder &b, Value dy, Value x, Value) { return b.mul(b.div(dy, x), 1.0 / kLn2); }
Value dLog10(VjpBuilder &b, Value dy, Value x, Value) { return b.mul(b.div(dy, x), 1.0 / kLn10); }
Value dLog1p(VjpBuilder &b, Value dy, Value x, Value) { return b.div(dy, b.add(x, 1.0)); }
Value dSqrt(VjpBuilder &b, Value dy, Value, Value y) { return b.div(b.mul(dy, 0.5), y); }
Value dRsqrt(VjpBuilder &b, Value dy, Value, Value y) {
  return b.mul(b.mul(dy, -0.5), b.mul(y, b.mul(y, y)));
}
Value dCbrt(VjpBuilder &b, Value dy, Value, Value y) {
  return b.div(b.mul(dy, 1.0 / 3.0), b.mul(y, y));
}
Value dTanh(VjpBuilder &b, Value dy, Value, Value y) { return b.mul(dy, oneMinusSquare(b, y)); }
Value dErf(VjpBuilder &b, Value dy, Value x, Value) {
  return b.mul(b.mul(dy, apply<math::ExpOp>(b, b.neg(b.mul(x, x)))), kTwoOverSqrtPi);
}
Value dErfc(VjpBuilder &b, Value dy, Value x, Value y) { return b.neg(dErf(b, dy, x, y)); }
Value dSin(VjpBuilder &b, Value dy, Value x, Value) { return b.mul(dy, apply<math::CosOp>(b, x)); }
Value dCos(VjpBuilder &b, Value dy, Value x, Value) {
  return b.neg(b.mul(dy, apply<math::SinOp>(b, x)));
}
Value dTan(VjpBuilder &b, Value dy, Value, Value y) { return b.mul(dy, onePlusSquare(b, y)); }
Value dAsin(VjpBuilder &b, Value dy, Value x, Value) {
  return b.mul(dy, apply<math::RsqrtOp>(b, oneMinusSquare(b, x)));
}
Value dAcos(VjpBuilder &b, Value dy, Value x, Value y) { return b.neg(dAsin(b, dy, x, y)); }
Value dAtan(VjpBuilder &b, Value dy, Value x, Value) { return b.div(dy, onePlusSquare(b, x)); }
Value dSinh(VjpBuilder &b, Value dy, Value x, Value) {
  return b.mul(dy, apply<math::CoshOp>(b, x));
}
Value dCosh(VjpBuilder &b, Value dy, Value x, Value) {
  return b.mul(dy, apply<math::SinhOp>(b, x));
}
Value dAsinh(VjpBuilder &b, Value dy, Value x, Value) {
  return b.mul(dy, apply<math::RsqrtOp>(b, onePlusSquare(b, x)));
}
Value dAcosh(VjpBuilder &b, Value dy, Value x, Value) {
  return b.mul(dy, apply<math::RsqrtOp>(b, b.add(b.mul(x, x), -1.0)));
}
Value dAtanh(VjpBuilder &b, Value dy, Value x, Value) { return b.div(dy, oneMinusSquare(b, x)); }
Value dAbs(VjpBuilder &b, Value dy, Value x, Value) {
  Value zero = b.splat(x, 0.0);
  Value negative = b.select(b.compare(CmpFPredicate::OLT, x, zero), b.neg(dy), zero);
  return b.select(b.compare(CmpFPredicate::OGT, x, zero), dy, negative);
}

// y = x^p: dx = dy p x^(p-1), dp = dy y log x (0 if x = 0, as in PyTorch). Small constant exponents
// avoid a power.
LogicalResult powRule(math::PowFOp op, VjpBuilder &b) {
  Value x = op.getLhs(), p = op.getRhs(), dy = b.gradient();
  if (b.needs(0)) {
    std::optional<double> exponent = splatValue(p);
    if (exponent && *exponent == 0.0)
      b.set(0, Value());
    else if (exponent && *exponent == 1.0)
      b.set(0, dy);
    else if (exponent && *exponent == 2.0)
      b.set(0, b.mul(b.mul(dy, x), 2.0));
    else if (exponent && *exponent == 3.0)
      b.set(0, b.mul(b.mul(dy, b.mul(x, x)), 3.0));
    else
      b.set(0, b.mul(b.mul(dy, p), b.create<math::PowFOp>(x, b.add(p, -1.0))));
  }
  if (b.needs(1)) {
    Value zero = b.splat(x, 0.0);
    Value slope = b.mul(op.getResult(), apply<math::LogOp>(b, x));
    b.set(1, b.mul(dy, b.select(b.compare(CmpFPredicate::OEQ, x, zero), zero, slope)));
  }
  return success();
}

LogicalResult powIntegerRule(math::FPowIOp op, VjpBuilder &b) {
  Value x = op.getLhs(), p = op.getRhs();
  auto integers = cast<RankedTensorType>(p.getType());
  Value lower = b.create<arith::SubIOp>(p, createSplat(b.builder, b.loc, integers, 1.0));
  Value factor = b.create<arith::SIToFPOp>(x.getType(), p);
  b.set(0, b.mul(b.mul(b.gradient(), factor), b.create<math::FPowIOp>(x, lower)));
  return success();
}

LogicalResult atan2Rule(math::Atan2Op op, VjpBuilder &b) {
  Value y = op.getLhs(), x = op.getRhs();
  Value scaled = b.div(b.gradient(), b.add(b.mul(x, x), b.mul(y, y)));
  if (b.needs(0))
    b.set(0, b.mul(scaled, x));
  if (b.needs(1))
    b.set(1, b.neg(b.mul(scaled, y)));
  return success();
}

LogicalResult fmaRule(math::FmaOp op, VjpBuilder &b) {
  if (b.needs(0))
    b.set(0, b.mul(b.gradient(), op.getB()));
  if (b.needs(1))
    b.set(1, b.mul(b.gradient(), op.getA()));
  b.set(2, b.gradient());
  return success();
}

// y = |a| sign(c): the sign operand has gradient zero.
LogicalResult copySignRule(math::CopySignOp op, VjpBuilder &b) {
  Value signOfA = b.create<math::CopySignOp>(one(b, op.getLhs()), op.getLhs());
  Value signOfC = b.create<math::CopySignOp>(one(b, op.getLhs()), op.getRhs());
  b.set(0, b.mul(b.gradient(), b.mul(signOfA, signOfC)));
  return success();
}

template <typename OpT, UnaryDerivative derivative> void attachUnary(MLIRContext *context) {
  OpT::template attachInterface<RuleModel<OpT, unaryRule<OpT, derivative>>>(*context);
}

template <typename... OpTs> void attachZero(MLIRContext *context) {
  (OpTs::template attachInterface<ZeroModel<OpTs>>(*context), ...);
}

} // namespace

void autodiff::registerMathModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, math::MathDialect *) {
    attachUnary<math::ExpOp, dExp>(context);
    attachUnary<math::Exp2Op, dExp2>(context);
    attachUnary<math::ExpM1Op, dExpM1>(context);
    attachUnary<math::LogOp, dLog>(context);
    attachUnary<math::Log2Op, dLog2>(context);
    attachUnary<math::Log10Op, dLog10>(context);
    attachUnary<math::Log1pOp, dLog1p>(context);
    attachUnary<math::SqrtOp, dSqrt>(context);
    attachUnary<math::RsqrtOp, dRsqrt>(context);
    attachUnary<math::CbrtOp, dCbrt>(context);
    attachUnary<math::TanhOp, dTanh>(context);
    attachUnary<math::ErfOp, dErf>(context);
    attachUnary<math::ErfcOp, dErfc>(context);
    attachUnary<math::SinOp, dSin>(context);
    attachUnary<math::CosOp, dCos>(context);
    attachUnary<math::TanOp, dTan>(context);
    attachUnary<math::AsinOp, dAsin>(context);
    attachUnary<math::AcosOp, dAcos>(context);
    attachUnary<math::AtanOp, dAtan>(context);
    attachUnary<math::SinhOp, dSinh>(context);
    attachUnary<math::CoshOp, dCosh>(context);
    attachUnary<math::AsinhOp, dAsinh>(context);
    attachUnary<math::AcoshOp, dAcosh>(context);
    attachUnary<math::AtanhOp, dAtanh>(context);
    attachUnary<math::AbsFOp, dAbs>(context);
    math::PowFOp::attachInterface<RuleModel<math::PowFOp, powRule>>(*context);
    math::FPowIOp::attachInterface<RuleModel<math::FPowIOp, powIntegerRule>>(*context);
    math::Atan2Op::attachInterface<RuleModel<math::Atan2Op, atan2Rule>>(*context);
    math::FmaOp::attachInterface<RuleModel<math::FmaOp, fmaRule>>(*context);
    math::CopySignOp::attachInterface<RuleModel<math::CopySignOp, copySignRule>>(*context);
    attachZero<math::FloorOp, math::CeilOp, math::RoundOp, math::RoundEvenOp, math::TruncOp>(
        context);
  });
}
