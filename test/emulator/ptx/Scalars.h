// What instructions on the registers of one thread compute (PTX ISA 8.7, 9.7.1 to 9.7.9), by opcode with all modifiers.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <unordered_map>

namespace zorse::emulator::ptx {

/// Takes and gives the bits of registers, zeros above.
using ScalarFunction = uint64_t (*)(uint64_t, uint64_t, uint64_t);

/// Which bits of a result depend on bits that are undefined.
enum class Definedness : uint8_t {
  Strict, ///< all, if any bit of an operand is undefined
  Routed, ///< those that the function moves there from its data operands; the others must be defined
  And,    ///< as the bits of the operands; a 0 decides
  Or,     ///< a 1 decides
  Xor
};

struct ScalarOperation {
  ScalarFunction function = nullptr;
  uint8_t resultBits = 0, sources = 0;
  uint8_t sourceBits[3] = {};
  Definedness definedness = Definedness::Strict;
  uint8_t data = 0;        ///< of Routed: operands that hold data
  bool takesWider = false; ///< registers may be wider than the types, as those of cvt may
};

using ScalarTable = std::unordered_map<std::string, ScalarOperation>;

/// Null: not known.
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
constexpr uint16_t kNaN16 = 0x7fff; ///< of f16 and bf16
constexpr uint64_t kNaN64 = 0x7ff8000000000000;

/// The type's canonical NaN for every NaN.
inline uint64_t canonical(float x) { return x != x ? kNaN32 : bits(x); }
inline uint64_t canonical(double x) { return x != x ? kNaN64 : bits(x); }

/// 16 bits as a number, exactly.
float widened(uint16_t bits, bool isHalf);
/// \param towardZero  else to nearest, ties to even
uint16_t narrowed(float x, bool isHalf, bool towardZero = false);

} // namespace zorse::emulator::ptx
