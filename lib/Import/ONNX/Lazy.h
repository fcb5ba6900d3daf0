// Constants with elements that are computed when they are read: iotas, fills, bytes of a file, and
// elementwise expressions of views of them.
//
// Example: a causal mask of 2,048 tokens is an expression of two iotas. It is never stored; its
// elements are computed chunk by chunk for each reader.
#pragma once

#include "Loader.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace zorse::onnx_import {

class Lazy;
using LazyPtr = std::shared_ptr<const Lazy>;

/// A flat, read-only array of numbers. readInts is exact for integers and booleans, readFloats for
/// floats.
class Lazy {
public:
  Lazy(ElementKind kind, int64_t size) : elementKind(kind), count(size) {}
  virtual ~Lazy() = default;

  ElementKind kind() const { return elementKind; }
  bool isFloat() const { return onnx_import::isFloat(elementKind); }
  int64_t size() const { return count; }
  /// Reads n elements: begin, begin + stride, ... Converts between floats and integers if needed.
  virtual void readFloats(int64_t begin, int64_t stride, int64_t n, double *out) const = 0;
  virtual void readInts(int64_t begin, int64_t stride, int64_t n, int64_t *out) const = 0;
  /// Whether all elements are known to be equal.
  virtual bool isFill() const { return count == 1; }

private:
  ElementKind elementKind;
  int64_t count;
};

/// An operand of an expression: a view of the flat array `base`. The element at index (i, j, ...)
/// is offset + i * strides[0] + j * strides[1] + ...
struct LazyOperand {
  LazyPtr base;
  int64_t offset = 0;
  std::vector<int64_t> strides; ///< one per axis of the expression
};

using FloatKernel = std::function<void(int64_t n, const double *const *operands, double *out)>;
using IntKernel = std::function<void(int64_t n, const int64_t *const *operands, int64_t *out)>;
/// FloatToIntKernel: comparisons and casts from float to integer. IntToFloatKernel: the other
/// direction.
using FloatToIntKernel =
    std::function<void(int64_t n, const double *const *operands, int64_t *out)>;
using IntToFloatKernel =
    std::function<void(int64_t n, const int64_t *const *operands, double *out)>;

struct Kernel {
  FloatKernel floats;
  IntKernel ints;
  FloatToIntKernel floatToInt;
  IntToFloatKernel intToFloat;
  bool select = false; ///< result is operand 1 where operand 0 is true, else operand 2
  bool copy = false;
};

LazyPtr makeFill(ElementKind kind, int64_t size, double value);
LazyPtr makeIntFill(ElementKind kind, int64_t size, int64_t value);
LazyPtr makeIota(ElementKind kind, int64_t size, double start, double step);
LazyPtr makeFloats(ElementKind kind, std::vector<double> values);
LazyPtr makeInts(ElementKind kind, std::vector<int64_t> values);
/// Decodes the elements from bytes when they are read.
LazyPtr makeBytes(ElementKind kind, TensorBytes bytes, int64_t size);
/// An elementwise expression over `sizes`, row-major. It is computed and stored immediately if it
/// has at most `storeLimit` elements.
LazyPtr makeExpression(ElementKind kind, std::vector<int64_t> sizes,
                       std::vector<LazyOperand> operands, Kernel kernel);
/// Row-major concatenation. Part i contributes runs[i] elements, and this repeats `repeats` times.
LazyPtr makeInterleaved(ElementKind kind, std::vector<LazyPtr> parts, std::vector<int64_t> runs,
                        int64_t repeats);

/// Largest number of elements of an expression that is stored (1 MiB of doubles).
constexpr int64_t storeLimit = int64_t(1) << 17;

/// Rounds to the precision of `kind`.
double roundTo(ElementKind kind, double value);
/// Truncates towards zero and clamps to the range of int64; 0 for NaN.
int64_t truncateToInt(double value);
int64_t wrapTo(ElementKind kind, int64_t value);
/// Two's complement arithmetic without undefined overflow: constants of a file may have any value.
inline int64_t addInts(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
inline int64_t subInts(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
inline int64_t mulInts(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

float halfToFloat(uint16_t bits);
uint16_t floatToHalf(float value);

} // namespace zorse::onnx_import
