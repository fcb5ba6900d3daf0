// Conversion of bf16 and f16 to and from f32, in integer arithmetic that compilers vectorize. The
// rounding rules are those of kernels (lib/Codegen/Common/HalfPrecision.cpp).
#pragma once

#include <cstdint>
#include <cstring>

/// Always inlined: the linker would keep only one of the functions that are compiled for several
/// CPUs.
#define ZORSE_INLINE inline __attribute__((always_inline))

namespace zorse::runtime {

enum class HalfType : uint8_t { BF16, F16 };

ZORSE_INLINE uint32_t bitsOf(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
ZORSE_INLINE float floatOf(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

/// Exact conversion to f32.
template <HalfType type> ZORSE_INLINE float widen(uint16_t half) {
  if (type == HalfType::BF16)
    return floatOf(uint32_t(half) << 16);
  // A subnormal number is an integer times 2^-24; all others get another exponent. No subnormal f32
  // is formed, which a CPU might flush to zero.
  uint32_t magnitude = half & 0x7fff, sign = uint32_t(half & 0x8000) << 16;
  uint32_t normal = (magnitude << 13) + (uint32_t(127 - 15) << 23);
  normal = magnitude >= 0x7c00 ? normal + (uint32_t(127 - 15) << 23) : normal;
  uint32_t subnormal = bitsOf(float(int32_t(magnitude)) * 0x1p-24f);
  return floatOf((magnitude < 0x0400 ? subnormal : normal) | sign);
}

/// Rounds to nearest, ties to even. Too large numbers become infinite; NaN stays NaN.
template <HalfType type> ZORSE_INLINE uint16_t narrow(float x) {
  uint32_t bits = bitsOf(x), magnitude = bits & 0x7fffffff;
  if (type == HalfType::BF16) {
    uint32_t nearest = bits + 0x7fff + (bits >> 16 & 1);
    return uint16_t((magnitude > 0x7f800000 ? bits | 0x00400000 : nearest) >> 16);
  }
  uint32_t nearest = (magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13;
  uint32_t normal = nearest - (uint32_t(127 - 15) << 10);
  normal = normal > 0x7c00 ? 0x7c00 : normal;
  uint32_t subnormal = bitsOf(floatOf(magnitude) + 0.5f) - 0x3f000000; // the last bit of 0.5f is
                                                                       // 2^-24, one subnormal step
  uint32_t half = magnitude < 0x38800000 ? subnormal : normal;
  half = magnitude > 0x7f800000 ? 0x7e00 : half;
  return uint16_t(half | (bits >> 16 & 0x8000));
}

inline float bf16ToFloat(uint16_t x) { return widen<HalfType::BF16>(x); }
inline float f16ToFloat(uint16_t x) { return widen<HalfType::F16>(x); }
inline uint16_t floatToBf16(float x) { return narrow<HalfType::BF16>(x); }
inline uint16_t floatToF16(float x) { return narrow<HalfType::F16>(x); }

} // namespace zorse::runtime
