// Dense arrays of the reference evaluator. Shapes are constants, elements are row-major, and floats
// of all types are stored as doubles.
#pragma once

#include "../ONNX/Loader.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace zorse::onnx_reference {

using onnx_import::ElementKind;
using Shape = std::vector<int64_t>;

/// Largest number of elements of an array. A larger array throws TooLarge, which Evaluator catches.
constexpr int64_t kMaxElements = int64_t(1) << 26;
struct TooLarge {};

/// An array. Floats are stored in `reals`, integers and booleans in `integers`.
struct Array {
  ElementKind type = ElementKind::Undefined;
  Shape shape;
  std::vector<double> reals;
  std::vector<int64_t> integers;

  /// An array of zeros.
  static Array of(ElementKind type, Shape shape);
  static Array ofInts(Shape shape, std::vector<int64_t> values);
  static Array ofReals(Shape shape, std::vector<double> values);

  bool isFloat() const { return onnx_import::isFloat(type); }
  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  int64_t size() const { return static_cast<int64_t>(isFloat() ? reals.size() : integers.size()); }
  double real(int64_t i) const { return isFloat() ? reals[i] : static_cast<double>(integers[i]); }
  /// Copies element `from` of an array of the same type.
  void set(int64_t i, const Array &other, int64_t from) {
    if (isFloat())
      reals[i] = other.reals[from];
    else
      integers[i] = other.integers[from];
  }
};

/// Product of sizes [begin, end), saturated at the largest int64.
int64_t product(const Shape &shape, size_t begin = 0, size_t end = ~size_t(0));
std::string text(const Shape &shape);
/// Row-major strides.
Shape stridesOf(const Shape &shape);
/// Strides of `shape` over the axes of `onto`, to which it broadcasts; 0 on axes along which it
/// repeats.
Shape stridesOnto(const Shape &shape, const Shape &onto);
/// Computes the broadcast shape. Returns false if the shapes do not broadcast.
bool broadcast(const Shape &a, const Shape &b, Shape &result);

/// Calls f(offsets) for every index of a shape in row-major order. The offsets are the scalar
/// products of the index with N lists of strides.
template <size_t N, typename F>
void walk(const Shape &shape, const std::array<Shape, N> &strides, F f) {
  if (product(shape) == 0)
    return;
  Shape index(shape.size(), 0);
  std::array<int64_t, N> at{};
  while (true) {
    f(at);
    auto axis = static_cast<int64_t>(shape.size()) - 1;
    for (; axis >= 0; --axis) {
      const bool wraps = ++index[axis] == shape[axis];
      for (size_t n = 0; n < N; ++n)
        at[n] += wraps ? -strides[n][axis] * (shape[axis] - 1) : strides[n][axis];
      if (!wraps)
        break;
      index[axis] = 0;
    }
    if (axis < 0)
      return;
  }
}

} // namespace zorse::onnx_reference
