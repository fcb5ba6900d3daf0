// Reductions, cumulative sums, and functions of complete axes: Softmax, LogSoftmax and others.
#include "Call.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace zorse::onnx_reference;

namespace {

/// Reduces in doubles: starts at `start` and applies `step` to every element. Integers keep their
/// type.
template <typename Step, typename End> bool reduce(Call &call, double start, Step step, End end) {
  const Array *x = call.in(0);
  if (!x)
    return false;
  auto axes = call.integers(1, "axes");
  const bool none = !axes || axes->empty();
  if (none && call.integer("noop_with_empty_axes", 0) != 0)
    return call.out(*x);
  std::vector<bool> gone(x->shape.size(), none);
  for (size_t i = 0; !none && i < axes->size(); ++i) {
    int64_t axis = 0;
    if (!call.axis((*axes)[i], x->rank(), axis))
      return false;
    gone[axis] = true;
  }
  Shape kept = x->shape, shape;
  int64_t count = 1;
  for (size_t i = 0; i < kept.size(); ++i)
    if (gone[i]) {
      count *= kept[i];
      kept[i] = 1;
    }
  for (size_t i = 0; i < kept.size(); ++i)
    if (!gone[i] || call.integer("keepdims", 1) != 0)
      shape.push_back(kept[i]);
  std::vector<double> sums(product(kept), start);
  int64_t i = 0;
  walk<1>(x->shape, {stridesOnto(kept, x->shape)},
          [&](const std::array<int64_t, 1> &at) { step(sums[at[0]], x->real(i++)); });
  Array y = Array::of(x->type, shape);
  for (int64_t k = 0; k < y.size(); ++k) {
    const double value = end(sums[k], static_cast<double>(count));
    if (y.isFloat())
      y.reals[k] = value;
    else
      y.integers[k] = static_cast<int64_t>(value);
  }
  return call.out(std::move(y));
}

void addTo(double &sum, double x) { sum += x; }
double same(double sum, double) { return sum; }
constexpr double inf = std::numeric_limits<double>::infinity();

bool onReduceLogSumExp(Call &call) {
  if (!call.floats({0}))
    return false;
  const auto add = [](double &sum, double x) {
    const double top = std::max(sum, x);
    sum = std::isinf(top) ? top : top + std::log(std::exp(sum - top) + std::exp(x - top));
  };
  return reduce(call, -inf, add, [](double sum, double) { return sum; });
}

/// Calls f(first element, stride, size) for every line along the axis of the attribute.
template <typename F> bool forEachLine(Call &call, const Array &x, int64_t otherwise, F f) {
  int64_t axis = 0;
  if (!call.floats({0}) || !call.axis(call.integer("axis", otherwise), x.rank(), axis))
    return false;
  const int64_t size = x.shape[axis], outer = product(x.shape, 0, axis),
                inner = product(x.shape, axis + 1);
  if (size == 0)
    return call.fail("has an empty axis");
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i)
      f(o * size * inner + i, inner, size);
  return true;
}

template <bool logarithm> bool softmax(Call &call) {
  Array y = *call.in(0);
  const bool ok = forEachLine(call, y, -1, [&](int64_t first, int64_t stride, int64_t size) {
    double top = -inf, sum = 0;
    for (int64_t k = 0; k < size; ++k)
      top = std::max(top, y.reals[first + k * stride]);
    for (int64_t k = 0; k < size; ++k)
      sum += std::exp(y.reals[first + k * stride] - top);
    for (int64_t k = 0; k < size; ++k) {
      double &value = y.reals[first + k * stride];
      value = logarithm ? value - top - std::log(sum) : std::exp(value - top) / sum;
    }
  });
  return ok && call.out(std::move(y));
}

bool onHardmax(Call &call) {
  const Array &x = *call.in(0);
  Array y = Array::of(x.type, x.shape);
  const bool ok = forEachLine(call, x, -1, [&](int64_t first, int64_t stride, int64_t size) {
    int64_t best = 0;
    for (int64_t k = 1; k < size; ++k)
      if (x.reals[first + k * stride] > x.reals[first + best * stride])
        best = k;
    y.reals[first + best * stride] = 1;
  });
  return ok && call.out(std::move(y));
}

bool onCumSum(Call &call) {
  const Array *x = call.in(0), *along = call.in(1);
  int64_t axis = 0;
  if (!call.integral({1}) || along->size() != 1 || !call.axis(along->integers[0], x->rank(), axis))
    return false;
  const bool exclusive = call.integer("exclusive", 0) != 0,
             reverse = call.integer("reverse", 0) != 0;
  const int64_t size = x->shape[axis], outer = product(x->shape, 0, axis),
                inner = product(x->shape, axis + 1);
  Array y = Array::of(x->type, x->shape);
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      double sum = 0;
      for (int64_t n = 0; n < size; ++n) {
        const int64_t at = (o * size + (reverse ? size - 1 - n : n)) * inner + i;
        const double value = exclusive ? sum : sum + x->real(at);
        sum += x->real(at);
        if (y.isFloat())
          y.reals[at] = value;
        else
          y.integers[at] = static_cast<int64_t>(value);
      }
    }
  return call.out(std::move(y));
}

bool onLpNormalization(Call &call) {
  Array y = *call.in(0);
  const int64_t p = call.integer("p", 2);
  const bool ok = forEachLine(call, y, -1, [&](int64_t first, int64_t stride, int64_t size) {
    double sum = 0;
    for (int64_t k = 0; k < size; ++k)
      sum += std::pow(std::fabs(y.reals[first + k * stride]), static_cast<double>(p));
    const double norm = p == 2 ? std::sqrt(sum) : sum;
    for (int64_t k = 0; k < size && norm != 0; ++k)
      y.reals[first + k * stride] /= norm;
  });
  return ok && call.out(std::move(y));
}

} // namespace

void zorse::onnx_reference::addReductions(OperatorMap &map) {
  map["ReduceSum"] = [](Call &call) { return reduce(call, 0, addTo, same); };
  map["ReduceMean"] = [](Call &call) {
    return reduce(call, 0, addTo, [](double sum, double count) { return sum / count; });
  };
  map["ReduceProd"] = [](Call &call) {
    return reduce(call, 1, [](double &sum, double x) { sum *= x; }, same);
  };
  map["ReduceMax"] = [](Call &call) {
    return reduce(call, -inf, [](double &sum, double x) { sum = std::max(sum, x); }, same);
  };
  map["ReduceMin"] = [](Call &call) {
    return reduce(call, inf, [](double &sum, double x) { sum = std::min(sum, x); }, same);
  };
  map["ReduceL1"] = [](Call &call) {
    return reduce(call, 0, [](double &sum, double x) { sum += std::fabs(x); }, same);
  };
  map["ReduceSumSquare"] = [](Call &call) {
    return reduce(call, 0, [](double &sum, double x) { sum += x * x; }, same);
  };
  map["ReduceL2"] = [](Call &call) {
    return reduce(
        call, 0, [](double &sum, double x) { sum += x * x; },
        [](double sum, double) { return std::sqrt(sum); });
  };
  map["ReduceLogSum"] = [](Call &call) {
    return reduce(call, 0, addTo, [](double sum, double) { return std::log(sum); });
  };
  map["ReduceLogSumExp"] = onReduceLogSumExp;
  map["Softmax"] = softmax<false>;
  map["LogSoftmax"] = softmax<true>;
  map["Hardmax"] = onHardmax;
  map["CumSum"] = onCumSum;
  map["LpNormalization"] = onLpNormalization;
}
