// Random choices of a search. Internal to Planning.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zorse::planning {

/// SplitMix64 (Steele, Lea and Flood, 2014).
class SplitMix64 {
public:
  explicit SplitMix64(uint64_t seed) : state(seed) {}
  uint64_t next() {
    uint64_t z = state += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  size_t below(size_t n) { return n ? static_cast<size_t>(next() % n) : 0; }
  bool chance(int percent) { return static_cast<int>(next() % 100) < percent; }

private:
  uint64_t state;
};

} // namespace zorse::planning
