// Normalizations over axes and over neighboring channels, and batch norm with running statistics.
#include "Call.h"

#include <algorithm>
#include <cmath>

using namespace zorse::onnx_reference;

namespace {

/// Normalizes consecutive lines of `size` elements.
void normalise(Array &y, int64_t size, double epsilon, bool centred) {
  for (int64_t first = 0; size > 0 && first < y.size(); first += size) {
    double mean = 0, squares = 0;
    for (int64_t k = 0; k < size && centred; ++k)
      mean += y.reals[first + k] / static_cast<double>(size);
    for (int64_t k = 0; k < size; ++k)
      squares += (y.reals[first + k] - mean) * (y.reals[first + k] - mean);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(size) + epsilon);
    for (int64_t k = 0; k < size; ++k)
      y.reals[first + k] = (y.reals[first + k] - mean) * scale;
  }
}

/// y * scale + bias. Both must broadcast to the shape of y; either may be null.
bool affine(Call &call, Array &y, const Array *scale, const Array *bias) {
  for (const Array *operand : {scale, bias}) {
    Shape shape;
    if (!operand)
      continue;
    if (!operand->isFloat() || !broadcast(operand->shape, y.shape, shape) || shape != y.shape)
      return call.fail("its scale or bias has another shape");
    int64_t i = 0;
    walk<1>(y.shape, {stridesOnto(operand->shape, y.shape)}, [&](const std::array<int64_t, 1> &at) {
      double &value = y.reals[i++];
      value = operand == scale ? value * operand->reals[at[0]] : value + operand->reals[at[0]];
    });
  }
  return true;
}

template <bool centred> bool overLastAxes(Call &call) {
  const Array *x = call.in(0);
  int64_t axis = 0;
  if (!call.floats({0}) || call.outputs.size() > 1 ||
      !call.axis(call.integer("axis", -1), x->rank(), axis))
    return call.fail("its statistics are read");
  Array y = *x;
  normalise(y, product(x->shape, axis), call.real("epsilon", 1e-5f), centred);
  return affine(call, y, call.in(1), centred ? call.in(2) : nullptr) && call.out(std::move(y));
}

/// Reshapes one number per channel (axis 1) to an operand that broadcasts.
Array perChannel(const Array &values, int64_t rank) {
  Shape shape(rank - 1, 1);
  shape[0] = values.size();
  return reshaped(values, shape);
}

bool onGroups(Call &call, int64_t groups) {
  const Array &x = *call.in(0);
  if (!call.floats({0, 1, 2}) || x.rank() < 2 || groups < 1 || x.shape[1] % groups != 0 ||
      !call.in(1) || !call.in(2))
    return false;
  Array y = x;
  normalise(y, product(x.shape, 1) / groups, call.real("epsilon", 1e-5f), true);
  Array scale = *call.in(1), bias = *call.in(2);
  if (scale.size() == groups && groups != x.shape[1]) // one scale per group, before opset 21
    return call.fail("has one scale per group");
  scale = perChannel(scale, x.rank());
  bias = perChannel(bias, x.rank());
  return affine(call, y, &scale, &bias) && call.out(std::move(y));
}

bool onBatchNormalization(Call &call) {
  const Array &x = *call.in(0);
  if (call.integer("training_mode", 0) != 0)
    return call.fail("takes statistics of the batch");
  if (!call.floats({0, 1, 2, 3, 4}) || x.rank() < 2)
    return false;
  for (size_t i = 1; i < 5; ++i)
    if (call.in(i)->size() != x.shape[1])
      return call.fail("expects one number per channel");
  const double epsilon = call.real("epsilon", 1e-5f);
  Array y = x;
  const int64_t channels = x.shape[1], inner = product(x.shape, 2);
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t c = i / inner % channels;
    y.reals[i] = (x.reals[i] - call.in(3)->reals[c]) / std::sqrt(call.in(4)->reals[c] + epsilon) *
                     call.in(1)->reals[c] +
                 call.in(2)->reals[c];
  }
  return call.out(std::move(y));
}

bool onLocalResponse(Call &call) {
  const Array &x = *call.in(0);
  const int64_t size = call.integer("size", 0);
  if (!call.floats({0}) || x.rank() < 2 || size < 1)
    return call.fail("expects floats of samples x channels x positions, and a size of 1 or more");
  const double alpha = call.real("alpha", 1e-4f), beta = call.real("beta", 0.75),
               bias = call.real("bias", 1);
  const int64_t channels = x.shape[1], inner = product(x.shape, 2);
  Array y = x;
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t c = i / inner % channels, first = std::max<int64_t>(0, c - (size - 1) / 2),
                  last = std::min(channels - 1, c + size / 2);
    double squares = 0;
    for (int64_t k = first; k <= last; ++k) {
      const double value = x.reals[i + (k - c) * inner];
      squares += value * value;
    }
    y.reals[i] = x.reals[i] / std::pow(bias + alpha / static_cast<double>(size) * squares, beta);
  }
  return call.out(std::move(y));
}

} // namespace

void zorse::onnx_reference::addNormalisations(OperatorMap &map) {
  map["LayerNormalization"] = overLastAxes<true>;
  map["RMSNormalization"] = overLastAxes<false>;
  map["GroupNormalization"] = [](Call &call) {
    return onGroups(call, call.integer("num_groups", 1));
  };
  map["InstanceNormalization"] = [](Call &call) {
    return onGroups(call, call.in(0)->rank() > 1 ? call.in(0)->shape[1] : 0);
  };
  map["BatchNormalization"] = onBatchNormalization;
  map["LRN"] = onLocalResponse;
}
