#include "Array.h"

#include <algorithm>
#include <limits>

using namespace zorse::onnx_reference;

Array Array::of(ElementKind type, Shape shape) {
  Array array;
  array.type = type;
  array.shape = std::move(shape);
  const int64_t size = product(array.shape);
  if (size < 0 || size > kMaxElements)
    throw TooLarge();
  const auto count = static_cast<size_t>(size);
  if (array.isFloat())
    array.reals.resize(count);
  else
    array.integers.resize(count);
  return array;
}

Array Array::ofInts(Shape shape, std::vector<int64_t> values) {
  Array array;
  array.type = ElementKind::I64;
  array.shape = std::move(shape);
  array.integers = std::move(values);
  return array;
}

Array Array::ofReals(Shape shape, std::vector<double> values) {
  Array array;
  array.type = ElementKind::F64;
  array.shape = std::move(shape);
  array.reals = std::move(values);
  return array;
}

int64_t zorse::onnx_reference::product(const Shape &shape, size_t begin, size_t end) {
  int64_t result = 1;
  for (size_t i = begin; i < std::min(end, shape.size()); ++i) {
    if (shape[i] == 0)
      return 0;
    if (__builtin_mul_overflow(result, shape[i], &result))
      result = std::numeric_limits<int64_t>::max();
  }
  return result;
}

std::string zorse::onnx_reference::text(const Shape &shape) {
  std::string result = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    result += (i ? ", " : "") + std::to_string(shape[i]);
  return result + "]";
}

Shape zorse::onnx_reference::stridesOf(const Shape &shape) {
  Shape strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * shape[i];
  return strides;
}

Shape zorse::onnx_reference::stridesOnto(const Shape &shape, const Shape &onto) {
  const Shape own = stridesOf(shape);
  Shape strides(onto.size(), 0);
  for (size_t i = 0; i < shape.size(); ++i)
    if (shape[shape.size() - 1 - i] != 1)
      strides[onto.size() - 1 - i] = own[shape.size() - 1 - i];
  return strides;
}

bool zorse::onnx_reference::broadcast(const Shape &a, const Shape &b, Shape &result) {
  Shape shape(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1,
                  y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1)
      return false;
    shape[shape.size() - 1 - i] = x == 1 ? y : x;
  }
  result = std::move(shape);
  return true;
}
