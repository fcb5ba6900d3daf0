// Elementwise operators of one operand: casts, functions, activations with a parameter. Folded on constants, otherwise arith and math.
#include "Importer.h"
#include "Kernels.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/StringSwitch.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

// --- casts

Val Importer::castTo(const Val &value, ElementKind type) {
  if (value.type == type || value.kind == Val::Kind::Loss)
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
          out[i] = toBool ? x[0][i] != 0 : std::isnan(x[0][i]) ? 0 : static_cast<int64_t>(std::clamp(x[0][i], -9.2e18, 9.2e18));
      };
    else if (to)
      kernel.intToFloat = [](int64_t n, const int64_t *const *x, double *out) {
        for (int64_t i = 0; i < n; ++i)
          out[i] = static_cast<double>(x[0][i]);
      };
    else
      kernel = intKernel1([](int64_t x) { return x; });
    Val out = foldElementwise({value}, type, kernel);
    out.hides = value.hides;
    return rounded(out, type);
  }
  Val out = value;
  out.type = type;
  if (isFloat(value.type) && isFloat(type)) {
    if (!isNarrow(type) && !isNarrow(value.type))
      return out; // one compute type
    // What a 16-bit type holds is rounded to it, and so is the gradient that passes the cast.
    out = rounded(value, isNarrow(type) ? type : value.type);
    out.type = type;
    return out;
  }
  Type from = elementType(value.type), to = elementType(type);
  if (from == to)
    return out;
  Val whole = value.scale.is(1) ? value : copied(value);
  out = whole;
  out.type = type;
  auto toType = cast<RankedTensorType>(whole.value.getType()).clone(to);
  if (isFloat(value.type)) {
    if (type == ElementKind::Bool)
      out.value = create<arith::CmpFOp>(arith::CmpFPredicate::UNE, whole.value, splat(0, cast<RankedTensorType>(whole.value.getType())));
    else
      out.value = create<arith::FPToSIOp>(toType, whole.value);
  } else if (isFloat(type)) {
    out.value = value.type == ElementKind::Bool ? create<arith::UIToFPOp>(toType, whole.value) : create<arith::SIToFPOp>(toType, whole.value);
  } else if (type == ElementKind::Bool) {
    out.value = create<arith::CmpIOp>(arith::CmpIPredicate::ne, whole.value, splat(0, cast<RankedTensorType>(whole.value.getType())));
  } else if (value.type == ElementKind::Bool) {
    out.value = create<arith::ExtUIOp>(toType, whole.value);
  } else {
    out.value = from.getIntOrFloatBitWidth() < to.getIntOrFloatBitWidth() ? create<arith::ExtSIOp>(toType, whole.value)
                                                                          : create<arith::TruncIOp>(toType, whole.value);
  }
  return out;
}

LogicalResult Importer::onCast(const GraphNode &node) {
  auto type = static_cast<ElementKind>(intAttribute(node, "to", 0));
  if (!byteSize(type))
    return error(node, "casts to an element type that is not supported");
  if (in(node, 0).kind == Val::Kind::Loss && !isFloat(type))
    return notAffine(node, "casts to integers");
  if (in(node, 0).isGraph() && !isFloat(type) && type != ElementKind::I64 && type != ElementKind::I32 && type != ElementKind::Bool)
    return error(node, "casts activations to " + Twine(name(type)) + ", which is not supported");
  return out(node, 0, castTo(in(node, 0), type)), success();
}

LogicalResult Importer::onCastLike(const GraphNode &node) {
  ElementKind type = in(node, 1).kind == Val::Kind::Loss ? ElementKind::F32 : in(node, 1).type;
  if (in(node, 0).kind == Val::Kind::Loss && !isFloat(type))
    return notAffine(node, "casts to integers");
  return out(node, 0, castTo(in(node, 0), type)), success();
}

// --- unary

/// What folds an operator on integers; none: it is not defined for them.
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

/// The operation of the math dialect that is an operator on floats; empty: there is none.
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

Value Importer::unaryOnFloats(const GraphNode &node, Value x, RankedTensorType type) {
  const std::string &op = node.op;
  if (op == "Sign") { // has no gradient
    Value zero = splat(0, type), down = create<arith::SelectOp>(create<arith::CmpFOp>(arith::CmpFPredicate::OLT, x, zero), splat(-1, type), zero);
    return create<arith::SelectOp>(create<arith::CmpFOp>(arith::CmpFPredicate::OGT, x, zero), splat(1, type), down);
  }
  if (op == "Reciprocal") {
    if (auto root = x.getDefiningOp<math::SqrtOp>())
      return create<math::RsqrtOp>(root.getOperand());
    return create<arith::DivFOp>(splat(1, type), x);
  }
  if (op == "Sigmoid") {
    Value e = create<math::ExpOp>(create<arith::NegFOp>(x));
    return create<arith::DivFOp>(splat(1, type), create<arith::AddFOp>(e, splat(1, type)));
  }
  if (op == "Relu")
    return create<arith::MaximumFOp>(x, splat(0, type));
  if (op == "Softplus") {
    // max(x, 0) + log(1 + exp(-|x|)). The maximum as a half of x + |x|, which is as exact, and whose derivative at 0 is a half, too.
    Value size = create<math::AbsFOp>(x), half = splat(0.5, type);
    Value above = create<arith::AddFOp>(create<arith::MulFOp>(x, half), create<arith::MulFOp>(size, half));
    return create<arith::AddFOp>(above, create<math::Log1pOp>(create<math::ExpOp>(create<arith::NegFOp>(size))));
  }
  StringRef mathName = mathNameOf(op);
  if (mathName.empty()) {
    (void)error(node, "is not supported on activations");
    return {};
  }
  return createNamed(mathName, x, type);
}

LogicalResult Importer::onUnary(const GraphNode &node) {
  const Val &x = in(node, 0);
  const std::string &op = node.op;
  if (x.kind == Val::Kind::Loss) {
    if (op != "Neg")
      return notAffine(node, "takes a function of");
    return scaledLoss(node, x, scalar(ElementKind::F64, -1), /*divides=*/false);
  }
  if (x.isConstant()) {
    std::optional<Kernel> kernel = isFloat(x.type) ? floatKernelOf(op) : intKernelOf(op);
    if (!kernel && isFloat(x.type))
      return error(node, "is not supported on float constants");
    if (!kernel)
      return error(node, "is not defined for " + Twine(name(x.type)));
    return out(node, 0, foldElementwise({x}, x.type, *kernel)), success();
  }
  if (!x.isGraph())
    return error(node, "expects a tensor");
  if (!isFloat(x.type)) {
    if (op == "Not" || op == "Neg" || op == "Abs")
      return emitElementwise(node, {x}, x.type, [&](ValueRange a, RankedTensorType type) -> Value {
        if (op == "Not")
          return create<arith::XOrIOp>(a[0], splat(1, type));
        Value negated = create<arith::SubIOp>(splat(0, type), a[0]);
        return op == "Neg" ? negated : create<arith::MaxSIOp>(a[0], negated);
      });
    return error(node, "is not supported on integer activations");
  }
  if (op == "Neg") {
    Val value = x;
    value.scale = -value.scale;
    return out(node, 0, std::move(value)), success();
  }
  return emitElementwise(node, {x}, x.type, [&](ValueRange a, RankedTensorType type) { return unaryOnFloats(node, a[0], type); });
}

LogicalResult Importer::onActivation(const GraphNode &node) {
  Val x = in(node, 0);
  const std::string &op = node.op;
  if (x.isConstant()) {
    if (op != "Gelu" && op != "Swish" && op != "HardSwish" && op != "LeakyRelu" && op != "Mish")
      return error(node, "is not supported on constants");
  }
  if (!x.isGraph() || !isFloat(x.type))
    return error(node, "expects float activations");
  double alpha = op == "Gelu" ? 1.0 : floatAttribute(node, "alpha", op == "LeakyRelu" ? 0.01 : 1.0);
  return emitElementwise(node, {x}, x.type, [&](ValueRange a, RankedTensorType type) -> Value {
    if (op == "Gelu")
      return create<GeluOp>(type, a[0], stringAttribute(node, "approximate", "none") == "tanh" ? builder.getUnitAttr() : UnitAttr());
    if (op == "LeakyRelu") {
      Value positive = create<arith::CmpFOp>(arith::CmpFPredicate::OGT, a[0], splat(0, type));
      return create<arith::SelectOp>(positive, a[0], create<arith::MulFOp>(a[0], splat(alpha, type))); // at 0 the slope is alpha, as in PyTorch
    }
    if (alpha != 1.0) {
      Value scaled = create<arith::MulFOp>(a[0], splat(alpha, type));
      Value e = create<math::ExpOp>(create<arith::NegFOp>(scaled));
      return create<arith::DivFOp>(a[0], create<arith::AddFOp>(e, splat(1, type)));
    }
    return create<SiluOp>(type, a[0]);
  });
}

void Importer::addUnaryOps(OperatorTable &table) {
  // How values are rounded to 8-bit floats, which are no type here.
  table.add({"Cast"}, 1, 1, "to:i! saturate:i~ round_mode:s~", &Importer::onCast);
  table.add({"CastLike"}, 2, 2, "saturate:i~ round_mode:s~", &Importer::onCastLike);
  table.add({"Neg", "Abs", "Sqrt", "Exp", "Log", "Sin", "Cos", "Atan", "Tanh", "Erf", "Reciprocal", "Floor", "Ceil", "Round", "Sign", "Sigmoid",
             "Relu", "Softplus", "Not"},
            1, 1, "", &Importer::onUnary);
  table.add({"Gelu"}, 1, 1, "approximate:s=none|tanh", &Importer::onActivation);
  table.add({"Swish", "LeakyRelu"}, 1, 1, "alpha:f", &Importer::onActivation);
}
