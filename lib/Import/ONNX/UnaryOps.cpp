// Imports elementwise operators with one operand: casts, functions, activations with a parameter.
// Constants are folded; other operands become operations of the arith and math dialects.
#include "Kernels.h"
#include "Known.h"
#include "LoopNest.h"
#include "Losses.h"
#include "OpContext.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/StringSwitch.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

// --- casts

ImportedValue zorse::onnx_import::castTo(ImportState &state, const ImportedValue &value,
                                         ElementKind type) {
  if (value.type == type || value.isLoss())
    return value;
  if (value.isKnown())
    return castKnown(value, type);
  if (value.isConstant()) {
    Kernel kernel;
    bool from = isFloat(value.type), to = isFloat(type), toBool = type == ElementKind::Bool;
    if (from && to)
      kernel = floatKernel1([](double x) { return x; });
    else if (from)
      kernel.floatToInt = [toBool](int64_t n, const double *const *x, int64_t *out) {
        for (int64_t i = 0; i < n; ++i)
          out[i] = toBool ? x[0][i] != 0
                   : std::isnan(x[0][i])
                       ? 0
                       : static_cast<int64_t>(std::clamp(x[0][i], -9.2e18, 9.2e18));
      };
    else if (to)
      kernel.intToFloat = [](int64_t n, const int64_t *const *x, double *out) {
        for (int64_t i = 0; i < n; ++i)
          out[i] = static_cast<double>(x[0][i]);
      };
    else
      kernel = intKernel1([](int64_t x) { return x; });
    ImportedValue out = foldElementwise(state, {value}, type, kernel);
    out.hides = value.hides;
    return rounded(state, out, type);
  }
  ImportedValue out = value;
  out.type = type;
  if (isFloat(value.type) && isFloat(type)) {
    if (!isNarrow(type) && !isNarrow(value.type))
      return out; // one compute type
    // A cast to or from a 16-bit type rounds the value to it, and also the gradient through the
    // cast.
    out = rounded(state, value, isNarrow(type) ? type : value.type);
    out.type = type;
    return out;
  }
  Type from = elementType(state, value.type), to = elementType(state, type);
  if (from == to)
    return out;
  out = value.scale().is(1) ? value : copied(state, value);
  out.type = type;
  Value &made = out.tensor().value;
  auto fromType = cast<RankedTensorType>(made.getType()), toType = fromType.clone(to);
  const bool fromBool = value.type == ElementKind::Bool;
  if (type == ElementKind::Bool && isFloat(value.type))
    made = create<arith::CmpFOp>(state, arith::CmpFPredicate::UNE, made, splat(state, 0, fromType));
  else if (type == ElementKind::Bool)
    made = create<arith::CmpIOp>(state, arith::CmpIPredicate::ne, made, splat(state, 0, fromType));
  else if (isFloat(value.type))
    made = create<arith::FPToSIOp>(state, toType, made);
  else if (isFloat(type))
    made = fromBool ? create<arith::UIToFPOp>(state, toType, made)
                    : create<arith::SIToFPOp>(state, toType, made);
  else if (fromBool)
    made = create<arith::ExtUIOp>(state, toType, made);
  else
    made = from.getIntOrFloatBitWidth() < to.getIntOrFloatBitWidth()
               ? create<arith::ExtSIOp>(state, toType, made)
               : create<arith::TruncIOp>(state, toType, made);
  return out;
}

static LogicalResult importCast(OpContext &op) {
  auto type = static_cast<ElementKind>(op.integer("to"));
  if (!byteSize(type))
    return op.error("casts to an element type that is not supported");
  if (op.operand(0).isLoss() && !isFloat(type))
    return notAffine(op, "casts to integers");
  if (op.operand(0).isTensor() && !isFloat(type) && type != ElementKind::I64 &&
      type != ElementKind::I32 && type != ElementKind::Bool)
    return op.error("casts activations to " + Twine(name(type)) + ", which is not supported");
  return op.result(castTo(op.state, op.operand(0), type));
}

static LogicalResult importCastLike(OpContext &op) {
  ElementKind type = op.operand(1).isLoss() ? ElementKind::F32 : op.operand(1).type;
  if (op.operand(0).isLoss() && !isFloat(type))
    return notAffine(op, "casts to integers");
  return op.result(castTo(op.state, op.operand(0), type));
}

// --- unary

/// The kernel that folds an operator on integers; nothing if it is not defined for integers.
static std::optional<Kernel> intKernelOf(StringRef op) {
  if (op == "Neg")
    return intKernel1([](int64_t a) { return subInts(0, a); });
  if (op == "Abs")
    return intKernel1([](int64_t a) { return a < 0 ? subInts(0, a) : a; });
  if (op == "Sign")
    return intKernel1([](int64_t a) { return int64_t((a > 0) - (a < 0)); });
  if (op == "Not")
    return intKernel1([](int64_t a) { return int64_t(a == 0); });
  return std::nullopt;
}

static std::optional<Kernel> floatKernelOf(StringRef op) {
  using F = double (*)(double);
  F f = llvm::StringSwitch<F>(op)
            .Case("Neg", [](double a) { return -a; })
            .Case("Abs", [](double a) { return std::fabs(a); })
            .Case("Sqrt", [](double a) { return std::sqrt(a); })
            .Case("Exp", [](double a) { return std::exp(a); })
            .Case("Log", [](double a) { return std::log(a); })
            .Case("Sin", [](double a) { return std::sin(a); })
            .Case("Cos", [](double a) { return std::cos(a); })
            .Case("Atan", [](double a) { return std::atan(a); })
            .Case("Tanh", [](double a) { return std::tanh(a); })
            .Case("Erf", [](double a) { return std::erf(a); })
            .Case("Reciprocal", [](double a) { return 1 / a; })
            .Case("Floor", [](double a) { return std::floor(a); })
            .Case("Ceil", [](double a) { return std::ceil(a); })
            .Case("Round", [](double a) { return std::nearbyint(a); })
            .Case("Sign", [](double a) { return double((a > 0) - (a < 0)); })
            .Case("Sigmoid", [](double a) { return 1 / (1 + std::exp(-a)); })
            .Case("Relu", [](double a) { return a > 0 ? a : 0; })
            .Case("Softplus", [](double a) { return a > 30 ? a : std::log1p(std::exp(a)); })
            .Default(nullptr);
  return f ? std::optional<Kernel>(floatKernel1(f)) : std::nullopt;
}

/// The operation of the math dialect for an operator on floats; empty if there is none.
static StringRef mathNameOf(StringRef op) {
  return llvm::StringSwitch<StringRef>(op)
      .Case("Abs", "math.absf")
      .Case("Sqrt", "math.sqrt")
      .Case("Exp", "math.exp")
      .Case("Log", "math.log")
      .Case("Sin", "math.sin")
      .Case("Cos", "math.cos")
      .Case("Atan", "math.atan")
      .Case("Tanh", "math.tanh")
      .Case("Erf", "math.erf")
      .Case("Floor", "math.floor")
      .Case("Ceil", "math.ceil")
      .Case("Round", "math.roundeven")
      .Default("");
}

/// Emits an elementwise operator on floats. Reports an error of the node if it is not supported.
static Value unaryOnFloats(OpContext &op, Value x, RankedTensorType type) {
  const std::string &which = op.node.op;
  if (which == "Sign") { // Sign has no gradient
    Value zero = splat(op.state, 0, type),
          down = create<arith::SelectOp>(
              op.state, create<arith::CmpFOp>(op.state, arith::CmpFPredicate::OLT, x, zero),
              splat(op.state, -1, type), zero);
    return create<arith::SelectOp>(
        op.state, create<arith::CmpFOp>(op.state, arith::CmpFPredicate::OGT, x, zero),
        splat(op.state, 1, type), down);
  }
  if (which == "Reciprocal") {
    if (auto root = x.getDefiningOp<math::SqrtOp>())
      return create<math::RsqrtOp>(op.state, root.getOperand());
    return create<arith::DivFOp>(op.state, splat(op.state, 1, type), x);
  }
  if (which == "Sigmoid") {
    Value e = create<math::ExpOp>(op.state, create<arith::NegFOp>(op.state, x));
    return create<arith::DivFOp>(op.state, splat(op.state, 1, type),
                                 create<arith::AddFOp>(op.state, e, splat(op.state, 1, type)));
  }
  if (which == "Relu")
    return create<arith::MaximumFOp>(op.state, x, splat(op.state, 0, type));
  if (which == "Softplus") {
    // max(x, 0) + log(1 + exp(-|x|)). The max is computed as (x + |x|) / 2: equally exact, and its
    // derivative at 0 is 1/2.
    Value size = create<math::AbsFOp>(op.state, x), half = splat(op.state, 0.5, type);
    Value above = create<arith::AddFOp>(op.state, create<arith::MulFOp>(op.state, x, half),
                                        create<arith::MulFOp>(op.state, size, half));
    return create<arith::AddFOp>(
        op.state, above,
        create<math::Log1pOp>(
            op.state, create<math::ExpOp>(op.state, create<arith::NegFOp>(op.state, size))));
  }
  StringRef mathName = mathNameOf(which);
  if (mathName.empty()) {
    (void)op.error("is not supported on activations");
    return {};
  }
  return createNamed(op.state, mathName, x, type);
}

static LogicalResult importUnary(OpContext &op) {
  const ImportedValue &x = op.operand(0);
  const std::string &which = op.node.op;
  if (x.isLoss()) {
    if (which != "Neg")
      return notAffine(op, "takes a function of");
    return scaledLoss(op, x, scalar(ElementKind::F64, -1), /*divides=*/false);
  }
  if (x.isConstant()) {
    std::optional<Kernel> kernel = isFloat(x.type) ? floatKernelOf(which) : intKernelOf(which);
    if (!kernel && isFloat(x.type))
      return op.error("is not supported on float constants");
    if (!kernel)
      return op.error("is not defined for " + Twine(name(x.type)));
    return op.result(foldElementwise(op.state, {x}, x.type, *kernel));
  }
  if (!x.isTensor())
    return op.error("expects a tensor");
  if (!isFloat(x.type)) {
    if (which == "Not" || which == "Neg" || which == "Abs")
      return emitElementwise(op, {x}, x.type, [&](ValueRange a, RankedTensorType type) -> Value {
        if (which == "Not")
          return create<arith::XOrIOp>(op.state, a[0], splat(op.state, 1, type));
        Value negated = create<arith::SubIOp>(op.state, splat(op.state, 0, type), a[0]);
        return which == "Neg" ? negated : create<arith::MaxSIOp>(op.state, a[0], negated);
      });
    return op.error("is not supported on integer activations");
  }
  if (which == "Neg") {
    ImportedValue value = x;
    value.tensor().scale = -x.scale();
    return op.result(std::move(value));
  }
  return emitElementwise(op, {x}, x.type, [&](ValueRange a, RankedTensorType type) {
    return unaryOnFloats(op, a[0], type);
  });
}

static LogicalResult importActivation(OpContext &op) {
  ImportedValue x = op.operand(0);
  const std::string &which = op.node.op;
  if (x.isConstant()) {
    if (which != "Gelu" && which != "Swish" && which != "HardSwish" && which != "LeakyRelu" &&
        which != "Mish")
      return op.error("is not supported on constants");
  }
  if (!x.isTensor() || !isFloat(x.type))
    return op.error("expects float activations");
  double alpha = which == "Gelu" ? 1.0 : op.real("alpha");
  return emitElementwise(op, {x}, x.type, [&](ValueRange a, RankedTensorType type) -> Value {
    if (which == "Gelu")
      return create<GeluOp>(op.state, type, a[0],
                            op.text("approximate") == "tanh" ? op.state.builder.getUnitAttr()
                                                             : UnitAttr());
    if (which == "LeakyRelu") {
      Value positive = create<arith::CmpFOp>(op.state, arith::CmpFPredicate::OGT, a[0],
                                             splat(op.state, 0, type));
      return create<arith::SelectOp>(
          op.state, positive, a[0],
          create<arith::MulFOp>(op.state, a[0], splat(op.state, alpha, type))); // slope alpha at 0,
                                                                                // like PyTorch
    }
    if (alpha != 1.0) {
      Value scaled = create<arith::MulFOp>(op.state, a[0], splat(op.state, alpha, type));
      Value e = create<math::ExpOp>(op.state, create<arith::NegFOp>(op.state, scaled));
      return create<arith::DivFOp>(op.state, a[0],
                                   create<arith::AddFOp>(op.state, e, splat(op.state, 1, type)));
    }
    return create<SiluOp>(op.state, type, a[0]);
  });
}

void zorse::onnx_import::registerUnaryOps(OperatorRegistry &registry) {
  registry.add({
      // The ignored attributes control rounding to 8-bit floats, which are not supported.
      {{"Cast"},
       1,
       1,
       {required(integer("to")), ignored(integer("saturate")), ignored(text("round_mode"))},
       importCast},
      {{"CastLike"},
       2,
       2,
       {ignored(integer("saturate")), ignored(text("round_mode"))},
       importCastLike},
      {{"Neg", "Abs", "Sqrt", "Exp", "Log", "Sin", "Cos", "Atan", "Tanh", "Erf", "Reciprocal",
        "Floor", "Ceil", "Round", "Sign", "Sigmoid", "Relu", "Softplus", "Not"},
       1,
       1,
       {},
       importUnary},
      {{"Gelu"}, 1, 1, {only(text("approximate", "none"), {"none", "tanh"})}, importActivation},
      {{"Swish"}, 1, 1, {real("alpha", 1)}, importActivation},
      {{"LeakyRelu"}, 1, 1, {real("alpha", 0.01)}, importActivation},
  });
}
