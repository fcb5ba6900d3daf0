#include "Scalars.h"

#include "WarpOperations.h"

#include <cfenv>
#include <cmath>
#include <type_traits>

using namespace zorse::emulator::ptx;

namespace {

/// Sets the rounding mode in its scope.
class Rounding {
public:
  explicit Rounding(int mode) : before(std::fegetround()) { std::fesetround(mode); }
  ~Rounding() { std::fesetround(before); }

private:
  int before;
};

template <typename T> T flushed(T x) {
  return std::fabs(x) < T(0x1p-126) ? std::copysign(T(0), x) : x;
}

enum class What { Add, Subtract, Multiply, Fma, Divide, Reciprocal, Root };

/// Operands are volatile, so that the compiler computes nothing before the rounding mode is set.
template <What what, typename T> T compute(T x, T y, T z) {
  volatile T a = x, b = y, c = z, result = 0;
  switch (what) {
  case What::Add:
    return result = a + b;
  case What::Subtract:
    return result = a - b;
  case What::Multiply:
    return result = a * b;
  case What::Fma:
    return result = std::fma(T(a), T(b), T(c));
  case What::Divide:
    return result = a / b;
  case What::Reciprocal:
    return result = T(1) / a;
  case What::Root:
    return result = std::sqrt(T(a));
  }
}

template <What what, typename T> uint64_t nearest(uint64_t a, uint64_t b, uint64_t c) {
  if constexpr (what == What::Add)
    return canonical(as<T>(a) + as<T>(b));
  else if constexpr (what == What::Subtract)
    return canonical(as<T>(a) - as<T>(b));
  else if constexpr (what == What::Multiply)
    return canonical(as<T>(a) * as<T>(b));
  else
    return canonical(compute<what>(as<T>(a), as<T>(b), as<T>(c)));
}

template <What what, typename T, int mode> uint64_t rounded(uint64_t a, uint64_t b, uint64_t c) {
  Rounding rounding(mode);
  return canonical(compute<what>(as<T>(a), as<T>(b), as<T>(c)));
}

template <What what, int mode> uint64_t roundedFlushed(uint64_t a, uint64_t b, uint64_t c) {
  Rounding rounding(mode);
  return canonical(
      flushed(compute<what>(flushed(as<float>(a)), flushed(as<float>(b)), flushed(as<float>(c)))));
}

/// \param plain  also add the form without a rounding modifier, which rounds to nearest. The
/// assembler may contract such a product and such a sum to fma; here they are rounded separately.
template <What what, typename T>
void addRounded(ScalarTable &table, const std::string &name, uint8_t sources, bool plain) {
  constexpr uint8_t w = 8 * sizeof(T);
  const std::string type = sizeof(T) == 4 ? ".f32" : ".f64";
  auto of = [&](ScalarFunction function) {
    return ScalarOperation{function, w, sources, {w, w, w}};
  };
  table[name + ".rn" + type] = of(nearest<what, T>);
  table[name + ".rz" + type] = of(rounded<what, T, FE_TOWARDZERO>);
  table[name + ".rm" + type] = of(rounded<what, T, FE_DOWNWARD>);
  table[name + ".rp" + type] = of(rounded<what, T, FE_UPWARD>);
  if (sizeof(T) == 4) {
    table[name + ".rn.ftz" + type] = of(roundedFlushed<what, FE_TONEAREST>);
    table[name + ".rz.ftz" + type] = of(roundedFlushed<what, FE_TOWARDZERO>);
  }
  if (plain) {
    table[name + type] = of(nearest<what, T>);
    if (sizeof(T) == 4)
      table[name + ".ftz" + type] = of(roundedFlushed<what, FE_TONEAREST>);
  }
}

template <typename T> void addArithmetic(ScalarTable &table) {
  addRounded<What::Add, T>(table, "add", 2, true);
  addRounded<What::Subtract, T>(table, "sub", 2, true);
  addRounded<What::Multiply, T>(table, "mul", 2, true);
  addRounded<What::Fma, T>(table, "fma", 3, false);
  addRounded<What::Divide, T>(table, "div", 2, false);
  addRounded<What::Reciprocal, T>(table, "rcp", 1, false);
  addRounded<What::Root, T>(table, "sqrt", 1, false);
}

/// Operates on two f32 in a register.
template <What what>
void addPairs(ScalarTable &table, const std::string &name, uint8_t sources, bool plain) {
  const ScalarOperation both = {[](uint64_t a, uint64_t b, uint64_t c) {
                                  return nearest<what, float>(uint32_t(a), uint32_t(b),
                                                              uint32_t(c)) |
                                         nearest<what, float>(a >> 32, b >> 32, c >> 32) << 32;
                                },
                                64,
                                sources,
                                {64, 64, 64}};
  table[name + ".rn.f32x2"] = both;
  if (plain)
    table[name + ".f32x2"] = both;
}

/// A negative zero is less than a positive one.
template <typename T> T lesser(T a, T b) { return a < b || (a == b && std::signbit(a)) ? a : b; }
template <typename T> T greater(T a, T b) { return a > b || (a == b && !std::signbit(a)) ? a : b; }

template <typename T, bool isMaximum, bool keepsNaN>
uint64_t choose(uint64_t x, uint64_t y, uint64_t) {
  const T a = as<T>(x), b = as<T>(y);
  if (a != a || b != b)
    return keepsNaN || (a != a && b != b) ? canonical(T(NAN)) : bits(a != a ? b : a);
  return bits(isMaximum ? greater(a, b) : lesser(a, b));
}

template <typename T> void addChoices(ScalarTable &table) {
  constexpr uint8_t w = 8 * sizeof(T);
  const std::string type = sizeof(T) == 4 ? ".f32" : ".f64";
  table["min" + type] = {choose<T, false, false>, w, 2, {w, w}};
  table["max" + type] = {choose<T, true, false>, w, 2, {w, w}};
  if (sizeof(T) == 4) {
    table["min.NaN" + type] = {choose<T, false, true>, w, 2, {w, w}};
    table["max.NaN" + type] = {choose<T, true, true>, w, 2, {w, w}};
  }
  table["neg" + type] = {[](uint64_t a, uint64_t, uint64_t) { return a ^ uint64_t(1) << (w - 1); },
                         w,
                         1,
                         {w},
                         Definedness::Xor};
  table["abs" + type] = {
      [](uint64_t a, uint64_t, uint64_t) { return a & ~(uint64_t(1) << (w - 1)); },
      w,
      1,
      {w},
      Definedness::Xor};
  table["copysign" + type] = {
      [](uint64_t a, uint64_t b, uint64_t) { return bits(std::copysign(as<T>(b), as<T>(a))); },
      w,
      2,
      {w, w}};
}

struct F16 {};
struct Bf16 {};
/// The number in a register.
template <typename T> auto valueOf(uint64_t bits) {
  if constexpr (std::is_same_v<T, F16> || std::is_same_v<T, Bf16>)
    return widened(uint16_t(bits), std::is_same_v<T, F16>);
  else
    return as<T>(bits);
}

template <typename T> void addComparisons(ScalarTable &table) {
  constexpr uint8_t w = std::is_same_v<T, double> ? 64 : std::is_same_v<T, float> ? 32 : 16;
  const std::string type = std::is_same_v<T, Bf16> ? ".bf16" : ".f" + std::to_string(w);
  auto add = [&](const char *name, ScalarFunction function) {
    table[std::string("setp.") + name + type] = {function, 1, 2, {w, w}};
  };
  add("eq",
      [](uint64_t a, uint64_t b, uint64_t) { return uint64_t(valueOf<T>(a) == valueOf<T>(b)); });
  add("ne", [](uint64_t a, uint64_t b, uint64_t) {
    return uint64_t(valueOf<T>(a) < valueOf<T>(b) || valueOf<T>(a) > valueOf<T>(b));
  });
  add("lt",
      [](uint64_t a, uint64_t b, uint64_t) { return uint64_t(valueOf<T>(a) < valueOf<T>(b)); });
  add("le",
      [](uint64_t a, uint64_t b, uint64_t) { return uint64_t(valueOf<T>(a) <= valueOf<T>(b)); });
  add("gt",
      [](uint64_t a, uint64_t b, uint64_t) { return uint64_t(valueOf<T>(a) > valueOf<T>(b)); });
  add("ge",
      [](uint64_t a, uint64_t b, uint64_t) { return uint64_t(valueOf<T>(a) >= valueOf<T>(b)); });
  // Forms with u are also true if a number is NaN.
  add("equ", [](uint64_t a, uint64_t b, uint64_t) {
    return uint64_t(!(valueOf<T>(a) < valueOf<T>(b) || valueOf<T>(a) > valueOf<T>(b)));
  });
  add("neu",
      [](uint64_t a, uint64_t b, uint64_t) { return uint64_t(valueOf<T>(a) != valueOf<T>(b)); });
  add("ltu",
      [](uint64_t a, uint64_t b, uint64_t) { return uint64_t(!(valueOf<T>(a) >= valueOf<T>(b))); });
  add("leu",
      [](uint64_t a, uint64_t b, uint64_t) { return uint64_t(!(valueOf<T>(a) > valueOf<T>(b))); });
  add("gtu",
      [](uint64_t a, uint64_t b, uint64_t) { return uint64_t(!(valueOf<T>(a) <= valueOf<T>(b))); });
  add("geu",
      [](uint64_t a, uint64_t b, uint64_t) { return uint64_t(!(valueOf<T>(a) < valueOf<T>(b))); });
  add("num", [](uint64_t a, uint64_t b, uint64_t) {
    return uint64_t(valueOf<T>(a) == valueOf<T>(a) && valueOf<T>(b) == valueOf<T>(b));
  });
  add("nan", [](uint64_t a, uint64_t b, uint64_t) {
    return uint64_t(valueOf<T>(a) != valueOf<T>(a) || valueOf<T>(b) != valueOf<T>(b));
  });
}

// ---- 16-bit numbers, one or two per register. f32 has more than twice the bits, so computing in
// it and rounding again equals a single rounding.

enum class Half { Add, Subtract, Multiply, Min, Greatest };

template <Half what, bool isHalf> uint16_t halfOf(uint16_t x, uint16_t y) {
  const float a = widened(x, isHalf), b = widened(y, isHalf);
  switch (what) {
  case Half::Add:
    return narrowed(a + b, isHalf);
  case Half::Subtract:
    return narrowed(a - b, isHalf);
  case Half::Multiply:
    return narrowed(a * b, isHalf);
  case Half::Min:
    return a != a || b != b ? kNaN16 : narrowed(lesser(a, b), isHalf);
  case Half::Greatest:
    return a != a || b != b ? kNaN16 : narrowed(greater(a, b), isHalf);
  }
}

template <Half what, bool isHalf> void addHalf(ScalarTable &table, const std::string &name) {
  const std::string type = isHalf ? ".f16" : ".bf16";
  table[name + type] = {[](uint64_t a, uint64_t b, uint64_t) {
                          return uint64_t(halfOf<what, isHalf>(uint16_t(a), uint16_t(b)));
                        },
                        16,
                        2,
                        {16, 16}};
  table[name + type + "x2"] = {
      [](uint64_t a, uint64_t b, uint64_t) {
        const auto low = uint64_t(halfOf<what, isHalf>(uint16_t(a), uint16_t(b)));
        return low | uint64_t(halfOf<what, isHalf>(uint16_t(a >> 16), uint16_t(b >> 16))) << 16;
      },
      32,
      2,
      {32, 32}};
}

/// x y + z, rounded once. The product is exact in f64, and the last bit of the sum records whether
/// bits were lost.
template <bool isHalf> uint16_t fmaOfHalf(uint16_t x, uint16_t y, uint16_t z) {
  const double product = double(widened(x, isHalf)) * double(widened(y, isHalf)),
               term = widened(z, isHalf), sum = product + term;
  // Knuth's two-sum. The intermediate f32 is also rounded to odd, so that only the last rounding
  // matters.
  const double other = sum - product, error = (product - (sum - other)) + (term - other);
  auto cut = float(sum);
  const double rest = (sum - double(cut)) + (std::isfinite(error) ? error : 0);
  if (std::isfinite(cut) && rest != 0 && !(bits(cut) & 1))
    cut = std::nextafter(cut, rest > 0 ? HUGE_VALF : -HUGE_VALF);
  return narrowed(cut, isHalf);
}

template <bool isHalf> void addHalfFma(ScalarTable &table) {
  const std::string type = isHalf ? ".f16" : ".bf16";
  table["fma.rn" + type] = {[](uint64_t a, uint64_t b, uint64_t c) {
                              return uint64_t(
                                  fmaOfHalf<isHalf>(uint16_t(a), uint16_t(b), uint16_t(c)));
                            },
                            16,
                            3,
                            {16, 16, 16}};
  table["fma.rn" + type + "x2"] = {
      [](uint64_t a, uint64_t b, uint64_t c) {
        const uint64_t low = fmaOfHalf<isHalf>(uint16_t(a), uint16_t(b), uint16_t(c));
        return low |
               uint64_t(fmaOfHalf<isHalf>(uint16_t(a >> 16), uint16_t(b >> 16), uint16_t(c >> 16)))
                   << 16;
      },
      32,
      3,
      {32, 32, 32}};
}

/// 16-bit factors and an f32 term, from sm_100 on.
template <What what, bool isHalf>
void addMixed(ScalarTable &table, const std::string &name, bool plain) {
  const std::string type = isHalf ? ".f32.f16" : ".f32.bf16";
  const bool isFma = what == What::Fma;
  const ScalarOperation operation = {
      [](uint64_t a, uint64_t b, uint64_t c) {
        const uint64_t x = bits(widened(uint16_t(a), isHalf));
        return nearest<what, float>(x, what == What::Fma ? bits(widened(uint16_t(b), isHalf)) : b,
                                    c);
      },
      32,
      uint8_t(isFma ? 3 : 2),
      {16, uint8_t(isFma ? 16 : 32), 32}};
  table[name + ".rn" + type] = operation;
  if (plain)
    table[name + type] = operation;
}

template <bool isHalf> void addHalves(ScalarTable &table) {
  addMixed<What::Add, isHalf>(table, "add", true);
  addMixed<What::Subtract, isHalf>(table, "sub", true);
  addMixed<What::Fma, isHalf>(table, "fma", false);
  addHalfFma<isHalf>(table);
  addHalf<Half::Add, isHalf>(table, "add.rn");
  addHalf<Half::Subtract, isHalf>(table, "sub.rn");
  addHalf<Half::Multiply, isHalf>(table, "mul.rn");
  addHalf<Half::Min, isHalf>(table, "min.NaN");
  addHalf<Half::Greatest, isHalf>(table, "max.NaN");
}

/// The ISA bounds the error of approximations; their last bits depend on the hardware. Here they
/// equal those of the bitcode emulator.
void addApproximations(ScalarTable &table) {
  table["ex2.approx.ftz.f32"] = {[](uint64_t a, uint64_t, uint64_t) {
                                   return canonical(zorse::emulator::exp2Flushed(as<float>(a)));
                                 },
                                 32,
                                 1,
                                 {32}};
  table["rcp.approx.ftz.f32"] = {[](uint64_t a, uint64_t, uint64_t) {
                                   return canonical(
                                       zorse::emulator::reciprocalFlushed(as<float>(a)));
                                 },
                                 32,
                                 1,
                                 {32}};
  table["ex2.approx.f32"] = {
      [](uint64_t a, uint64_t, uint64_t) { return canonical(std::exp2(as<float>(a))); },
      32,
      1,
      {32}};
}

} // namespace

void zorse::emulator::ptx::addFloats(ScalarTable &table) {
  addArithmetic<float>(table), addArithmetic<double>(table);
  addPairs<What::Add>(table, "add", 2, true);
  addPairs<What::Subtract>(table, "sub", 2, true);
  addPairs<What::Multiply>(table, "mul", 2, true);
  addPairs<What::Fma>(table, "fma", 3, false);
  addChoices<float>(table), addChoices<double>(table);
  addComparisons<float>(table), addComparisons<double>(table), addComparisons<F16>(table),
      addComparisons<Bf16>(table);
  addHalves<true>(table), addHalves<false>(table);
  addApproximations(table);
}
