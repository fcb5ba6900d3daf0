// Numbers as files store them, and their conversion.
#pragma once

#include "bundle.pb.h"
#include "zorse/runtime/Status.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zorse::runtime {

/// How numbers are stored: the types of safetensors and NumPy files that can be parameters or inputs.
enum class StoredType : uint8_t { F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, Bool };

size_t bytesOf(StoredType type);
bool isFloat(StoredType type);
/// As files hold what devices compute with.
StoredType storedType(bundle::ElementType type);

/// "F32" of safetensors, "f32" of weights.json ("BOOL", "i1").
std::optional<StoredType> storedTypeNamed(const std::string &name);
const char *safetensorsName(StoredType type);

/// Converts `count` numbers; neither side needs to be aligned. Integers go through i64, everything else through f64 (f32 sums stay exact).
void convertElements(const void *from, StoredType fromType, void *to, StoredType toType, int64_t count);

/// The first of `count` numbers that is infinite or not a number; nullopt: none, or integers.
std::optional<int64_t> firstNotFinite(const void *numbers, StoredType type, int64_t count);

/// result[i] of a row-major tensor: stored dimensions `shape`; dimension d of the result is stored dimension permutation[d].
void permuteElements(const void *from, void *to, size_t elementBytes, const std::vector<int64_t> &shape, const std::vector<int64_t> &permutation);

/// The product of the dimensions; nullopt when negative or beyond 2^62.
std::optional<int64_t> elementCount(const std::vector<int64_t> &shape);

} // namespace zorse::runtime
