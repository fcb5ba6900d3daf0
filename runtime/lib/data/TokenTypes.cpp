#include "TokenTypes.h"

#include <algorithm>
#include <cstring>
#include <vector>

using namespace zorse::runtime;

namespace {

constexpr size_t kPieces = 64,
                 kPiece = 4096; // segments, spread over the file, and their bytes; smaller files
                                // are read whole
constexpr size_t kEnough = 16;  // numbers needed to distinguish a wide type from a narrow one

/// Segments of the file at offsets that are multiples of 8.
Result<std::vector<std::byte>> sampled(const DataFile &file) {
  std::vector<std::byte> bytes;
  const uint64_t whole = file.size() / 8 * 8;
  const bool all = whole <= kPieces * kPiece;
  const uint64_t step = all ? kPiece : (whole - kPiece) / (kPieces - 1) / 8 * 8;
  for (uint64_t offset = 0; offset < whole && bytes.size() < kPieces * kPiece; offset += step) {
    const size_t size = size_t(std::min<uint64_t>(kPiece, whole - offset));
    bytes.resize(bytes.size() + size);
    if (Status status = file.read(offset, bytes.data() + bytes.size() - size, size);
        status.failed())
      return status.error();
  }
  return bytes;
}

/// Whether all numbers are ids below `bound`, and how many of them are evidence for this type. If
/// the file contained numbers of half the size, the upper half of a number would be the next id.
/// Numbers with a lower half that is not zero therefore count.
struct Fit {
  bool fits = false;
  size_t telling = 0;
};

template <typename T>
Fit fitOf(const std::vector<std::byte> &bytes, uint64_t size, uint64_t bound) {
  Fit fit;
  fit.fits = size % sizeof(T) == 0 && bytes.size() >= sizeof(T);
  for (size_t at = 0; fit.fits && at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    fit.fits = value < bound;
    fit.telling += (value & ((T(1) << (4 * sizeof(T))) - 1)) != 0;
  }
  return fit;
}

} // namespace

const char *zorse::runtime::tokenTypeName(StoredType type) {
  switch (type) {
  case StoredType::U8:
    return "uint8";
  case StoredType::U32:
    return "uint32";
  case StoredType::I32:
    return "int32";
  case StoredType::I64:
    return "int64";
  default:
    return "uint16";
  }
}

std::optional<StoredType> zorse::runtime::tokenTypeNamed(const std::string &name) {
  for (StoredType type :
       {StoredType::U8, StoredType::U16, StoredType::U32, StoredType::I32, StoredType::I64})
    if (name == tokenTypeName(type))
      return type;
  return std::nullopt;
}

Result<StoredType> zorse::runtime::tokenTypeOf(const DataFile &file, int64_t vocabulary) {
  Result<std::vector<std::byte>> bytes = sampled(file);
  if (bytes.failed())
    return bytes.error();
  // If the vocabulary is unknown, only ids that fit into 16 bits are evidence.
  const uint64_t bound = vocabulary > 0 ? uint64_t(vocabulary) : 1 << 16;
  const bool narrow = fitOf<uint16_t>(*bytes, file.size(), bound).fits;
  const Fit wide = fitOf<uint32_t>(*bytes, file.size(), bound),
            widest = fitOf<uint64_t>(*bytes, file.size(), bound);
  auto ambiguous = [&](const char *one, const char *other) {
    return userError(
        file.path() +
        ": expected token ids of a known type, found a file without a header that may hold " + one +
        " or " + other + "; set the type with --data-type");
  };
  if (widest.fits) { // the other types then fit too: every id is followed by a zero
    if (widest.telling >= kEnough)
      return StoredType::I64;
    return ambiguous("uint16, uint32", "int64");
  }
  if (wide.fits && (!narrow || wide.telling >= kEnough))
    return StoredType::U32;
  if (wide.fits)
    return ambiguous("uint16", "uint32");
  return StoredType::U16;
}
