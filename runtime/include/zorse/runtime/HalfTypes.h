// bf16 and f16 as bits, to and from f32, rounding to nearest even.
#pragma once

#include <cstdint>
#include <cstring>

namespace zorse::runtime {

inline uint32_t floatBits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline float floatOf(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

inline float bf16ToFloat(uint16_t x) { return floatOf(uint32_t(x) << 16); }

inline uint16_t floatToBf16(float x) {
  uint32_t bits = floatBits(x);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return uint16_t(bits >> 16 | 0x40); // a NaN stays one.
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float f16ToFloat(uint16_t x) {
  uint32_t sign = uint32_t(x & 0x8000) << 16, exponent = x >> 10 & 31, fraction = x & 0x3ff;
  if (exponent == 31)
    return floatOf(sign | 0x7f800000 | fraction << 13);
  if (exponent == 0) {
    float tiny = float(fraction) * 5.9604644775390625e-8f; // 2^-24
    return sign ? -tiny : tiny;
  }
  return floatOf(sign | (exponent + 112) << 23 | fraction << 13);
}

inline uint16_t floatToF16(float x) {
  uint32_t bits = floatBits(x), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
  if (size > 0x7f800000)
    return uint16_t(sign | 0x7e00);
  if (size >= 0x477ff000)
    return uint16_t(sign | 0x7c00); // rounds to more than 65504.
  if (size < 0x38800000) {          // below 2^-14: adding 0.5 leaves the rounded multiple of 2^-24 in the low bits.
    float shifted = floatOf(size) + 0.5f;
    return uint16_t(sign | (floatBits(shifted) - floatBits(0.5f)));
  }
  return uint16_t(sign | ((size + 0xfff + (size >> 13 & 1) - (112u << 23)) >> 13));
}

} // namespace zorse::runtime
