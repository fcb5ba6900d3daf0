// Element types of files and conversion between them.
#pragma once

#include "bundle.pb.h"
#include "zorse/runtime/Status.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zorse::runtime {

/// Element types of safetensors and NumPy files that can be parameters or inputs.
enum class StoredType : uint8_t { F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, Bool };

size_t bytesOf(StoredType type);
bool isFloat(StoredType type);
/// The type in which files store elements of a device type.
StoredType storedType(bundle::ElementType type);

/// Parses names of safetensors ("F32", "BOOL") and of weights.json ("f32", "i1").
std::optional<StoredType> storedTypeNamed(const std::string &name);
const char *safetensorsName(StoredType type);

/// Converts `count` numbers. Neither pointer needs to be aligned. Integers are converted through
/// i64, all other types through f64 (f32 sums stay exact).
void convertElements(const void *from, StoredType fromType, void *to, StoredType toType,
                     int64_t count);

/// Returns the index of the first number that is infinite or NaN; nullopt if there is none or the
/// type is an integer.
std::optional<int64_t> firstNotFinite(const void *numbers, StoredType type, int64_t count);

/// Permutes the dimensions of a row-major tensor. `shape` are the stored dimensions; dimension d of
/// the result is stored dimension permutation[d].
void permuteElements(const void *from, void *to, size_t elementBytes,
                     const std::vector<int64_t> &shape, const std::vector<int64_t> &permutation);

/// Returns the product of the dimensions; nullopt if one is negative or the product exceeds 2^62.
std::optional<int64_t> elementCount(const std::vector<int64_t> &shape);

} // namespace zorse::runtime
