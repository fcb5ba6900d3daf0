// Random choices of a search. Internal to Planning.
#pragma once

#include "zorse/runtime/abi/Random.h"

#include <cstddef>
#include <cstdint>

namespace zorse::planning {

/// SplitMix64 (Steele, Lea and Flood, 2014).
class SplitMix64 {
public:
  explicit SplitMix64(uint64_t seed) : state(seed) {}
  uint64_t next() {
    const uint64_t word = state;
    state += abi::kMixIncrement;
    return abi::mix64(word);
  }
  size_t below(size_t n) { return n ? static_cast<size_t>(next() % n) : 0; }
  bool chance(int percent) { return static_cast<int>(next() % 100) < percent; }

private:
  uint64_t state;
};

} // namespace zorse::planning
