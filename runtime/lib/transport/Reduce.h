// Sums of arrays in a fixed order, shared by transports.
#pragma once

#include "zorse/runtime/Transport.h"

namespace zorse::runtime {

/// target[i] = ((sources[0][i] + sources[1][i]) + ...) for i < count. The target may be one of the
/// sources.
void rankedSum(NumberType type, void *target, const std::vector<const void *> &sources,
               int64_t count);

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
