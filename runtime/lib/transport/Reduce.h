// Sums of arrays in a fixed order, shared by transports.
#pragma once

#include "zorse/runtime/Transport.h"

namespace zorse::runtime {

/// target[i] = ((sources[0][i] + sources[1][i]) + ...) for i < count. The target may be one of the
/// sources.
void rankedSum(NumberType type, void *target, const std::vector<const void *> &sources,
               int64_t count);

/// A term of a sum of rounded terms.
struct RoundedTerm {
  const void *data;
  bool isBf16; ///< else f32, to be rounded
};

/// target[i] = ((terms[0][i] + terms[1][i]) + ...) in f32, of terms rounded to bf16. The target may
/// be one of the f32 terms.
void sumOfRounded(float *target, const std::vector<RoundedTerm> &terms, int64_t count);

/// Rounds f32 numbers to bf16: to nearest, ties to even.
void roundToBf16(uint16_t *target, const float *source, int64_t count);

/// Whether the terms of a shard with `contributors` contributors are rounded.
inline bool roundsTerms(const ReduceScatterArguments &a, size_t contributors) {
  return a.bf16Terms && contributors > 1;
}

/// What a device has in `full`, and from `shard` on.
inline Held heldBy(uint32_t device, const AllGatherArguments &a) {
  return Held(Compact(a.reads, device), Compact(a.shards, device),
              uint64_t(uintptr_t(a.shard) - uintptr_t(a.full)), a.elementBytes);
}
inline Held heldBy(uint32_t device, const ReduceScatterArguments &a) {
  return Held(Compact(a.terms, device), Compact(a.shards, device),
              uint64_t(uintptr_t(a.shard) - uintptr_t(a.full)), bytesOf(a.type));
}

} // namespace zorse::runtime
