// Tensor elements as bytes in device memory, and buffers with poisoned contents.
#pragma once

#include "zorse/runtime/Device.h"

#include "mlir/IR/BuiltinTypes.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

namespace zorse::test {

inline int64_t roundUp64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

inline int64_t bytesOf(mlir::Type element) {
  unsigned bits = element.getIntOrFloatBitWidth();
  return bits < 8 ? 1 : bits / 8;
}

struct Buffer {
  explicit Buffer(size_t bytes)
      : size(roundUp64(bytes + 64)),
        data(static_cast<char *>(std::aligned_alloc(64, size)), std::free) {
    // A NaN as f32 and as f64, so that reads of unwritten bytes are visible.
    for (size_t i = 0; i + 8 <= size; i += 8)
      std::memcpy(data.get() + i, &runtime::kPoisonWord, 8);
  }
  size_t size;
  std::unique_ptr<char, void (*)(void *)> data;
};

/// Converts a number to a bf16 or f16 element, and back.
inline uint16_t halfOf(double value, mlir::Type element) {
  llvm::APFloat number(value);
  bool lost;
  number.convert(llvm::cast<mlir::FloatType>(element).getFloatSemantics(),
                 llvm::APFloat::rmNearestTiesToEven, &lost);
  return static_cast<uint16_t>(number.bitcastToAPInt().getZExtValue());
}
inline double numberOf(uint16_t half, mlir::Type element) {
  llvm::APFloat number(llvm::cast<mlir::FloatType>(element).getFloatSemantics(),
                       llvm::APInt(16, half));
  bool lost;
  number.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &lost);
  return number.convertToDouble();
}
inline bool isHalf(mlir::Type element) {
  return llvm::isa<mlir::FloatType>(element) && element.getIntOrFloatBitWidth() == 16;
}

inline void write(char *to, mlir::Type element, const std::vector<double> &values) {
  for (size_t i = 0; i < values.size(); ++i) {
    double v = values[i];
    if (element.isF32())
      reinterpret_cast<float *>(to)[i] = static_cast<float>(v);
    else if (element.isF64())
      reinterpret_cast<double *>(to)[i] = v;
    else if (isHalf(element))
      reinterpret_cast<uint16_t *>(to)[i] = halfOf(v, element);
    else if (element.isInteger(64))
      reinterpret_cast<int64_t *>(to)[i] = static_cast<int64_t>(v);
    else if (element.isInteger(32))
      reinterpret_cast<int32_t *>(to)[i] = static_cast<int32_t>(v);
    else
      to[i] = v != 0;
  }
}

inline std::vector<double> read(const char *from, mlir::Type element, size_t count) {
  std::vector<double> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = element.isF32()   ? reinterpret_cast<const float *>(from)[i]
                : element.isF64() ? reinterpret_cast<const double *>(from)[i]
                : isHalf(element) ? numberOf(reinterpret_cast<const uint16_t *>(from)[i], element)
                : element.isInteger(64)
                    ? static_cast<double>(reinterpret_cast<const int64_t *>(from)[i])
                : element.isInteger(32) ? reinterpret_cast<const int32_t *>(from)[i]
                                        : from[i];
  return values;
}

} // namespace zorse::test
