// Activation functions, with the default values of their attributes.
#include "Call.h"

#include <algorithm>
#include <cmath>

using namespace zorse::onnx_reference;

namespace {

double sigmoid(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

template <typename F> bool activate(Call &call, F f) {
  if (!call.floats({0}))
    return false;
  Array y = *call.in(0);
  for (double &value : y.reals)
    value = f(value);
  return call.out(std::move(y));
}

bool onRelu(Call &call) {
  if (!call.in(0)->isFloat()) {
    Array y = *call.in(0);
    for (int64_t &value : y.integers)
      value = std::max<int64_t>(value, 0);
    return call.out(std::move(y));
  }
  return activate(call, [](double x) { return std::isnan(x) ? x : std::max(x, 0.0); });
}

bool onLeakyRelu(Call &call) {
  return activate(call, [a = call.real("alpha", 0.01f)](double x) { return x < 0 ? a * x : x; });
}

bool onElu(Call &call) {
  return activate(call,
                  [a = call.real("alpha", 1)](double x) { return x < 0 ? a * std::expm1(x) : x; });
}

bool onCelu(Call &call) {
  return activate(call, [a = call.real("alpha", 1)](double x) {
    return std::max(x, 0.0) + std::min(0.0, a * std::expm1(x / a));
  });
}

bool onSelu(Call &call) {
  const double a = call.real("alpha", 1.67326319217681884765625),
               g = call.real("gamma", 1.05070102214813232421875);
  return activate(call, [=](double x) { return g * (x > 0 ? x : a * std::expm1(x)); });
}

bool onGelu(Call &call) {
  if (call.string("approximate", "none") == "tanh")
    return activate(call, [](double x) {
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    });
  return activate(call, [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); });
}

bool onHardSigmoid(Call &call) {
  const double a = call.real("alpha", 0.2f), b = call.real("beta", 0.5);
  return activate(call, [=](double x) { return std::clamp(a * x + b, 0.0, 1.0); });
}

bool onThresholdedRelu(Call &call) {
  return activate(call, [a = call.real("alpha", 1)](double x) { return x > a ? x : 0; });
}

bool onShrink(Call &call) {
  const double lambda = call.real("lambd", 0.5), bias = call.real("bias", 0);
  return activate(call, [=](double x) {
    return x < -lambda ? x + bias : x > lambda ? x - bias : 0;
  });
}

bool onSwish(Call &call) {
  return activate(call, [a = call.real("alpha", 1)](double x) { return x * sigmoid(a * x); });
}

bool onPRelu(Call &call) {
  const Array *x = call.in(0), *slope = call.in(1);
  Shape shape;
  if (!call.floats({0, 1}) || !broadcast(x->shape, slope->shape, shape) || shape != x->shape)
    return call.fail("its slope has another shape");
  Array y = *x;
  int64_t i = 0;
  walk<1>(x->shape, {stridesOnto(slope->shape, x->shape)}, [&](const std::array<int64_t, 1> &at) {
    y.reals[i] = x->reals[i] < 0 ? x->reals[i] * slope->reals[at[0]] : x->reals[i];
    ++i;
  });
  return call.out(std::move(y));
}

} // namespace

void zorse::onnx_reference::addActivations(OperatorMap &map) {
  map["Relu"] = onRelu;
  map["LeakyRelu"] = onLeakyRelu;
  map["Elu"] = onElu;
  map["Celu"] = onCelu;
  map["Selu"] = onSelu;
  map["Gelu"] = onGelu;
  map["HardSigmoid"] = onHardSigmoid;
  map["ThresholdedRelu"] = onThresholdedRelu;
  map["Shrink"] = onShrink;
  map["Swish"] = onSwish;
  map["PRelu"] = onPRelu;
  map["Sigmoid"] = [](Call &call) { return activate(call, sigmoid); };
  map["Softplus"] = [](Call &call) { return activate(call, softplus); };
  map["Softsign"] = [](Call &call) {
    return activate(call, [](double x) { return x / (1 + std::fabs(x)); });
  };
  map["Mish"] = [](Call &call) {
    return activate(call, [](double x) { return x * std::tanh(softplus(x)); });
  };
  map["HardSwish"] = [](Call &call) {
    return activate(call, [](double x) { return x * std::clamp(x / 6 + 0.5, 0.0, 1.0); });
  };
}
