// Elementwise operators: arithmetic, comparisons, logic, casts, Where.
#include "Call.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace zorse::onnx_reference;

namespace {

using RealFunction = double (*)(double);
using RealPair = double (*)(double, double);
using IntegerPair = int64_t (*)(int64_t, int64_t);

/// \param integers  null if the function is not defined for integers
bool pairwise(Call &call, const Array &a, const Array &b, ElementKind type, RealPair reals,
              IntegerPair integers, Array &result) {
  Shape shape;
  if (!broadcast(a.shape, b.shape, shape))
    return call.fail("shapes " + text(a.shape) + " and " + text(b.shape) + " do not broadcast");
  const bool asReals = a.isFloat() || b.isFloat();
  if (!asReals && !integers)
    return call.fail("expects floats");
  result = Array::of(type, shape);
  int64_t i = 0;
  walk<2>(shape, {stridesOnto(a.shape, shape), stridesOnto(b.shape, shape)},
          [&](const std::array<int64_t, 2> &at) {
            if (result.isFloat())
              result.reals[i++] = reals(a.real(at[0]), b.real(at[1]));
            else
              result.integers[i++] = asReals
                                         ? static_cast<int64_t>(reals(a.real(at[0]), b.real(at[1])))
                                         : integers(a.integers[at[0]], b.integers[at[1]]);
          });
  return true;
}

template <RealPair reals, IntegerPair integers> bool binary(Call &call) {
  const Array *a = call.in(0), *b = call.in(1);
  return a && b && pairwise(call, *a, *b, a->type, reals, integers, call.outputs[0]);
}

template <RealPair reals, IntegerPair integers> bool compare(Call &call) {
  const Array *a = call.in(0), *b = call.in(1);
  return a && b && pairwise(call, *a, *b, ElementKind::Bool, reals, integers, call.outputs[0]);
}

template <RealPair reals, IntegerPair integers> bool variadic(Call &call) {
  if (!call.in(0))
    return false;
  Array result = *call.in(0);
  for (size_t k = 1; k < call.inputs.size(); ++k) {
    Array next;
    if (!call.in(k) || !pairwise(call, result, *call.in(k), result.type, reals, integers, next))
      return false;
    result = std::move(next);
  }
  return call.out(std::move(result));
}

template <typename F> bool map(Call &call, ElementKind type, F f) {
  const Array &x = *call.in(0);
  Array y = Array::of(type, x.shape);
  for (int64_t i = 0; i < x.size(); ++i)
    f(x, y, i);
  return call.out(std::move(y));
}

double add(double a, double b) { return a + b; }
double sub(double a, double b) { return a - b; }
double mul(double a, double b) { return a * b; }
double div(double a, double b) { return a / b; }
double largest(double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b); }
double smallest(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b);
}
int64_t addInts(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t subInts(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
int64_t mulInts(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
int64_t divInts(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? subInts(0, a) : a / b; }
int64_t largestInt(int64_t a, int64_t b) { return std::max(a, b); }
int64_t smallestInt(int64_t a, int64_t b) { return std::min(a, b); }
double power(double a, double b) { return std::pow(a, b); }
int64_t powerInts(int64_t a, int64_t b) {
  return static_cast<int64_t>(std::pow(static_cast<double>(a), static_cast<double>(b)));
}
double equal(double a, double b) { return a == b ? 1 : 0; }
double less(double a, double b) { return a < b ? 1 : 0; }
double lessEqual(double a, double b) { return a <= b ? 1 : 0; }
double greater(double a, double b) { return a > b ? 1 : 0; }
double greaterEqual(double a, double b) { return a >= b ? 1 : 0; }
int64_t equalInts(int64_t a, int64_t b) { return a == b; }
int64_t lessInts(int64_t a, int64_t b) { return a < b; }
int64_t lessEqualInts(int64_t a, int64_t b) { return a <= b; }
int64_t greaterInts(int64_t a, int64_t b) { return a > b; }
int64_t greaterEqualInts(int64_t a, int64_t b) { return a >= b; }
int64_t andInts(int64_t a, int64_t b) { return a & b; }
int64_t orInts(int64_t a, int64_t b) { return a | b; }
int64_t xorInts(int64_t a, int64_t b) { return a ^ b; }
int64_t shiftedLeft(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) << (static_cast<uint64_t>(b) & 63));
}
int64_t shiftedRight(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) >> (static_cast<uint64_t>(b) & 63));
}
double reciprocal(double x) { return 1 / x; }

double modulo(double a, double b) { return std::fmod(a, b); }
double pythonModulo(double a, double b) { return a - b * std::floor(a / b); }
int64_t remainderInts(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }
int64_t pythonRemainder(int64_t a, int64_t b) {
  const int64_t rest = remainderInts(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

bool onMod(Call &call) {
  return call.integer("fmod", 0) ? binary<modulo, remainderInts>(call)
                                 : binary<pythonModulo, pythonRemainder>(call);
}

bool onMean(Call &call) {
  if (!variadic<add, addInts>(call))
    return false;
  for (double &value : call.outputs[0].reals)
    value /= static_cast<double>(call.inputs.size());
  return true;
}

bool onAbs(Call &call) {
  return map(call, call.in(0)->type, [](const Array &x, Array &y, int64_t i) {
    if (x.isFloat())
      y.reals[i] = std::fabs(x.reals[i]);
    else
      y.integers[i] = x.integers[i] < 0 ? subInts(0, x.integers[i]) : x.integers[i];
  });
}

bool onNeg(Call &call) {
  return map(call, call.in(0)->type, [](const Array &x, Array &y, int64_t i) {
    if (x.isFloat())
      y.reals[i] = -x.reals[i];
    else
      y.integers[i] = subInts(0, x.integers[i]);
  });
}

bool onSign(Call &call) {
  return map(call, call.in(0)->type, [](const Array &x, Array &y, int64_t i) {
    const double sign = x.real(i) > 0 ? 1 : x.real(i) < 0 ? -1 : 0;
    if (x.isFloat())
      y.reals[i] = sign;
    else
      y.integers[i] = static_cast<int64_t>(sign);
  });
}

bool onNot(Call &call) {
  return map(call, ElementKind::Bool,
             [](const Array &x, Array &y, int64_t i) { y.integers[i] = x.real(i) == 0; });
}

bool onIsNaN(Call &call) {
  return map(call, ElementKind::Bool,
             [](const Array &x, Array &y, int64_t i) { y.integers[i] = std::isnan(x.real(i)); });
}

bool onIsInf(Call &call) {
  const bool above = call.integer("detect_positive", 1) != 0,
             below = call.integer("detect_negative", 1) != 0;
  return map(call, ElementKind::Bool, [=](const Array &x, Array &y, int64_t i) {
    y.integers[i] = std::isinf(x.real(i)) && (x.real(i) > 0 ? above : below);
  });
}

bool onIdentity(Call &call) { return call.in(0) && call.out(*call.in(0)); }

bool onCast(Call &call) {
  return call.in(0) &&
         call.out(converted(*call.in(0), static_cast<ElementKind>(call.integer("to", 1))));
}
bool onCastLike(Call &call) {
  return call.in(0) && call.in(1) && call.out(converted(*call.in(0), call.in(1)->type));
}

bool onDropout(Call &call) {
  call.outputs[0] = *call.in(0);
  if (call.outputs.size() > 1) {
    call.outputs[1] = Array::of(ElementKind::Bool, call.in(0)->shape);
    std::fill(call.outputs[1].integers.begin(), call.outputs[1].integers.end(), 1);
  }
  return true;
}

bool onWhere(Call &call) {
  const Array *condition = call.in(0), *a = call.in(1), *b = call.in(2);
  Shape shape;
  if (!condition || !a || !b || a->isFloat() != b->isFloat() ||
      !broadcast(a->shape, b->shape, shape) || !broadcast(condition->shape, shape, shape))
    return call.fail("its operands do not broadcast");
  Array y = Array::of(a->type, shape);
  int64_t i = 0;
  walk<3>(shape,
          {stridesOnto(condition->shape, shape), stridesOnto(a->shape, shape),
           stridesOnto(b->shape, shape)},
          [&](const std::array<int64_t, 3> &at) {
            const bool first = condition->real(at[0]) != 0;
            y.set(i++, first ? *a : *b, first ? at[1] : at[2]);
          });
  return call.out(std::move(y));
}

bool onClip(Call &call) {
  const double inf = std::numeric_limits<double>::infinity();
  for (size_t i = 1; i < 3; ++i)
    if (call.in(i) && call.in(i)->size() != 1)
      return call.fail("expects scalars as bounds");
  const double low = call.in(1) ? call.in(1)->real(0) : call.real("min", -inf),
               high = call.in(2) ? call.in(2)->real(0) : call.real("max", inf);
  return map(call, call.in(0)->type, [=](const Array &x, Array &y, int64_t i) {
    const double value = std::isnan(x.real(i)) ? NAN : std::min(std::max(x.real(i), low), high);
    if (y.isFloat())
      y.reals[i] = value;
    else
      y.integers[i] = value == x.real(i) ? x.integers[i] : static_cast<int64_t>(value);
  });
}

bool onShift(Call &call) {
  const bool left = call.string("direction", "LEFT") == "LEFT";
  return left ? binary<add, shiftedLeft>(call) : binary<add, shiftedRight>(call);
}

template <RealFunction f> bool unary(Call &call) {
  if (!call.floats({0}))
    return false;
  return map(call, call.in(0)->type,
             [](const Array &x, Array &y, int64_t i) { y.reals[i] = f(x.reals[i]); });
}

} // namespace

Array zorse::onnx_reference::converted(const Array &x, ElementKind type) {
  Array y = Array::of(type, x.shape);
  for (int64_t i = 0; i < x.size(); ++i)
    if (y.isFloat())
      y.reals[i] = x.real(i);
    else if (type == ElementKind::Bool)
      y.integers[i] = x.real(i) != 0;
    else
      y.integers[i] = !x.isFloat()                     ? x.integers[i]
                      : std::fabs(x.reals[i]) < 0x1p62 ? static_cast<int64_t>(x.reals[i])
                                                       : 0;
  return y;
}

static void addFunctions(OperatorMap &map) {
  map["Exp"] = unary<std::exp>;
  map["Log"] = unary<std::log>;
  map["Sqrt"] = unary<std::sqrt>;
  map["Sin"] = unary<std::sin>;
  map["Cos"] = unary<std::cos>;
  map["Tan"] = unary<std::tan>;
  map["Asin"] = unary<std::asin>;
  map["Acos"] = unary<std::acos>;
  map["Atan"] = unary<std::atan>;
  map["Sinh"] = unary<std::sinh>;
  map["Cosh"] = unary<std::cosh>;
  map["Asinh"] = unary<std::asinh>;
  map["Acosh"] = unary<std::acosh>;
  map["Atanh"] = unary<std::atanh>;
  map["Tanh"] = unary<std::tanh>;
  map["Erf"] = unary<std::erf>;
  map["Floor"] = unary<std::floor>;
  map["Ceil"] = unary<std::ceil>;
  map["Round"] = unary<std::nearbyint>;
  map["Reciprocal"] = unary<reciprocal>;
}

void zorse::onnx_reference::addElementwise(OperatorMap &map) {
  addFunctions(map);
  map["Add"] = binary<add, addInts>;
  map["Sub"] = binary<sub, subInts>;
  map["Mul"] = binary<mul, mulInts>;
  map["Div"] = binary<div, divInts>;
  map["Pow"] = binary<power, powerInts>;
  map["Mod"] = onMod;
  map["Max"] = variadic<largest, largestInt>;
  map["Min"] = variadic<smallest, smallestInt>;
  map["Sum"] = variadic<add, addInts>;
  map["Mean"] = onMean;
  map["Equal"] = compare<equal, equalInts>;
  map["Less"] = compare<less, lessInts>;
  map["LessOrEqual"] = compare<lessEqual, lessEqualInts>;
  map["Greater"] = compare<greater, greaterInts>;
  map["GreaterOrEqual"] = compare<greaterEqual, greaterEqualInts>;
  map["And"] = map["BitwiseAnd"] = binary<mul, andInts>;
  map["Or"] = map["BitwiseOr"] = binary<add, orInts>;
  map["Xor"] = map["BitwiseXor"] = binary<add, xorInts>;
  map["BitShift"] = onShift;
  map["Abs"] = onAbs;
  map["Neg"] = onNeg;
  map["Sign"] = onSign;
  map["Not"] = onNot;
  map["IsNaN"] = onIsNaN;
  map["IsInf"] = onIsInf;
  map["Identity"] = onIdentity;
  map["Cast"] = onCast;
  map["CastLike"] = onCastLike;
  map["Dropout"] = onDropout;
  map["Where"] = onWhere;
  map["Clip"] = onClip;
}
