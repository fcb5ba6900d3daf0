// Constants that are computed when read: iota, fill, file bytes, and elementwise expressions of views of them.
//
// A 2,048-token causal mask is an expression of two iotas; it is never stored, only streamed when somebody asks what it is.
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

/// A flat, read-only array of numbers. Integers and booleans are read exactly by readInts; floats by readFloats.
class Lazy {
public:
  Lazy(ElementKind kind, int64_t size) : elementKind(kind), count(size) {}
  virtual ~Lazy() = default;

  ElementKind kind() const { return elementKind; }
  bool isFloat() const { return onnx_import::isFloat(elementKind); }
  int64_t size() const { return count; }
  /// Elements begin, begin + stride, ...; converts from the other family where asked.
  virtual void readFloats(int64_t begin, int64_t stride, int64_t n, double *out) const = 0;
  virtual void readInts(int64_t begin, int64_t stride, int64_t n, int64_t *out) const = 0;
  /// Set iff every element is the same.
  virtual bool isFill() const { return count == 1; }

private:
  ElementKind elementKind;
  int64_t count;
};

/// A loop axis of an expression: `size` steps, `stride` elements each, in the operand's flat array.
struct LazyOperand {
  LazyPtr base;
  int64_t offset = 0;
  std::vector<int64_t> strides; ///< one per axis of the expression
};

using FloatKernel = std::function<void(int64_t n, const double *const *operands, double *out)>;
using IntKernel = std::function<void(int64_t n, const int64_t *const *operands, int64_t *out)>;
/// Reads floats, writes integers or booleans (comparisons, float to integer casts), and the other way round.
using FloatToIntKernel = std::function<void(int64_t n, const double *const *operands, int64_t *out)>;
using IntToFloatKernel = std::function<void(int64_t n, const int64_t *const *operands, double *out)>;

struct Kernel {
  FloatKernel floats;
  IntKernel ints;
  FloatToIntKernel floatToInt;
  IntToFloatKernel intToFloat;
  bool select = false; ///< between operands 1 and 2 by operand 0
  bool copy = false;
};

LazyPtr makeFill(ElementKind kind, int64_t size, double value);
LazyPtr makeIntFill(ElementKind kind, int64_t size, int64_t value);
LazyPtr makeIota(ElementKind kind, int64_t size, double start, double step);
LazyPtr makeFloats(ElementKind kind, std::vector<double> values);
LazyPtr makeInts(ElementKind kind, std::vector<int64_t> values);
/// Elements decoded from bytes when read.
LazyPtr makeBytes(ElementKind kind, TensorBytes bytes, int64_t size);
/// The elementwise expression over `sizes`, row-major. Stored at once if it has at most `storeLimit` elements.
LazyPtr makeExpression(ElementKind kind, std::vector<int64_t> sizes, std::vector<LazyOperand> operands, Kernel kernel);
/// Row-major concatenation: part i contributes runs[i] elements, `repeats` times.
LazyPtr makeInterleaved(ElementKind kind, std::vector<LazyPtr> parts, std::vector<int64_t> runs, int64_t repeats);

/// Expressions up to this many elements are stored (1 MiB of doubles).
constexpr int64_t storeLimit = int64_t(1) << 17;

/// Rounds to what `kind` can hold.
double roundTo(ElementKind kind, double value);
/// Towards zero, clamped to the range; 0 for NaN.
int64_t truncateToInt(double value);
int64_t wrapTo(ElementKind kind, int64_t value);
/// As two's complement has it: constants of a file may be anything.
inline int64_t addInts(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); }
inline int64_t subInts(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b)); }
inline int64_t mulInts(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)); }

float halfToFloat(uint16_t bits);
uint16_t floatToHalf(float value);

} // namespace zorse::onnx_import
