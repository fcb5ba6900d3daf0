#include "Scalars.h"

#include <cmath>
#include <limits>
#include <type_traits>

using namespace zorse::emulator::ptx;

float zorse::emulator::ptx::widened(uint16_t stored, bool isHalf) {
  if (!isHalf)
    return as<float>(uint64_t(stored) << 16);
  const bool isNegative = stored >> 15;
  const int exponent = stored >> 10 & 31, fraction = stored & 1023;
  if (exponent == 31)
    return as<float>(uint64_t(isNegative) << 31 | 0x7f800000 | uint64_t(fraction) << 13);
  const float size = exponent == 0 ? std::ldexp(float(fraction), -24)
                                   : std::ldexp(float(1024 + fraction), exponent - 25);
  return isNegative ? -size : size;
}

uint16_t zorse::emulator::ptx::narrowed(float x, bool isHalf, bool towardZero) {
  if (x != x)
    return kNaN16;
  const auto all = uint32_t(bits(x));
  const uint32_t sign = all >> 16 & 0x8000, size = all & 0x7fffffff;
  // Number of bits to cut off; it grows below the smallest normal f16.
  uint32_t cut = 16, value = size;
  if (isHalf) {
    cut = 13;
    const uint32_t exponent = size >> 23;
    if (size == 0x7f800000)
      return uint16_t(sign | 0x7c00);
    if (exponent >= 113)
      value = size - (112u << 23);
    else if (exponent < 101)
      return uint16_t(sign); // less than half of the smallest f16
    else {
      value = (size & 0x7fffff) | 0x800000;
      cut = 13 + 113 - exponent;
    }
  }
  uint32_t result = value >> cut;
  const uint32_t rest = value & ((1u << cut) - 1), half = 1u << (cut - 1);
  if (!towardZero && (rest > half || (rest == half && (result & 1))))
    ++result;
  const uint32_t infinite = isHalf ? 0x7c00 : 0x7f80;
  if (result >= infinite && size < 0x7f800000)
    result = towardZero ? infinite - 1 : infinite;
  return uint16_t(sign | result);
}

namespace {

template <typename T> constexpr uint8_t widthOf() { return uint8_t(8 * sizeof(T)); }
template <typename T> std::string nameOf() {
  return std::string(std::is_floating_point_v<T> ? ".f"
                     : std::is_signed_v<T>       ? ".s"
                                                 : ".u") +
         std::to_string(widthOf<T>());
}
template <typename To, typename From>
ScalarOperation conversion(ScalarFunction function, Definedness rule = Definedness::Strict) {
  return {function, widthOf<To>(), 1, {widthOf<From>()}, rule, 1, true};
}

// ---- Integers.

template <typename To, typename From> void addInteger(ScalarTable &table) {
  table["cvt" + nameOf<To>() + nameOf<From>()] = conversion<To, From>(
      [](uint64_t a, uint64_t, uint64_t) { return bits(To(From(a))); }, Definedness::Routed);
}
template <typename To> void addIntegersTo(ScalarTable &table) {
  addInteger<To, uint8_t>(table), addInteger<To, int8_t>(table);
  addInteger<To, uint16_t>(table), addInteger<To, int16_t>(table);
  addInteger<To, uint32_t>(table), addInteger<To, int32_t>(table);
  addInteger<To, uint64_t>(table), addInteger<To, int64_t>(table);
}

// ---- Numbers to integers: rounded, clamped to the type's range, 0 for NaN.

template <typename From> From even(From x) { return std::nearbyint(x); }
template <typename From> From down(From x) { return std::floor(x); }
template <typename From> From up(From x) { return std::ceil(x); }
template <typename From> From towardZero(From x) { return std::trunc(x); }

template <typename To, typename From, From (*round)(From)>
uint64_t toInteger(uint64_t a, uint64_t, uint64_t) {
  const From x = as<From>(a);
  if (x != x)
    return 0;
  const From whole = round(x);
  // The first number beyond the range is a power of two, which every type represents.
  const From beyond = std::ldexp(From(1), std::numeric_limits<To>::digits);
  if (whole >= beyond)
    return bits(std::numeric_limits<To>::max());
  if (whole < From(std::numeric_limits<To>::min()))
    return bits(std::numeric_limits<To>::min());
  return bits(To(whole));
}

template <typename To, typename From> void addToInteger(ScalarTable &table) {
  const std::string types = nameOf<To>() + nameOf<From>();
  table["cvt.rni" + types] = conversion<To, From>(toInteger<To, From, even<From>>);
  table["cvt.rmi" + types] = conversion<To, From>(toInteger<To, From, down<From>>);
  table["cvt.rpi" + types] = conversion<To, From>(toInteger<To, From, up<From>>);
  table["cvt.rzi" + types] = conversion<To, From>(toInteger<To, From, towardZero<From>>);
}

template <typename From> void addWhole(ScalarTable &table) {
  const std::string types = nameOf<From>() + nameOf<From>();
  table["cvt.rni" + types] = conversion<From, From>(
      [](uint64_t a, uint64_t, uint64_t) { return canonical(even(as<From>(a))); });
  table["cvt.rmi" + types] = conversion<From, From>(
      [](uint64_t a, uint64_t, uint64_t) { return canonical(down(as<From>(a))); });
  table["cvt.rpi" + types] = conversion<From, From>(
      [](uint64_t a, uint64_t, uint64_t) { return canonical(up(as<From>(a))); });
  table["cvt.rzi" + types] = conversion<From, From>(
      [](uint64_t a, uint64_t, uint64_t) { return canonical(towardZero(as<From>(a))); });
}

// ---- Integers to numbers, and numbers to numbers.

template <typename To, typename From> void addFromInteger(ScalarTable &table) {
  table["cvt.rn" + nameOf<To>() + nameOf<From>()] =
      conversion<To, From>([](uint64_t a, uint64_t, uint64_t) { return bits(To(From(a))); });
}

/// Truncates f64 to f32.
float cut(double x) {
  const auto nearest = float(x);
  const bool isLonger = std::fabs(double(nearest)) > std::fabs(x);
  return isLonger ? std::nextafter(nearest, 0.0f) : nearest;
}

template <bool isHalf> void addHalf(ScalarTable &table) {
  const std::string type = isHalf ? ".f16" : ".bf16";
  table["cvt.f32" + type] = {
      [](uint64_t a, uint64_t, uint64_t) { return bits(widened(uint16_t(a), isHalf)); },
      32,
      1,
      {16}};
  table["cvt.rn" + type + ".f32"] = {
      [](uint64_t a, uint64_t, uint64_t) { return uint64_t(narrowed(as<float>(a), isHalf)); },
      16,
      1,
      {32}};
  table["cvt.rz" + type + ".f32"] = {
      [](uint64_t a, uint64_t, uint64_t) { return uint64_t(narrowed(as<float>(a), isHalf, true)); },
      16,
      1,
      {32}};
  table["cvt.rn" + type + "x2.f32"] = {[](uint64_t a, uint64_t b, uint64_t) {
                                         return uint64_t(narrowed(as<float>(a), isHalf)) << 16 |
                                                narrowed(as<float>(b), isHalf);
                                       },
                                       32,
                                       2,
                                       {32, 32}};
  table["cvt.rz" + type + "x2.f32"] = {[](uint64_t a, uint64_t b, uint64_t) {
                                         return uint64_t(narrowed(as<float>(a), isHalf, true))
                                                    << 16 |
                                                narrowed(as<float>(b), isHalf, true);
                                       },
                                       32,
                                       2,
                                       {32, 32}};
}

} // namespace

void zorse::emulator::ptx::addConversions(ScalarTable &table) {
  addIntegersTo<uint16_t>(table), addIntegersTo<int16_t>(table);
  addIntegersTo<uint32_t>(table), addIntegersTo<int32_t>(table);
  addIntegersTo<uint64_t>(table), addIntegersTo<int64_t>(table);
  addToInteger<int32_t, float>(table), addToInteger<uint32_t, float>(table);
  addToInteger<int64_t, float>(table), addToInteger<uint64_t, float>(table);
  addToInteger<int32_t, double>(table), addToInteger<uint32_t, double>(table);
  addToInteger<int64_t, double>(table), addToInteger<uint64_t, double>(table);
  addWhole<float>(table), addWhole<double>(table);
  addFromInteger<float, uint16_t>(table), addFromInteger<float, int16_t>(table);
  addFromInteger<float, uint32_t>(table), addFromInteger<float, int32_t>(table);
  addFromInteger<float, uint64_t>(table), addFromInteger<float, int64_t>(table);
  addFromInteger<double, uint32_t>(table), addFromInteger<double, int32_t>(table);
  addFromInteger<double, uint64_t>(table), addFromInteger<double, int64_t>(table);
  table["cvt.f64.f32"] = conversion<double, float>(
      [](uint64_t a, uint64_t, uint64_t) { return canonical(double(as<float>(a))); });
  table["cvt.rn.f32.f64"] = conversion<float, double>(
      [](uint64_t a, uint64_t, uint64_t) { return canonical(float(as<double>(a))); });
  table["cvt.rz.f32.f64"] = conversion<float, double>(
      [](uint64_t a, uint64_t, uint64_t) { return canonical(cut(as<double>(a))); });
  addHalf<true>(table), addHalf<false>(table);
}
