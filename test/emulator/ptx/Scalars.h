// Instructions on the registers of one thread (PTX ISA 8.7, 9.7.1 to 9.7.9), by opcode with all
// modifiers.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <unordered_map>

namespace zorse::emulator::ptx {

/// Arguments and result are the bits of registers; unused high bits are 0.
using ScalarFunction = uint64_t (*)(uint64_t, uint64_t, uint64_t);

/// Which bits of a result are undefined if bits of the operands are.
enum class Definedness : uint8_t {
  Strict, ///< all bits, if any bit of an operand is undefined
  Routed, ///< the bits that the function moves from undefined bits of its data operands; other
          ///< operands must be defined
  And,    ///< bit by bit; a defined 0 gives a defined result
  Or,     ///< bit by bit; a defined 1 gives a defined result
  Xor
};

struct ScalarOperation {
  ScalarFunction function = nullptr;
  uint8_t resultBits = 0, sources = 0;
  uint8_t sourceBits[3] = {};
  Definedness definedness = Definedness::Strict;
  uint8_t data = 0;        ///< for Routed: number of leading operands that are data
  bool takesWider = false; ///< registers may be wider than the types, as for cvt
};

using ScalarTable = std::unordered_map<std::string, ScalarOperation>;

/// Null: unknown opcode.
const ScalarOperation *findScalar(const std::string &opcode);

// By file.
void addIntegers(ScalarTable &table);
void addFloats(ScalarTable &table);
void addConversions(ScalarTable &table);

// ---- Numbers in registers.

template <typename T> T as(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
template <typename T> uint64_t bits(T value) {
  uint64_t all = 0;
  std::memcpy(&all, &value, sizeof value);
  return all;
}

constexpr uint32_t kNaN32 = 0x7fffffff;
constexpr uint16_t kNaN16 = 0x7fff; ///< for f16 and bf16
constexpr uint64_t kNaN64 = 0x7ff8000000000000;

/// The bits of a number, with the canonical NaN of the type for every NaN.
inline uint64_t canonical(float x) { return x != x ? kNaN32 : bits(x); }
inline uint64_t canonical(double x) { return x != x ? kNaN64 : bits(x); }

/// Converts 16 bits to a number, exactly.
float widened(uint16_t bits, bool isHalf);
/// \param towardZero  otherwise to nearest, ties to even
uint16_t narrowed(float x, bool isHalf, bool towardZero = false);

} // namespace zorse::emulator::ptx
