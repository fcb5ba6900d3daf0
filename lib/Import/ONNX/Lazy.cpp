#include "Lazy.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

using namespace zorse::onnx_import;

float zorse::onnx_import::halfToFloat(uint16_t bits) {
  uint32_t sign = (bits & 0x8000u) << 16, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  uint32_t out;
  if (exponent == 0) {
    float value = std::ldexp(static_cast<float>(fraction), -24);
    return sign ? -value : value;
  }
  out = exponent == 31 ? sign | 0x7f800000u | fraction << 13
                       : sign | (exponent + 112) << 23 | fraction << 13;
  float value;
  std::memcpy(&value, &out, 4);
  return value;
}

uint16_t zorse::onnx_import::floatToHalf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  float magnitude = std::fabs(value);
  if (std::isnan(value))
    return sign | 0x7e00;
  if (magnitude >= 65520.0f)
    return sign | 0x7c00;
  if (magnitude == 0)
    return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  int unit = std::max(exponent - 11, -24); // exponent of one unit in the last place
  float scaled = std::nearbyint(std::ldexp(magnitude, -unit));
  uint32_t integer = static_cast<uint32_t>(scaled);
  if (unit == -24)
    return sign | static_cast<uint16_t>(integer);
  return sign | static_cast<uint16_t>(((unit + 24) << 10) + integer);
}

double zorse::onnx_import::roundTo(ElementKind kind, double value) {
  switch (kind) {
  case ElementKind::F32:
    return static_cast<float>(value);
  case ElementKind::F16:
    return halfToFloat(floatToHalf(static_cast<float>(value)));
  case ElementKind::BF16: {
    float single = static_cast<float>(value);
    uint32_t bits;
    std::memcpy(&bits, &single, 4);
    if (!std::isnan(single))
      bits += 0x7fffu + (bits >> 16 & 1);
    bits &= 0xffff0000u;
    std::memcpy(&single, &bits, 4);
    return single;
  }
  default:
    return value;
  }
}

int64_t zorse::onnx_import::wrapTo(ElementKind kind, int64_t value) {
  switch (kind) {
  case ElementKind::I32:
    return static_cast<int32_t>(value);
  case ElementKind::U32:
    return static_cast<uint32_t>(value);
  case ElementKind::I16:
    return static_cast<int16_t>(value);
  case ElementKind::U16:
    return static_cast<uint16_t>(value);
  case ElementKind::I8:
    return static_cast<int8_t>(value);
  case ElementKind::U8:
    return static_cast<uint8_t>(value);
  case ElementKind::Bool:
    return value != 0;
  default:
    return value;
  }
}

int64_t zorse::onnx_import::truncateToInt(double value) {
  if (std::isnan(value))
    return 0;
  if (value >= 9.2233720368547748e18)
    return std::numeric_limits<int64_t>::max();
  if (value <= -9.2233720368547758e18)
    return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(value);
}

namespace {

/// Base of arrays of floats: implements readInts with readFloats.
class FloatLazy : public Lazy {
public:
  using Lazy::Lazy;
  void readInts(int64_t begin, int64_t stride, int64_t n, int64_t *out) const override {
    std::vector<double> values(n);
    readFloats(begin, stride, n, values.data());
    for (int64_t i = 0; i < n; ++i)
      out[i] = truncateToInt(values[i]);
  }
};

class IntLazy : public Lazy {
public:
  using Lazy::Lazy;
  void readFloats(int64_t begin, int64_t stride, int64_t n, double *out) const override {
    std::vector<int64_t> values(n);
    readInts(begin, stride, n, values.data());
    for (int64_t i = 0; i < n; ++i)
      out[i] = static_cast<double>(values[i]);
  }
};

class FloatFill : public FloatLazy {
public:
  FloatFill(ElementKind kind, int64_t size, double value) : FloatLazy(kind, size), value(value) {}
  void readFloats(int64_t, int64_t, int64_t n, double *out) const override {
    std::fill_n(out, n, value);
  }
  bool isFill() const override { return true; }

private:
  double value;
};

class IntFill : public IntLazy {
public:
  IntFill(ElementKind kind, int64_t size, int64_t value) : IntLazy(kind, size), value(value) {}
  void readInts(int64_t, int64_t, int64_t n, int64_t *out) const override {
    std::fill_n(out, n, value);
  }
  bool isFill() const override { return true; }

private:
  int64_t value;
};

class FloatIota : public FloatLazy {
public:
  FloatIota(ElementKind kind, int64_t size, double start, double step)
      : FloatLazy(kind, size), start(start), step(step) {}
  void readFloats(int64_t begin, int64_t stride, int64_t n, double *out) const override {
    for (int64_t i = 0; i < n; ++i)
      out[i] = roundTo(kind(), start + step * static_cast<double>(begin + i * stride));
  }

private:
  double start, step;
};

class IntIota : public IntLazy {
public:
  IntIota(ElementKind kind, int64_t size, int64_t start, int64_t step)
      : IntLazy(kind, size), start(start), step(step) {}
  void readInts(int64_t begin, int64_t stride, int64_t n, int64_t *out) const override {
    for (int64_t i = 0; i < n; ++i)
      out[i] = static_cast<int64_t>(static_cast<uint64_t>(start) +
                                    static_cast<uint64_t>(step) *
                                        static_cast<uint64_t>(begin + i * stride)); // wraps around
                                                                                    // as in ONNX
  }

private:
  int64_t start, step;
};

class FloatBuffer : public FloatLazy {
public:
  FloatBuffer(ElementKind kind, std::vector<double> values)
      : FloatLazy(kind, static_cast<int64_t>(values.size())), values(std::move(values)) {}
  void readFloats(int64_t begin, int64_t stride, int64_t n, double *out) const override {
    for (int64_t i = 0; i < n; ++i)
      out[i] = values[begin + i * stride];
  }

private:
  std::vector<double> values;
};

class IntBuffer : public IntLazy {
public:
  IntBuffer(ElementKind kind, std::vector<int64_t> values)
      : IntLazy(kind, static_cast<int64_t>(values.size())), values(std::move(values)) {}
  void readInts(int64_t begin, int64_t stride, int64_t n, int64_t *out) const override {
    for (int64_t i = 0; i < n; ++i)
      out[i] = values[begin + i * stride];
  }

private:
  std::vector<int64_t> values;
};

template <typename T> T load(const uint8_t *from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

class FloatBytes : public FloatLazy {
public:
  FloatBytes(ElementKind kind, TensorBytes bytes, int64_t size)
      : FloatLazy(kind, size), bytes(std::move(bytes)) {}
  void readFloats(int64_t begin, int64_t stride, int64_t n, double *out) const override {
    for (int64_t i = 0; i < n; ++i) {
      int64_t at = begin + i * stride;
      switch (kind()) {
      case ElementKind::F32:
        out[i] = load<float>(bytes.data + 4 * at);
        break;
      case ElementKind::F64:
        out[i] = load<double>(bytes.data + 8 * at);
        break;
      case ElementKind::F16:
        out[i] = halfToFloat(load<uint16_t>(bytes.data + 2 * at));
        break;
      default: {
        uint32_t wide = static_cast<uint32_t>(load<uint16_t>(bytes.data + 2 * at)) << 16;
        float value;
        std::memcpy(&value, &wide, 4);
        out[i] = value;
      }
      }
    }
  }

private:
  TensorBytes bytes;
};

class IntBytes : public IntLazy {
public:
  IntBytes(ElementKind kind, TensorBytes bytes, int64_t size)
      : IntLazy(kind, size), bytes(std::move(bytes)) {}
  void readInts(int64_t begin, int64_t stride, int64_t n, int64_t *out) const override {
    for (int64_t i = 0; i < n; ++i) {
      int64_t at = begin + i * stride;
      switch (kind()) {
      case ElementKind::I64:
      case ElementKind::U64:
        out[i] = load<int64_t>(bytes.data + 8 * at);
        break;
      case ElementKind::I32:
        out[i] = load<int32_t>(bytes.data + 4 * at);
        break;
      case ElementKind::U32:
        out[i] = load<uint32_t>(bytes.data + 4 * at);
        break;
      case ElementKind::I16:
        out[i] = load<int16_t>(bytes.data + 2 * at);
        break;
      case ElementKind::U16:
        out[i] = load<uint16_t>(bytes.data + 2 * at);
        break;
      case ElementKind::I8:
        out[i] = load<int8_t>(bytes.data + at);
        break;
      case ElementKind::Bool:
        out[i] = bytes.data[at] != 0;
        break;
      default:
        out[i] = bytes.data[at];
        break;
      }
    }
  }

private:
  TensorBytes bytes;
};

/// Evaluates the kernel of an expression. Splits a flat read into runs along one axis.
struct ExpressionBody {
  std::vector<int64_t> sizes;
  std::vector<LazyOperand> operands;
  Kernel kernel;

  // Calls emit(position, begin of each operand, stride of each operand, count) for every run of the
  // elements begin, begin + stride, ...
  template <typename Emit> void runs(int64_t begin, int64_t stride, int64_t n, Emit emit) const {
    size_t rank = sizes.size();
    std::vector<int64_t> at(operands.size()), step(operands.size());
    constexpr int64_t chunk = 4096;
    for (int64_t done = 0; done < n;) {
      int64_t flat = begin + done * stride, rest = flat;
      std::vector<int64_t> index(rank, 0);
      for (size_t axis = rank; axis-- > 0;) {
        index[axis] = rest % sizes[axis];
        rest /= sizes[axis];
      }
      // Find the axis of consecutive requested elements; the stride must be a multiple of one step
      // along it.
      int64_t inner = 1, count = 1, along = 0;
      size_t axis = rank;
      while (axis > 0) {
        int64_t size = sizes[axis - 1];
        if (stride < inner * size || axis == 1) {
          if (stride % inner == 0) {
            along = stride / inner;
            count = along ? (size - 1 - index[axis - 1]) / along + 1 : 1;
          }
          break;
        }
        inner *= size;
        --axis;
      }
      count = std::min({count, n - done, chunk});
      for (size_t k = 0; k < operands.size(); ++k) {
        at[k] = operands[k].offset;
        for (size_t i = 0; i < rank; ++i)
          at[k] += index[i] * operands[k].strides[i];
        step[k] = axis > 0 && count > 1 ? operands[k].strides[axis - 1] * along : 0;
      }
      emit(done, at, step, count);
      done += count;
    }
  }

  void readFloatOperands(const std::vector<int64_t> &at, const std::vector<int64_t> &step,
                         int64_t n, std::vector<std::vector<double>> &values,
                         size_t first = 0) const {
    values.resize(operands.size());
    for (size_t k = first; k < operands.size(); ++k) {
      values[k].resize(n);
      if (step[k] == 0) {
        operands[k].base->readFloats(at[k], 0, 1, values[k].data());
        std::fill_n(values[k].data(), n, values[k][0]);
      } else
        operands[k].base->readFloats(at[k], step[k], n, values[k].data());
    }
  }

  void readIntOperands(const std::vector<int64_t> &at, const std::vector<int64_t> &step, int64_t n,
                       std::vector<std::vector<int64_t>> &values, size_t first, size_t end) const {
    values.resize(operands.size());
    for (size_t k = first; k < end; ++k) {
      values[k].resize(n);
      if (step[k] == 0) {
        operands[k].base->readInts(at[k], 0, 1, values[k].data());
        std::fill_n(values[k].data(), n, values[k][0]);
      } else
        operands[k].base->readInts(at[k], step[k], n, values[k].data());
    }
  }
};

template <typename T> std::vector<const T *> pointers(const std::vector<std::vector<T>> &values) {
  std::vector<const T *> out;
  for (const auto &value : values)
    out.push_back(value.data());
  return out;
}

class FloatExpression : public FloatLazy {
public:
  FloatExpression(ElementKind kind, int64_t size, ExpressionBody body)
      : FloatLazy(kind, size), body(std::move(body)) {}
  void readFloats(int64_t begin, int64_t stride, int64_t n, double *out) const override {
    std::vector<std::vector<double>> floats;
    std::vector<std::vector<int64_t>> ints;
    body.runs(begin, stride, n,
              [&](int64_t position, const std::vector<int64_t> &at,
                  const std::vector<int64_t> &step, int64_t count) {
                double *to = out + position;
                if (body.kernel.select) {
                  body.readIntOperands(at, step, count, ints, 0, 1);
                  body.readFloatOperands(at, step, count, floats, 1);
                  for (int64_t i = 0; i < count; ++i)
                    to[i] = ints[0][i] ? floats[1][i] : floats[2][i];
                } else if (body.kernel.intToFloat) {
                  body.readIntOperands(at, step, count, ints, 0, body.operands.size());
                  body.kernel.intToFloat(count, pointers(ints).data(), to);
                } else {
                  body.readFloatOperands(at, step, count, floats);
                  if (body.kernel.copy)
                    std::copy_n(floats[0].data(), count, to);
                  else
                    body.kernel.floats(count, pointers(floats).data(), to);
                }
                if (kind() != ElementKind::F64)
                  for (int64_t i = 0; i < count; ++i)
                    to[i] = roundTo(kind(), to[i]);
              });
  }

private:
  ExpressionBody body;
};

class IntExpression : public IntLazy {
public:
  IntExpression(ElementKind kind, int64_t size, ExpressionBody body)
      : IntLazy(kind, size), body(std::move(body)) {}
  void readInts(int64_t begin, int64_t stride, int64_t n, int64_t *out) const override {
    std::vector<std::vector<double>> floats;
    std::vector<std::vector<int64_t>> ints;
    body.runs(begin, stride, n,
              [&](int64_t position, const std::vector<int64_t> &at,
                  const std::vector<int64_t> &step, int64_t count) {
                int64_t *to = out + position;
                if (body.kernel.floatToInt) {
                  body.readFloatOperands(at, step, count, floats);
                  body.kernel.floatToInt(count, pointers(floats).data(), to);
                } else {
                  body.readIntOperands(at, step, count, ints, 0, body.operands.size());
                  if (body.kernel.select)
                    for (int64_t i = 0; i < count; ++i)
                      to[i] = ints[0][i] ? ints[1][i] : ints[2][i];
                  else if (body.kernel.copy)
                    std::copy_n(ints[0].data(), count, to);
                  else
                    body.kernel.ints(count, pointers(ints).data(), to);
                }
                if (kind() != ElementKind::I64)
                  for (int64_t i = 0; i < count; ++i)
                    to[i] = wrapTo(kind(), to[i]);
              });
  }

private:
  ExpressionBody body;
};

template <typename Base> class Interleaved : public Base {
public:
  Interleaved(ElementKind kind, int64_t size, std::vector<LazyPtr> parts, std::vector<int64_t> runs)
      : Base(kind, size), parts(std::move(parts)), runs(std::move(runs)) {
    for (int64_t run : this->runs)
      period += run;
  }

protected:
  template <typename T> void read(int64_t begin, int64_t stride, int64_t n, T *out) const {
    for (int64_t i = 0; i < n;) {
      int64_t flat = begin + i * stride, round = flat / period, inside = flat % period;
      size_t part = 0;
      while (inside >= runs[part])
        inside -= runs[part++];
      int64_t count = stride == 0 ? 1 : std::min(n - i, (runs[part] - 1 - inside) / stride + 1);
      if constexpr (std::is_same_v<T, double>)
        parts[part]->readFloats(round * runs[part] + inside, stride, count, out + i);
      else
        parts[part]->readInts(round * runs[part] + inside, stride, count, out + i);
      i += count;
    }
  }

private:
  std::vector<LazyPtr> parts;
  std::vector<int64_t> runs;
  int64_t period = 0;
};

class FloatInterleaved : public Interleaved<FloatLazy> {
public:
  using Interleaved::Interleaved;
  void readFloats(int64_t begin, int64_t stride, int64_t n, double *out) const override {
    read(begin, stride, n, out);
  }
};
class IntInterleaved : public Interleaved<IntLazy> {
public:
  using Interleaved::Interleaved;
  void readInts(int64_t begin, int64_t stride, int64_t n, int64_t *out) const override {
    read(begin, stride, n, out);
  }
};

} // namespace

LazyPtr zorse::onnx_import::makeFill(ElementKind kind, int64_t size, double value) {
  if (!isFloat(kind))
    return makeIntFill(kind, size, truncateToInt(value));
  return std::make_shared<FloatFill>(kind, size, roundTo(kind, value));
}

LazyPtr zorse::onnx_import::makeIntFill(ElementKind kind, int64_t size, int64_t value) {
  if (isFloat(kind))
    return makeFill(kind, size, static_cast<double>(value));
  return std::make_shared<IntFill>(kind, size, wrapTo(kind, value));
}

LazyPtr zorse::onnx_import::makeIota(ElementKind kind, int64_t size, double start, double step) {
  if (isFloat(kind))
    return std::make_shared<FloatIota>(kind, size, start, step);
  return std::make_shared<IntIota>(kind, size, truncateToInt(start), truncateToInt(step));
}

LazyPtr zorse::onnx_import::makeFloats(ElementKind kind, std::vector<double> values) {
  return std::make_shared<FloatBuffer>(kind, std::move(values));
}
LazyPtr zorse::onnx_import::makeInts(ElementKind kind, std::vector<int64_t> values) {
  return std::make_shared<IntBuffer>(kind, std::move(values));
}

LazyPtr zorse::onnx_import::makeBytes(ElementKind kind, TensorBytes bytes, int64_t size) {
  if (isFloat(kind))
    return std::make_shared<FloatBytes>(kind, std::move(bytes), size);
  return std::make_shared<IntBytes>(kind, std::move(bytes), size);
}

static LazyPtr stored(LazyPtr lazy) {
  if (lazy->isFloat()) {
    std::vector<double> values(lazy->size());
    lazy->readFloats(0, 1, lazy->size(), values.data());
    return makeFloats(lazy->kind(), std::move(values));
  }
  std::vector<int64_t> values(lazy->size());
  lazy->readInts(0, 1, lazy->size(), values.data());
  return makeInts(lazy->kind(), std::move(values));
}

LazyPtr zorse::onnx_import::makeExpression(ElementKind kind, std::vector<int64_t> sizes,
                                           std::vector<LazyOperand> operands, Kernel kernel) {
  int64_t size = 1;
  for (int64_t extent : sizes)
    size *= extent;
  ExpressionBody body{std::move(sizes), std::move(operands), std::move(kernel)};
  LazyPtr result;
  if (isFloat(kind))
    result = std::make_shared<FloatExpression>(kind, size, std::move(body));
  else
    result = std::make_shared<IntExpression>(kind, size, std::move(body));
  return size <= storeLimit ? stored(result) : result;
}

LazyPtr zorse::onnx_import::makeInterleaved(ElementKind kind, std::vector<LazyPtr> parts,
                                            std::vector<int64_t> runs, int64_t repeats) {
  int64_t size = 0;
  for (int64_t run : runs)
    size += run;
  size *= repeats;
  LazyPtr result;
  if (isFloat(kind))
    result = std::make_shared<FloatInterleaved>(kind, size, std::move(parts), std::move(runs));
  else
    result = std::make_shared<IntInterleaved>(kind, size, std::move(parts), std::move(runs));
  return size <= storeLimit ? stored(result) : result;
}
