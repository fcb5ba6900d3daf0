#include "zorse/Support/ReferenceEvaluator.h"

#include "ReferenceLoops.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cmath>
#include <functional>

using namespace mlir;
using namespace zorse::reference;

Tensor Tensor::filled(std::vector<int64_t> shape, double value) {
  Tensor tensor{std::move(shape), {}};
  tensor.values.assign(product(tensor.shape), value);
  return tensor;
}

namespace {

FailureOr<Tensor> constantTensor(Operation *op, ElementsAttr value) {
  Tensor tensor{std::vector<int64_t>(value.getShapedType().getShape()), {}};
  Type element = value.getElementType();
  if (auto dense = dyn_cast<DenseElementsAttr>(value)) {
    if (isa<FloatType>(element))
      for (const APFloat &v : dense.getValues<APFloat>()) {
        APFloat wide = v;
        bool lost;
        wide.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &lost);
        tensor.values.push_back(wide.convertToDouble());
      }
    else
      for (const APInt &v : dense.getValues<APInt>())
        tensor.values.push_back(v.getBitWidth() == 1 ? double(v.getZExtValue())
                                                     : double(v.getSExtValue()));
    return tensor;
  }
  auto resource = dyn_cast<DenseResourceElementsAttr>(value);
  AsmResourceBlob *blob = resource ? resource.getRawHandle().getBlob() : nullptr;
  if (!blob)
    return op->emitOpError("expects a dense constant");
  auto read = [&](auto zero) {
    using T = decltype(zero);
    for (T v : blob->getDataAs<T>())
      tensor.values.push_back(double(v));
  };
  if (element.isF32())
    read(float());
  else if (element.isF64())
    read(double());
  else if (element.isInteger(64))
    read(int64_t());
  else if (element.isInteger(32))
    read(int32_t());
  else if (element.isInteger(1))
    read(uint8_t());
  else
    return op->emitOpError("expects a constant of f32, f64, i64, i32 or i1");
  return tensor;
}

bool compareFloats(arith::CmpFPredicate predicate, double a, double b) {
  using P = arith::CmpFPredicate;
  bool unordered = std::isnan(a) || std::isnan(b);
  switch (predicate) {
  case P::AlwaysFalse:
    return false;
  case P::AlwaysTrue:
    return true;
  case P::ORD:
    return !unordered;
  case P::UNO:
    return unordered;
  case P::OEQ:
    return a == b;
  case P::OGT:
    return a > b;
  case P::OGE:
    return a >= b;
  case P::OLT:
    return a < b;
  case P::OLE:
    return a <= b;
  case P::ONE:
    return !unordered && a != b;
  case P::UEQ:
    return unordered || a == b;
  case P::UGT:
    return unordered || a > b;
  case P::UGE:
    return unordered || a >= b;
  case P::ULT:
    return unordered || a < b;
  case P::ULE:
    return unordered || a <= b;
  case P::UNE:
    return unordered || a != b;
  }
  return false;
}

bool compareIntegers(arith::CmpIPredicate predicate, double a, double b) {
  using P = arith::CmpIPredicate;
  switch (predicate) {
  case P::eq:
    return a == b;
  case P::ne:
    return a != b;
  case P::slt:
  case P::ult:
    return a < b;
  case P::sle:
  case P::ule:
    return a <= b;
  case P::sgt:
  case P::ugt:
    return a > b;
  case P::sge:
  case P::uge:
    return a >= b;
  }
  return false;
}

using Scalars = ArrayRef<double>;
using Function = std::function<double(Scalars)>;

double maximum(double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b); }
double minimum(double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b); }
int64_t integer(double v) { return int64_t(v); }

/// Returns the scalar function of an elementwise operation; empty if the op is not elementwise.
Function arithFunction(Operation *op) {
  bool boolean = op->getNumResults() &&
                 getElementTypeOrSelf(op->getResult(0).getType()).isInteger(1);
  return TypeSwitch<Operation *, Function>(op)
      .Case<arith::AddFOp, arith::AddIOp>(
          [](auto) { return [](Scalars v) { return v[0] + v[1]; }; })
      .Case<arith::SubFOp, arith::SubIOp>(
          [](auto) { return [](Scalars v) { return v[0] - v[1]; }; })
      .Case<arith::MulFOp, arith::MulIOp>(
          [](auto) { return [](Scalars v) { return v[0] * v[1]; }; })
      .Case<arith::DivFOp>([](auto) { return [](Scalars v) { return v[0] / v[1]; }; })
      .Case<arith::DivSIOp, arith::DivUIOp>([](auto) {
        return [](Scalars v) { return v[1] == 0 ? 0.0 : double(integer(v[0]) / integer(v[1])); };
      })
      .Case<arith::FloorDivSIOp>(
          [](auto) { return [](Scalars v) { return v[1] == 0 ? 0.0 : std::floor(v[0] / v[1]); }; })
      .Case<arith::RemSIOp, arith::RemUIOp>([](auto) {
        return [](Scalars v) { return v[1] == 0 ? 0.0 : double(integer(v[0]) % integer(v[1])); };
      })
      .Case<arith::RemFOp>([](auto) { return [](Scalars v) { return std::fmod(v[0], v[1]); }; })
      .Case<arith::NegFOp>([](auto) { return [](Scalars v) { return -v[0]; }; })
      .Case<arith::MaximumFOp, arith::MaxSIOp, arith::MaxUIOp>(
          [](auto) { return [](Scalars v) { return maximum(v[0], v[1]); }; })
      .Case<arith::MinimumFOp, arith::MinSIOp, arith::MinUIOp>(
          [](auto) { return [](Scalars v) { return minimum(v[0], v[1]); }; })
      .Case<arith::MaxNumFOp>([](auto) { return [](Scalars v) { return std::fmax(v[0], v[1]); }; })
      .Case<arith::MinNumFOp>([](auto) { return [](Scalars v) { return std::fmin(v[0], v[1]); }; })
      .Case<arith::AndIOp>(
          [](auto) { return [](Scalars v) { return double(integer(v[0]) & integer(v[1])); }; })
      .Case<arith::OrIOp>(
          [](auto) { return [](Scalars v) { return double(integer(v[0]) | integer(v[1])); }; })
      .Case<arith::XOrIOp>([boolean](auto) {
        return [boolean](Scalars v) {
          return boolean ? double((v[0] != 0) != (v[1] != 0))
                         : double(integer(v[0]) ^ integer(v[1]));
        };
      })
      .Case<arith::SelectOp>([](auto) { return [](Scalars v) { return v[0] != 0 ? v[1] : v[2]; }; })
      .Case<arith::CmpFOp>([](arith::CmpFOp cmp) {
        return [p = cmp.getPredicate()](Scalars v) { return double(compareFloats(p, v[0], v[1])); };
      })
      .Case<arith::CmpIOp>([](arith::CmpIOp cmp) {
        return
            [p = cmp.getPredicate()](Scalars v) { return double(compareIntegers(p, v[0], v[1])); };
      })
      .Case<arith::TruncFOp>([](arith::TruncFOp op) -> Function {
        auto to = cast<FloatType>(getElementTypeOrSelf(op.getType()));
        if (to.getWidth() > 16)
          return [](Scalars v) { return v[0]; };
        return [&format = to.getFloatSemantics()](Scalars v) { return rounded(v[0], format); };
      })
      .Case<arith::ExtFOp, arith::SIToFPOp, arith::UIToFPOp, arith::ExtSIOp, arith::ExtUIOp>(
          [](auto) { return [](Scalars v) { return v[0]; }; })
      .Case<arith::TruncIOp>([boolean](auto) {
        return [boolean](Scalars v) { return boolean ? double(integer(v[0]) & 1) : v[0]; };
      })
      .Case<arith::FPToSIOp, arith::FPToUIOp>(
          [](auto) { return [](Scalars v) { return std::trunc(v[0]); }; })
      .Default([](Operation *) { return Function(); });
}

template <double (*f)(double)> Function unary() {
  return [](Scalars v) { return f(v[0]); };
}

Function mathFunction(Operation *op) {
  return TypeSwitch<Operation *, Function>(op)
      .Case<math::ExpOp>([](auto) { return unary<std::exp>(); })
      .Case<math::Exp2Op>([](auto) { return unary<std::exp2>(); })
      .Case<math::ExpM1Op>([](auto) { return unary<std::expm1>(); })
      .Case<math::LogOp>([](auto) { return unary<std::log>(); })
      .Case<math::Log2Op>([](auto) { return unary<std::log2>(); })
      .Case<math::Log10Op>([](auto) { return unary<std::log10>(); })
      .Case<math::Log1pOp>([](auto) { return unary<std::log1p>(); })
      .Case<math::SqrtOp>([](auto) { return unary<std::sqrt>(); })
      .Case<math::CbrtOp>([](auto) { return unary<std::cbrt>(); })
      .Case<math::RsqrtOp>([](auto) { return [](Scalars v) { return 1.0 / std::sqrt(v[0]); }; })
      .Case<math::TanhOp>([](auto) { return unary<std::tanh>(); })
      .Case<math::ErfOp>([](auto) { return unary<std::erf>(); })
      .Case<math::ErfcOp>([](auto) { return unary<std::erfc>(); })
      .Case<math::SinOp>([](auto) { return unary<std::sin>(); })
      .Case<math::CosOp>([](auto) { return unary<std::cos>(); })
      .Case<math::TanOp>([](auto) { return unary<std::tan>(); })
      .Case<math::AsinOp>([](auto) { return unary<std::asin>(); })
      .Case<math::AcosOp>([](auto) { return unary<std::acos>(); })
      .Case<math::AtanOp>([](auto) { return unary<std::atan>(); })
      .Case<math::SinhOp>([](auto) { return unary<std::sinh>(); })
      .Case<math::CoshOp>([](auto) { return unary<std::cosh>(); })
      .Case<math::AsinhOp>([](auto) { return unary<std::asinh>(); })
      .Case<math::AcoshOp>([](auto) { return unary<std::acosh>(); })
      .Case<math::AtanhOp>([](auto) { return unary<std::atanh>(); })
      .Case<math::AbsFOp, math::AbsIOp>([](auto) { return unary<std::fabs>(); })
      .Case<math::FloorOp>([](auto) { return unary<std::floor>(); })
      .Case<math::CeilOp>([](auto) { return unary<std::ceil>(); })
      .Case<math::RoundOp>([](auto) { return unary<std::round>(); })
      .Case<math::RoundEvenOp>([](auto) { return unary<std::nearbyint>(); })
      .Case<math::TruncOp>([](auto) { return unary<std::trunc>(); })
      .Case<math::IsNaNOp>([](auto) { return [](Scalars v) { return double(std::isnan(v[0])); }; })
      .Case<math::IsInfOp>([](auto) { return [](Scalars v) { return double(std::isinf(v[0])); }; })
      .Case<math::PowFOp, math::FPowIOp>(
          [](auto) { return [](Scalars v) { return std::pow(v[0], v[1]); }; })
      .Case<math::Atan2Op>([](auto) { return [](Scalars v) { return std::atan2(v[0], v[1]); }; })
      .Case<math::CopySignOp>(
          [](auto) { return [](Scalars v) { return std::copysign(v[0], v[1]); }; })
      .Case<math::FmaOp>([](auto) { return [](Scalars v) { return std::fma(v[0], v[1], v[2]); }; })
      .Default([](Operation *) { return Function(); });
}

} // namespace

FailureOr<std::vector<Tensor>> zorse::reference::evaluate(Operation *op, ArrayRef<Tensor> operands,
                                                          const Options &options) {
  std::vector<Tensor> results;
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    auto value = dyn_cast<ElementsAttr>(constant.getValue());
    if (!value)
      return op->emitOpError("expects a tensor constant");
    FailureOr<Tensor> tensor = constantTensor(op, value);
    if (failed(tensor))
      return failure();
    results.push_back(std::move(*tensor));
    return results;
  }
  Function function = arithFunction(op);
  if (!function)
    function = mathFunction(op);
  if (function) {
    Tensor y = Tensor::filled(shapeOf(op->getResult(0).getType(), options), 0.0);
    SmallVector<double> scalars(operands.size());
    for (int64_t i = 0; i < y.size(); ++i) {
      for (auto [k, operand] : llvm::enumerate(operands))
        scalars[k] = operand.values[operand.size() == 1 ? 0 : i];
      y.values[i] = function(scalars);
    }
    results.push_back(std::move(y));
    return results;
  }
  if (failed(evaluateZorse(op, operands, options, results)) ||
      (results.empty() && failed(evaluateAttention(op, operands, options, results))))
    return failure();
  if (results.empty())
    evaluateNorm(op, operands, options, results);
  if (results.empty())
    return op->emitOpError("is not supported by the reference evaluator");
  for (auto [value, tensor] : llvm::zip(op->getResults(), results)) // products that write half
                                                                    // precision
    if (auto element = dyn_cast<FloatType>(getElementTypeOrSelf(value.getType()));
        element && element.getWidth() == 16)
      for (double &number : tensor.values)
        number = rounded(number, element.getFloatSemantics());
  return results;
}

FailureOr<std::vector<Tensor>> zorse::reference::evaluate(func::FuncOp function,
                                                          ArrayRef<Tensor> arguments,
                                                          const Options &options) {
  if (arguments.size() != function.getNumArguments())
    return function.emitError() << "expects " << function.getNumArguments() << " arguments, found "
                                << arguments.size();
  DenseMap<Value, Tensor> values;
  for (auto [argument, tensor] : llvm::zip(function.getArguments(), arguments)) {
    if (tensor.shape != shapeOf(argument.getType(), options))
      return function.emitError() << "argument " << argument.getArgNumber() << " has type "
                                  << argument.getType()
                                  << " but a tensor of another shape is given";
    values[argument] = tensor;
  }
  auto lookup = [&](ValueRange range) {
    std::vector<Tensor> tensors;
    for (Value value : range)
      tensors.push_back(values.at(value));
    return tensors;
  };
  for (Operation &op : function.getBody().front().without_terminator()) {
    FailureOr<std::vector<Tensor>> results = evaluate(&op, lookup(op.getOperands()), options);
    if (failed(results))
      return failure();
    for (auto [value, tensor] : llvm::zip(op.getResults(), *results))
      values[value] = std::move(tensor);
  }
  return lookup(function.getBody().front().getTerminator()->getOperands());
}
