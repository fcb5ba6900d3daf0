// Warp operations of sm_80 on the registers of 32 lanes (PTX ISA 7.0, 9.7.13 and 9.7.8).
#pragma once

#include <array>
#include <cstdint>

namespace zorse::emulator {

/// Registers of a lane for mma.sync.m16n8k16: four of the left operand, two of the right one, and
/// four f32 sums as bits.
using MultiplyOperands = std::array<uint32_t, 10>;
using FourRegisters = std::array<uint32_t, 4>;

/// d = a * b + c. Every product is exact and every sum is rounded once. Tensor cores keep fewer
/// bits below the largest term; the details differ between generations.
/// \param isHalf  f16, else bf16
void multiplyMatrices(const std::array<MultiplyOperands, 32> &operands, bool isHalf,
                      std::array<FourRegisters, 32> &results);

/// ldmatrix.x4: lane 8 i + r provides 16 bytes, row r of matrix i.
void distributeMatrices(const std::array<std::array<uint16_t, 8>, 32> &rows, bool transposed,
                        std::array<FourRegisters, 32> &results);

/// Two numbers rounded to nearest, ties to even; `low` is in the lower half.
uint32_t packNumbers(float high, float low, bool isHalf);
float widenNumber(uint16_t stored, bool isHalf);

/// Subnormal inputs and results are flushed to 0.
float exp2Flushed(float x);
float reciprocalFlushed(float x);

} // namespace zorse::emulator
