// Activations composed of other elementwise operators. At a kink, the gradient is that of the same
// side as in PyTorch.
#include "Decomposition.h"

#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

namespace {

/// Undoes rounding of an attribute to f32: returns `exact` if `value` is `exact` rounded, otherwise
/// `value`.
double meant(double value, double exact) {
  return static_cast<float>(value) == static_cast<float>(exact) ? exact : value;
}

/// x if it is positive, otherwise alpha (exp(x / scale) - 1). The argument of the exponential is
/// never above 0, so its gradient is finite.
ImportedValue exponentialUnit(Decomposition &make, const ImportedValue &x, double alpha,
                              double scale) {
  ImportedValue zero = make.number(0, x), positive = make("Greater", {x, zero});
  ImportedValue below = make("Where", {positive, zero, x});
  if (scale != 1)
    below = make("Mul", {below, make.number(1 / scale, x)});
  ImportedValue bent =
      make("Mul", {make("Sub", {make("Exp", {below}), make.number(1, x)}), make.number(alpha, x)});
  return make("Where", {positive, x, bent});
}

/// alpha x + beta, clamped to [0, 1]. A rising line is computed as alpha (x + beta / alpha), so
/// that PyTorch's bounds, -3 and 3, are exact even with rounding and fusion.
ImportedValue hardSigmoid(Decomposition &make, const ImportedValue &x, double alpha, double beta) {
  const bool rises = alpha > 0;
  ImportedValue from = rises ? x : make("Mul", {x, make.number(alpha, x)});
  ImportedValue line = make("Add", {from, make.number(rises ? beta / alpha : beta, x)});
  ImportedValue zero = make.number(0, x), one = make.number(1, x);
  ImportedValue capped =
      make("Where", {make("GreaterOrEqual", {line, make.number(rises ? 1 / alpha : 1, x)}), one,
                     rises ? make("Mul", {line, make.number(alpha, x)}) : line});
  return make("Where", {make("LessOrEqual", {line, zero}), zero, capped});
}

ImportedValue shrink(Decomposition &make, const ImportedValue &x, double bias, double threshold) {
  ImportedValue down = make("Sub", {x, make.number(bias, x)}),
                up = make("Add", {x, make.number(bias, x)});
  ImportedValue inner =
      make("Where", {make("Less", {x, make.number(-threshold, x)}), up, make.number(0, x)});
  return make("Where", {make("Greater", {x, make.number(threshold, x)}), down, inner});
}

/// (exp(x) + sign exp(-x)) / 2
ImportedValue hyperbolic(Decomposition &make, const ImportedValue &x, bool isSine) {
  ImportedValue up = make("Exp", {x}), down = make("Exp", {make("Neg", {x})});
  return make("Mul", {make(isSine ? "Sub" : "Add", {up, down}), make.number(0.5, x)});
}

/// log(x + sqrt(x^2 + one))
ImportedValue areaFunction(Decomposition &make, const ImportedValue &x, double one) {
  ImportedValue root = make("Sqrt", {make("Add", {make("Mul", {x, x}), make.number(one, x)})});
  return make("Log", {make("Add", {x, root})});
}

/// atan(x / sqrt(1 - x^2)). The difference is computed as a product, which is more accurate near
/// the ends.
ImportedValue arcSine(Decomposition &make, const ImportedValue &x) {
  ImportedValue one = make.number(1, x),
                square = make("Mul", {make("Sub", {one, x}), make("Add", {one, x})});
  return make("Atan", {make("Div", {x, make("Sqrt", {square})})});
}

/// 2 atan(sqrt((1 - x) / (1 + x)))
ImportedValue arcCosine(Decomposition &make, const ImportedValue &x) {
  ImportedValue one = make.number(1, x),
                ratio = make("Div", {make("Sub", {one, x}), make("Add", {one, x})});
  return make("Mul", {make("Atan", {make("Sqrt", {ratio})}), make.number(2, x)});
}

ImportedValue areaTangent(Decomposition &make, const ImportedValue &x) {
  ImportedValue one = make.number(1, x),
                ratio = make("Div", {make("Add", {one, x}), make("Sub", {one, x})});
  return make("Mul", {make("Log", {ratio}), make.number(0.5, x)});
}

constexpr double kSeluAlpha = 1.6732632423543772848170429916717,
                 kSeluGamma = 1.0507009873554804934193349852946;

enum class Shape : uint8_t {
  Elu,
  Celu,
  Selu,
  HardSigmoid,
  HardSwish,
  Mish,
  Softsign,
  Threshold,
  Shrink,
  Tan,
  Asin,
  Acos,
  Sinh,
  Cosh,
  Asinh,
  Acosh,
  Atanh
};

} // namespace

static LogicalResult importComposedActivation(OpContext &op) {
  ImportedValue x = op.operand(0);
  if (!isFloat(x.type))
    return op.error("expects floats, found " + Twine(name(x.type)));
  Decomposition make(op);
  const auto shape = llvm::StringSwitch<Shape>(op.node.op)
                         .Case("Elu", Shape::Elu)
                         .Case("Celu", Shape::Celu)
                         .Case("Selu", Shape::Selu)
                         .Case("HardSigmoid", Shape::HardSigmoid)
                         .Case("HardSwish", Shape::HardSwish)
                         .Case("Mish", Shape::Mish)
                         .Case("Softsign", Shape::Softsign)
                         .Case("ThresholdedRelu", Shape::Threshold)
                         .Case("Shrink", Shape::Shrink)
                         .Case("Tan", Shape::Tan)
                         .Case("Asin", Shape::Asin)
                         .Case("Acos", Shape::Acos)
                         .Case("Sinh", Shape::Sinh)
                         .Case("Cosh", Shape::Cosh)
                         .Case("Asinh", Shape::Asinh)
                         .Case("Acosh", Shape::Acosh)
                         .Default(Shape::Atanh);
  switch (shape) {
  case Shape::Elu:
    return make.result(exponentialUnit(make, x, op.real("alpha"), 1));
  case Shape::Celu: {
    double alpha = op.real("alpha");
    if (alpha == 0)
      return op.error("divides by its alpha, which is 0");
    return make.result(exponentialUnit(make, x, alpha, alpha));
  }
  case Shape::Selu: {
    double alpha = meant(op.real("alpha"), kSeluAlpha), gamma = meant(op.real("gamma"), kSeluGamma);
    return make.result(make("Mul", {exponentialUnit(make, x, alpha, 1), make.number(gamma, x)}));
  }
  case Shape::HardSigmoid:
    return make.result(
        hardSigmoid(make, x, meant(meant(op.real("alpha"), 0.2), 1.0 / 6), op.real("beta")));
  case Shape::HardSwish:
    return make.result(make("Mul", {x, hardSigmoid(make, x, 1.0 / 6, 0.5)}));
  case Shape::Mish:
    return make.result(make("Mul", {x, make("Tanh", {make("Softplus", {x})})}));
  case Shape::Softsign:
    return make.result(make("Div", {x, make("Add", {make("Abs", {x}), make.number(1, x)})}));
  case Shape::Threshold:
    return make.result(make(
        "Where", {make("Greater", {x, make.number(op.real("alpha"), x)}), x, make.number(0, x)}));
  case Shape::Shrink:
    return make.result(shrink(make, x, op.real("bias"), op.real("lambd")));
  case Shape::Tan:
    return make.result(make("Div", {make("Sin", {x}), make("Cos", {x})}));
  case Shape::Asin:
    return make.result(arcSine(make, x));
  case Shape::Acos:
    return make.result(arcCosine(make, x));
  case Shape::Sinh:
  case Shape::Cosh:
    return make.result(hyperbolic(make, x, shape == Shape::Sinh));
  case Shape::Asinh:
  case Shape::Acosh:
    return make.result(areaFunction(make, x, shape == Shape::Asinh ? 1 : -1));
  case Shape::Atanh:
    return make.result(areaTangent(make, x));
  }
  llvm_unreachable("all shapes are handled");
}

/// x if it is positive, otherwise slope * x. The slope broadcasts to x.
static LogicalResult importPRelu(OpContext &op) {
  ImportedValue x = op.operand(0), slope = op.operand(1);
  if (!isFloat(x.type) || !isFloat(slope.type))
    return op.error("expects floats, found " + Twine(name(x.type)) + " and a slope of " +
                    name(slope.type));
  std::vector<int64_t> shape = x.shape(), own = slope.shape();
  bool fits = own.size() <= shape.size();
  for (size_t i = 0; fits && i < own.size(); ++i)
    fits = own[i] == 1 || own[i] == shape[shape.size() - own.size() + i];
  if (!fits)
    return op.error("expects a slope that broadcasts to the first operand");
  Decomposition make(op);
  return make.result(
      make("Where", {make("Greater", {x, make.number(0, x)}), x, make("Mul", {slope, x})}));
}

/// Gelus of onnxruntime, of the sum of both operands if there are two. FastGelu is the
/// approximation by tanh, QuickGelu by a sigmoid.
static LogicalResult importRuntimeGelu(OpContext &op) {
  for (size_t i = 0; i < op.node.inputs.size(); ++i)
    if (op.has(i) && !isFloat(op.operand(i).type))
      return op.error("expects floats, found " + Twine(name(op.operand(i).type)));
  Decomposition make(op);
  ImportedValue x = op.has(1) ? make("Add", {op.operand(0), op.operand(1)}) : op.operand(0);
  if (op.node.op == "QuickGelu")
    return make.result(make("Swish", {x}, {{"alpha", op.real("alpha")}}));
  return make.result(make(
      "Gelu", {x}, {{"approximate", std::string(op.node.op == "FastGelu" ? "tanh" : "none")}}));
}

static LogicalResult importMean(OpContext &op) {
  Decomposition make(op);
  ImportedValue sum = make("Sum", op.operands());
  return make.result(
      make("Mul", {sum, make.number(1 / static_cast<double>(op.node.inputs.size()), sum)}));
}

void zorse::onnx_import::registerActivationOps(OperatorRegistry &registry) {
  registry.add({
      {{"Elu", "Celu", "ThresholdedRelu"}, 1, 1, {real("alpha", 1)}, importComposedActivation},
      {{"Selu"},
       1,
       1,
       {real("alpha", kSeluAlpha), real("gamma", kSeluGamma)},
       importComposedActivation},
      {{"HardSigmoid"}, 1, 1, {real("alpha", 0.2), real("beta", 0.5)}, importComposedActivation},
      {{"Shrink"}, 1, 1, {real("bias", 0), real("lambd", 0.5)}, importComposedActivation},
      {{"HardSwish", "Mish", "Softsign", "Tan", "Asin", "Acos", "Sinh", "Cosh", "Asinh", "Acosh",
        "Atanh"},
       1,
       1,
       {},
       importComposedActivation},
      {{"PRelu"}, 2, 2, {}, importPRelu},
      {{"com.microsoft.Gelu"}, 1, 1, {}, importRuntimeGelu},
      {{"com.microsoft.BiasGelu"}, 2, 2, {}, importRuntimeGelu},
      {{"com.microsoft.FastGelu"}, 1, 2, {}, importRuntimeGelu},
      {{"com.microsoft.QuickGelu"}, 1, 1, {real("alpha", 1.702)}, importRuntimeGelu},
      {{"Mean"}, 1, kAny, {}, importMean},
  });
}
