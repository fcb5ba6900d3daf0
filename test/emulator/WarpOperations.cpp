#include "WarpOperations.h"

#include <cmath>
#include <cstring>

using namespace zorse::emulator;

namespace {

float numberOf(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

uint32_t bitsOf(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}

float widen(uint16_t stored, bool isHalf) {
  if (!isHalf)
    return numberOf(uint32_t(stored) << 16);
  const uint32_t sign = uint32_t(stored >> 15) << 31, exponent = stored >> 10 & 31,
                 fraction = stored & 1023;
  if (exponent == 31)
    return numberOf(sign | 0x7f800000u | fraction << 13);
  if (exponent == 0)
    return numberOf(sign | bitsOf(std::ldexp(float(fraction), -24)));
  return numberOf(sign | (exponent + 112) << 23 | fraction << 13);
}

uint16_t narrow(float x, bool isHalf) {
  const uint32_t bits = bitsOf(x), sign = bits >> 16 & 0x8000;
  if (std::isnan(x))
    return 0x7fff;
  if (!isHalf)
    return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  const float size = std::fabs(x);
  if (size >= 65520.0f)
    return uint16_t(sign | 0x7c00);
  if (size < 0x1p-14f) // subnormal: multiples of 2^-24, which nearbyint rounds to even
    return uint16_t(sign | uint32_t(std::nearbyint(double(size) * 0x1p24)));
  const uint32_t rounded = (bits & 0x7fffffff) + 0xfff + (bits >> 13 & 1);
  return uint16_t(sign | ((rounded >> 13) - (112u << 10)));
}

float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

} // namespace

void zorse::emulator::multiplyMatrices(const std::array<MultiplyOperands, 32> &operands,
                                       bool isHalf, std::array<FourRegisters, 32> &results) {
  float a[16][16], b[16][8];
  double sums[16][8];
  auto two = [&](uint32_t packed, float &first, float &second) {
    first = widen(uint16_t(packed), isHalf);
    second = widen(uint16_t(packed >> 16), isHalf);
  };
  for (size_t lane = 0; lane < 32; ++lane) {
    const MultiplyOperands &in = operands[lane];
    const size_t group = lane / 4, pair = 2 * (lane % 4);
    for (size_t i = 0; i < 4; ++i) {
      const size_t row = group + 8 * (i % 2), column = pair + 8 * (i / 2);
      two(in[i], a[row][column], a[row][column + 1]);
    }
    for (size_t i = 0; i < 2; ++i)
      two(in[4 + i], b[pair + 8 * i][group], b[pair + 8 * i + 1][group]);
    for (size_t i = 0; i < 4; ++i)
      sums[group + 8 * (i / 2)][pair + i % 2] = double(numberOf(in[6 + i]));
  }
  for (size_t row = 0; row < 16; ++row)
    for (size_t k = 0; k < 16; ++k)
      for (size_t column = 0; column < 8; ++column)
        sums[row][column] += double(a[row][k]) * double(b[k][column]);
  for (size_t lane = 0; lane < 32; ++lane)
    for (size_t i = 0; i < 4; ++i)
      results[lane][i] = bitsOf(float(sums[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2]));
}

void zorse::emulator::distributeMatrices(const std::array<std::array<uint16_t, 8>, 32> &rows,
                                         bool transposed, std::array<FourRegisters, 32> &results) {
  for (size_t lane = 0; lane < 32; ++lane)
    for (size_t i = 0; i < 4; ++i) {
      const size_t outer = lane / 4, inner = 2 * (lane % 4);
      const uint16_t first = transposed ? rows[8 * i + inner][outer] : rows[8 * i + outer][inner];
      const uint16_t second = transposed ? rows[8 * i + inner + 1][outer]
                                         : rows[8 * i + outer][inner + 1];
      results[lane][i] = uint32_t(second) << 16 | first;
    }
}

uint32_t zorse::emulator::packNumbers(float high, float low, bool isHalf) {
  return uint32_t(narrow(high, isHalf)) << 16 | narrow(low, isHalf);
}
float zorse::emulator::widenNumber(uint16_t stored, bool isHalf) { return widen(stored, isHalf); }

float zorse::emulator::exp2Flushed(float x) { return flushed(std::exp2(flushed(x))); }
float zorse::emulator::reciprocalFlushed(float x) { return flushed(1.0f / flushed(x)); }
