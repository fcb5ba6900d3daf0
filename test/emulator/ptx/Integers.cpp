#include "Scalars.h"

#include <algorithm>
#include <type_traits>

using namespace zorse::emulator::ptx;

namespace {

template <typename T> constexpr uint8_t widthOf() { return uint8_t(8 * sizeof(T)); }
template <typename T> std::string nameOf(char kind) {
  return std::string(".") + kind + std::to_string(widthOf<T>());
}
template <typename T> std::string nameOf() { return nameOf<T>(std::is_signed_v<T> ? 's' : 'u'); }

template <typename T> ScalarOperation of(uint8_t sources, ScalarFunction function) {
  constexpr uint8_t w = widthOf<T>();
  return {function, w, sources, {w, w, w}};
}

/// Arithmetic with wraparound uses unsigned types.
template <typename T> void addArithmetic(ScalarTable &table) {
  using U = std::make_unsigned_t<T>;
  using Wide =
      std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
                         std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;
  using Widest = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
  const std::string t = nameOf<T>();
  table["add" + t] =
      of<T>(2, [](uint64_t a, uint64_t b, uint64_t) { return bits(U(U(a) + U(b))); });
  table["sub" + t] =
      of<T>(2, [](uint64_t a, uint64_t b, uint64_t) { return bits(U(U(a) - U(b))); });
  table["mul.lo" + t] =
      of<T>(2, [](uint64_t a, uint64_t b, uint64_t) { return bits(U(uint64_t(U(a)) * U(b))); });
  table["mul.hi" + t] = of<T>(2, [](uint64_t a, uint64_t b, uint64_t) {
    return bits(U(Widest(T(a)) * Widest(T(b)) >> widthOf<T>()));
  });
  table["mad.lo" + t] = of<T>(
      3, [](uint64_t a, uint64_t b, uint64_t c) { return bits(U(uint64_t(U(a)) * U(b) + U(c))); });
  table["div" + t] = of<T>(2, [](uint64_t a, uint64_t b, uint64_t) {
    return T(b) == 0                              ? bits(U(~U(0)))
           : T(b) == T(-1) && std::is_signed_v<T> ? bits(U(U(0) - U(a)))
                                                  : bits(T(T(a) / T(b)));
  });
  table["rem" + t] = of<T>(2, [](uint64_t a, uint64_t b, uint64_t) {
    return T(b) == 0                              ? bits(T(a))
           : T(b) == T(-1) && std::is_signed_v<T> ? uint64_t(0)
                                                  : bits(T(T(a) % T(b)));
  });
  table["min" + t] =
      of<T>(2, [](uint64_t a, uint64_t b, uint64_t) { return bits(std::min(T(a), T(b))); });
  table["max" + t] =
      of<T>(2, [](uint64_t a, uint64_t b, uint64_t) { return bits(std::max(T(a), T(b))); });
  if constexpr (sizeof(T) < 8) {
    constexpr uint8_t w = widthOf<T>();
    table["mul.wide" + t] = {
        [](uint64_t a, uint64_t b, uint64_t) { return bits(Wide(Wide(T(a)) * Wide(T(b)))); },
        2 * w,
        2,
        {w, w}};
    table["mad.wide" + t] = {
        [](uint64_t a, uint64_t b, uint64_t c) {
          using UnsignedWide = std::make_unsigned_t<Wide>;
          return bits(UnsignedWide(UnsignedWide(Wide(T(a)) * Wide(T(b))) + UnsignedWide(c)));
        },
        2 * w,
        3,
        {w, w, 2 * w}};
  }
  if constexpr (std::is_signed_v<T>) {
    table["neg" + t] =
        of<T>(1, [](uint64_t a, uint64_t, uint64_t) { return bits(U(U(0) - U(a))); });
    table["abs" + t] = of<T>(1, [](uint64_t a, uint64_t, uint64_t) {
      return T(a) < 0 ? bits(U(U(0) - U(a))) : bits(T(a));
    });
  }
}

/// A shift by more than the width equals a shift by the width.
template <typename T> void addShifts(ScalarTable &table) {
  using U = std::make_unsigned_t<T>;
  constexpr uint8_t w = widthOf<T>();
  auto shift = [=](ScalarFunction function) {
    return ScalarOperation{function, w, 2, {w, 32}, Definedness::Routed, 1};
  };
  table["shr" + nameOf<T>()] = shift([](uint64_t a, uint64_t b, uint64_t) {
    const uint32_t by = std::min<uint32_t>(uint32_t(b), w);
    return by < w                            ? bits(T(T(a) >> by))
           : std::is_signed_v<T> && T(a) < 0 ? bits(U(~U(0)))
                                             : uint64_t(0);
  });
  if constexpr (!std::is_signed_v<T>) {
    table["shl" + nameOf<T>('b')] = shift([](uint64_t a, uint64_t b, uint64_t) {
      return uint32_t(b) < w ? bits(U(uint64_t(a) << uint32_t(b))) : uint64_t(0);
    });
    table["shr" + nameOf<T>('b')] = table["shr" + nameOf<T>()];
  }
}

template <typename T> void addLogic(ScalarTable &table, const std::string &t, uint8_t width) {
  auto both = [&](ScalarFunction function, Definedness rule) {
    return ScalarOperation{function, width, 2, {width, width}, rule};
  };
  table["and" + t] = both([](uint64_t a, uint64_t b, uint64_t) { return a & b; }, Definedness::And);
  table["or" + t] = both([](uint64_t a, uint64_t b, uint64_t) { return a | b; }, Definedness::Or);
  table["xor" + t] = both([](uint64_t a, uint64_t b, uint64_t) { return a ^ b; }, Definedness::Xor);
}

template <typename T> void addBits(ScalarTable &table) {
  constexpr uint8_t w = widthOf<T>();
  addLogic<T>(table, nameOf<T>('b'), w);
  table["not" + nameOf<T>('b')] = {
      [](uint64_t a, uint64_t, uint64_t) { return bits(T(~T(a))); }, w, 1, {w}, Definedness::Xor};
  if constexpr (w >= 32) {
    table["popc" + nameOf<T>('b')] = {
        [](uint64_t a, uint64_t, uint64_t) { return uint64_t(__builtin_popcountll(T(a))); },
        32,
        1,
        {w}};
    table["clz" + nameOf<T>('b')] = {[](uint64_t a, uint64_t, uint64_t) {
                                       return uint64_t(
                                           T(a) == 0 ? w : __builtin_clzll(T(a)) - (64 - w));
                                     },
                                     32,
                                     1,
                                     {w}};
    table["bfe" + nameOf<T>('u')] = {[](uint64_t a, uint64_t b, uint64_t c) {
                                       const uint64_t begin = b & 255,
                                                      count = std::min<uint64_t>(c & 255, 64);
                                       const uint64_t all = begin < w ? T(a) >> begin : 0;
                                       return count == 0 ? 0 : all & ~uint64_t(0) >> (64 - count);
                                     },
                                     w,
                                     3,
                                     {w, 32, 32},
                                     Definedness::Routed,
                                     1};
  }
}

template <typename T> void addComparisons(ScalarTable &table) {
  const std::string t = nameOf<T>();
  auto add = [&](const char *name, ScalarFunction function) {
    table[std::string("setp.") + name + t] = {function, 1, 2, {widthOf<T>(), widthOf<T>()}};
    if (!std::is_signed_v<T> && (std::string(name) == "eq" || std::string(name) == "ne"))
      table[std::string("setp.") + name + nameOf<T>('b')] = table[std::string("setp.") + name + t];
  };
  add("eq", [](uint64_t a, uint64_t b, uint64_t) { return uint64_t(T(a) == T(b)); });
  add("ne", [](uint64_t a, uint64_t b, uint64_t) { return uint64_t(T(a) != T(b)); });
  add("lt", [](uint64_t a, uint64_t b, uint64_t) { return uint64_t(T(a) < T(b)); });
  add("le", [](uint64_t a, uint64_t b, uint64_t) { return uint64_t(T(a) <= T(b)); });
  add("gt", [](uint64_t a, uint64_t b, uint64_t) { return uint64_t(T(a) > T(b)); });
  add("ge", [](uint64_t a, uint64_t b, uint64_t) { return uint64_t(T(a) >= T(b)); });
}

void addSelections(ScalarTable &table) {
  for (const char *type :
       {".b16", ".u16", ".s16", ".b32", ".u32", ".s32", ".f32", ".b64", ".u64", ".s64", ".f64"}) {
    const auto w = uint8_t(std::stoi(type + 2));
    table[std::string("selp") + type] = {
        [](uint64_t a, uint64_t b, uint64_t c) { return c ? a : b; },
        w,
        3,
        {w, w, 1},
        Definedness::Routed,
        2};
    table[std::string("mov") + type] = {
        [](uint64_t a, uint64_t, uint64_t) { return a; }, w, 1, {w}, Definedness::Routed, 1};
  }
  table["mov.pred"] = {
      [](uint64_t a, uint64_t, uint64_t) { return a & 1; }, 1, 1, {1}, Definedness::Routed, 1};
  table["not.pred"] = {
      [](uint64_t a, uint64_t, uint64_t) { return ~a & 1; }, 1, 1, {1}, Definedness::Xor};
  addLogic<bool>(table, ".pred", 1);
}

/// Selects bytes of a (0 to 3) and b (4 to 7) with four bits of c each. The fourth bit replicates
/// the byte's sign.
uint64_t permute(uint64_t a, uint64_t b, uint64_t c) {
  const uint64_t bytes = b << 32 | (a & 0xffffffff);
  uint64_t result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const uint64_t selector = c >> 4 * i & 15;
    uint64_t byte = bytes >> 8 * (selector & 7) & 255;
    if (selector & 8)
      byte = byte & 128 ? 255 : 0;
    result |= byte << 8 * i;
  }
  return result;
}

} // namespace

void zorse::emulator::ptx::addIntegers(ScalarTable &table) {
  addArithmetic<uint16_t>(table), addArithmetic<int16_t>(table);
  addArithmetic<uint32_t>(table), addArithmetic<int32_t>(table);
  addArithmetic<uint64_t>(table), addArithmetic<int64_t>(table);
  addShifts<uint16_t>(table), addShifts<int16_t>(table);
  addShifts<uint32_t>(table), addShifts<int32_t>(table);
  addShifts<uint64_t>(table), addShifts<int64_t>(table);
  addBits<uint16_t>(table), addBits<uint32_t>(table), addBits<uint64_t>(table);
  addComparisons<uint16_t>(table), addComparisons<int16_t>(table);
  addComparisons<uint32_t>(table), addComparisons<int32_t>(table);
  addComparisons<uint64_t>(table), addComparisons<int64_t>(table);
  addSelections(table);
  table["prmt.b32"] = {permute, 32, 3, {32, 32, 32}, Definedness::Routed, 2};
}

const ScalarOperation *zorse::emulator::ptx::findScalar(const std::string &opcode) {
  static const ScalarTable table = [] {
    ScalarTable all;
    addIntegers(all);
    addFloats(all);
    addConversions(all);
    return all;
  }();
  auto found = table.find(opcode);
  return found == table.end() ? nullptr : &found->second;
}
