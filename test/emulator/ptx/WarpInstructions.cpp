// Instructions that exchange registers between the lanes of a warp (PTX ISA 8.7, 9.7.9.6, 9.7.13.5
// and 9.7.14.5).
#include "Warp.h"

using namespace zorse::emulator::ptx;

void zorse::emulator::ptx::executeExchange(Warp &warp, const Instruction &i, uint32_t lanes) {
  uint64_t values[32] = {}, undefined[32] = {};
  forLanes(lanes, [&](uint32_t lane) {
    const auto flips = uint32_t(warp.valueOf(i.sources[1], lane)) & 31,
               clamp = uint32_t(warp.valueOf(i.sources[2], lane));
    const uint32_t segment = clamp >> 8 & 31, last = (lane & segment) | (clamp & 31 & ~segment);
    const uint32_t other = lane ^ flips, from = other <= last ? other : lane;
    // The register of a lane that does not take part is undefined.
    const bool isThere = lanes >> from & 1;
    values[lane] = warp.valueOf(i.sources[0], from);
    undefined[lane] = isThere ? warp.undefinedOf(i.sources[0], from) : maskOf(32);
    if (warp.undefinedOf(i.sources[1], lane) || warp.undefinedOf(i.sources[2], lane))
      undefined[lane] = maskOf(32);
  });
  forLanes(lanes,
           [&](uint32_t lane) { warp.set(i.results[0], lane, values[lane], undefined[lane]); });
}

void zorse::emulator::ptx::executeBallot(Warp &warp, const Instruction &i, uint32_t lanes) {
  uint64_t votes = 0, undefined = 0;
  forLanes(lanes, [&](uint32_t lane) {
    votes |= (warp.valueOf(i.sources[0], lane) & 1) << lane;
    undefined |= (warp.undefinedOf(i.sources[0], lane) & 1) << lane;
  });
  forLanes(lanes, [&](uint32_t lane) { warp.set(i.results[0], lane, votes, undefined); });
}

namespace {

/// Position in its matrix of element `i` of a lane's registers.
struct Place {
  uint32_t row, column;
};
Place placeInA(uint32_t lane, uint32_t i) {
  const uint32_t group = lane >> 2, inGroup = lane & 3;
  const bool isUpper = i < 2 || (i >= 4 && i < 6);
  return {isUpper ? group : group + 8, inGroup * 2 + (i & 1) + (i < 4 ? 0 : 8)};
}
Place placeInB(uint32_t lane, uint32_t i) {
  const uint32_t group = lane >> 2, inGroup = lane & 3;
  return {inGroup * 2 + (i & 1) + (i < 2 ? 0 : 8), group};
}
Place placeInC(uint32_t lane, uint32_t i) {
  const uint32_t group = lane >> 2, inGroup = lane & 3;
  return {i < 2 ? group : group + 8, inGroup * 2 + (i & 1)};
}

/// Operands of a product, and their undefined elements, which make all dependent results undefined.
struct Matrices {
  double a[16][16], b[16][8], c[16][8];
  bool undefinedA[16] = {}, undefinedB[8] = {}, undefinedC[16][8] = {}; ///< by row of A, by column
                                                                        ///< of B
};

void gather(const Warp &warp, const Instruction &in, Matrices &m) {
  for (uint32_t lane = 0; lane < 32; ++lane) {
    for (uint32_t i = 0; i < 8; ++i) {
      const Place at = placeInA(lane, i);
      m.a[at.row][at.column] = double(
          widened(uint16_t(warp.valueOf(in.sources[i / 2], lane) >> 16 * (i & 1)), in.isHalf));
      m.undefinedA[at.row] |=
          (warp.undefinedOf(in.sources[i / 2], lane) >> 16 * (i & 1) & 0xffff) != 0;
    }
    for (uint32_t i = 0; i < 4; ++i) {
      const Place at = placeInB(lane, i);
      m.b[at.row][at.column] = double(
          widened(uint16_t(warp.valueOf(in.sources[4 + i / 2], lane) >> 16 * (i & 1)), in.isHalf));
      m.undefinedB[at.column] |=
          (warp.undefinedOf(in.sources[4 + i / 2], lane) >> 16 * (i & 1) & 0xffff) != 0;
    }
    for (uint32_t i = 0; i < 4; ++i) {
      const Place at = placeInC(lane, i);
      m.c[at.row][at.column] = double(as<float>(warp.valueOf(in.sources[6 + i], lane)));
      m.undefinedC[at.row][at.column] = (warp.undefinedOf(in.sources[6 + i], lane) & maskOf(32)) !=
                                        0;
    }
  }
}

} // namespace

/// d = a b + c. Order and precision of the sums depend on the hardware; here they equal those of
/// the bitcode emulator.
void zorse::emulator::ptx::executeMultiply(Warp &warp, const Instruction &in) {
  Matrices m;
  gather(warp, in, m);
  for (uint32_t row = 0; row < 16; ++row)
    for (uint32_t k = 0; k < 16; ++k)
      for (uint32_t column = 0; column < 8; ++column)
        m.c[row][column] += m.a[row][k] * m.b[k][column];
  for (uint32_t lane = 0; lane < 32; ++lane)
    for (uint32_t i = 0; i < 4; ++i) {
      const Place at = placeInC(lane, i);
      const bool isUndefined = m.undefinedA[at.row] || m.undefinedB[at.column] ||
                               m.undefinedC[at.row][at.column];
      warp.set(in.results[i], lane, canonical(float(m.c[at.row][at.column])),
               isUndefined ? maskOf(32) : 0);
    }
}
