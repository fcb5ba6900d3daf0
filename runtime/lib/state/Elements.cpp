#include "zorse/runtime/Elements.h"

#include "zorse/runtime/HalfTypes.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

using namespace zorse;
using namespace zorse::runtime;

namespace {

struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

template <typename T>
struct IsFloat : std::bool_constant<std::is_floating_point_v<T> || std::is_same_v<T, Half> ||
                                    std::is_same_v<T, BFloat16>> {};

template <typename T> T load(const std::byte *from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <typename T> double toDouble(T x) {
  if constexpr (std::is_same_v<T, Half>)
    return f16ToFloat(x.bits);
  else if constexpr (std::is_same_v<T, BFloat16>)
    return bf16ToFloat(x.bits);
  else
    return double(x);
}
template <typename T> T fromDouble(double x) {
  if constexpr (std::is_same_v<T, Half>)
    return {floatToF16(float(x))};
  else if constexpr (std::is_same_v<T, BFloat16>)
    return {floatToBf16(float(x))};
  else if constexpr (std::is_same_v<T, bool>)
    return x != 0;
  else
    return T(x);
}

/// Calls f with a zero of the C++ type.
template <typename F> void withType(StoredType type, F &&f) {
  switch (type) {
  case StoredType::F64:
    return f(double());
  case StoredType::F32:
    return f(float());
  case StoredType::F16:
    return f(Half());
  case StoredType::BF16:
    return f(BFloat16());
  case StoredType::I64:
    return f(int64_t());
  case StoredType::I32:
    return f(int32_t());
  case StoredType::I16:
    return f(int16_t());
  case StoredType::I8:
    return f(int8_t());
  case StoredType::U64:
    return f(uint64_t());
  case StoredType::U32:
    return f(uint32_t());
  case StoredType::U16:
    return f(uint16_t());
  case StoredType::U8:
    return f(uint8_t());
  case StoredType::Bool:
    return f(bool());
  }
}

template <typename From, typename To>
void convertAs(const std::byte *in, std::byte *out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    To value;
    if constexpr (std::is_same_v<From, bool>)
      value = fromDouble<To>(in[i] != std::byte(0) ? 1.0 : 0.0);
    else if constexpr (std::is_integral_v<From> && std::is_integral_v<To>)
      value = static_cast<To>(load<From>(in + i * sizeof(From)));
    else
      value = fromDouble<To>(toDouble(load<From>(in + i * sizeof(From))));
    std::memcpy(out + i * sizeof(To), &value, sizeof(To));
  }
}

struct Named {
  StoredType type;
  const char *safetensors, *weights;
  size_t bytes;
};
constexpr Named kNames[] = {
    {StoredType::F64, "F64", "f64", 8},  {StoredType::F32, "F32", "f32", 4},
    {StoredType::F16, "F16", "f16", 2},  {StoredType::BF16, "BF16", "bf16", 2},
    {StoredType::I64, "I64", "i64", 8},  {StoredType::I32, "I32", "i32", 4},
    {StoredType::I16, "I16", "i16", 2},  {StoredType::I8, "I8", "i8", 1},
    {StoredType::U64, "U64", "u64", 8},  {StoredType::U32, "U32", "u32", 4},
    {StoredType::U16, "U16", "u16", 2},  {StoredType::U8, "U8", "u8", 1},
    {StoredType::Bool, "BOOL", "i1", 1},
};

} // namespace

StoredType zorse::runtime::storedType(bundle::ElementType type) {
  switch (type) {
  case bundle::F64:
    return StoredType::F64;
  case bundle::BF16:
    return StoredType::BF16;
  case bundle::F16:
    return StoredType::F16;
  case bundle::I64:
    return StoredType::I64;
  case bundle::I32:
    return StoredType::I32;
  case bundle::I1:
    return StoredType::Bool;
  case bundle::U8:
    return StoredType::U8;
  default:
    return StoredType::F32;
  }
}

size_t zorse::runtime::bytesOf(StoredType type) { return kNames[size_t(type)].bytes; }
const char *zorse::runtime::safetensorsName(StoredType type) {
  return kNames[size_t(type)].safetensors;
}
bool zorse::runtime::isFloat(StoredType type) { return type <= StoredType::BF16; }

std::optional<StoredType> zorse::runtime::storedTypeNamed(const std::string &name) {
  for (const Named &named : kNames)
    if (name == named.safetensors || name == named.weights)
      return named.type;
  return std::nullopt;
}

void zorse::runtime::convertElements(const void *from, StoredType fromType, void *to,
                                     StoredType toType, int64_t count) {
  if (count <= 0)
    return;
  if (fromType == toType && fromType != StoredType::Bool) {
    std::memcpy(to, from, count * bytesOf(fromType));
    return;
  }
  const auto *in = static_cast<const std::byte *>(from);
  auto *out = static_cast<std::byte *>(to);
  withType(fromType, [&](auto fromZero) {
    withType(toType,
             [&](auto toZero) { convertAs<decltype(fromZero), decltype(toZero)>(in, out, count); });
  });
}

void zorse::runtime::permuteElements(const void *from, void *to, size_t elementBytes,
                                     const std::vector<int64_t> &shape,
                                     const std::vector<int64_t> &permutation) {
  size_t rank = shape.size();
  std::vector<int64_t> strides(rank, 1), index(rank, 0);
  for (size_t d = rank; d-- > 1;)
    strides[d - 1] = strides[d] * shape[d];
  int64_t count = elementCount(shape).value_or(0);
  const auto *in = static_cast<const std::byte *>(from);
  auto *out = static_cast<std::byte *>(to);
  int64_t offset = 0;
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(out + i * elementBytes, in + offset * elementBytes, elementBytes);
    for (size_t d = rank; d-- > 0;) {
      int64_t stored = permutation[d];
      offset += strides[stored];
      if (++index[d] < shape[stored])
        break;
      offset -= strides[stored] * shape[stored];
      index[d] = 0;
    }
  }
}

std::optional<int64_t> zorse::runtime::elementCount(const std::vector<int64_t> &shape) {
  int64_t count = 1;
  for (int64_t dimension : shape)
    if (dimension < 0 || __builtin_mul_overflow(count, dimension, &count) ||
        count > (int64_t(1) << 62))
      return std::nullopt;
  return count;
}

namespace {

/// Finds the first non-finite number by its bits: all bits of the exponent are 1.
template <typename Bits>
std::optional<int64_t> firstWithout(const void *numbers, int64_t count, Bits exponent) {
  constexpr int64_t kAtOnce = 4096; // chunk that is tested without branches; if it contains one, it
                                    // is searched again
  const std::byte *bytes = static_cast<const std::byte *>(numbers);
  auto bits = [&](int64_t i) {
    Bits value;
    std::memcpy(&value, bytes + size_t(i) * sizeof value, sizeof value);
    return value;
  };
  for (int64_t begin = 0; begin < count; begin += kAtOnce) {
    int64_t end = std::min(begin + kAtOnce, count);
    bool any = false;
    for (int64_t i = begin; i < end; ++i)
      any |= (bits(i) & exponent) == exponent;
    for (int64_t i = begin; any && i < end; ++i)
      if ((bits(i) & exponent) == exponent)
        return i;
  }
  return std::nullopt;
}

} // namespace

std::optional<int64_t> zorse::runtime::firstNotFinite(const void *numbers, StoredType type,
                                                      int64_t count) {
  switch (type) {
  case StoredType::F64:
    return firstWithout<uint64_t>(numbers, count, 0x7ff0000000000000);
  case StoredType::F32:
    return firstWithout<uint32_t>(numbers, count, 0x7f800000);
  case StoredType::BF16:
    return firstWithout<uint16_t>(numbers, count, 0x7f80);
  case StoredType::F16:
    return firstWithout<uint16_t>(numbers, count, 0x7c00);
  default:
    return std::nullopt;
  }
}
