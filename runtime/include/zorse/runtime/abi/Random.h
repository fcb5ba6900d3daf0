// Random numbers that do not depend on the placement of work: every element of every sample has its
// own key.
#pragma once

#include <cstdint>

namespace zorse::abi {

inline constexpr uint64_t kMixIncrement = 0x9E3779B97F4A7C15ull; ///< difference of the states of
                                                                 ///< SplitMix64

/// Mixes a 64-bit word once: the number that SplitMix64 gives after the state `x` (Steele, Lea and
/// Flood, 2014).
inline uint64_t mix64(uint64_t x) {
  x += kMixIncrement;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

/// Returns the stream of one sample of one op instance in one step. It is constant over the
/// elements of the sample, so it is computed once per row.
inline uint64_t randomStream(uint64_t seed, uint64_t step, uint64_t instance, uint64_t sample) {
  return mix64(mix64(mix64(mix64(seed) ^ step) ^ instance) ^ sample);
}

/// Returns 32 random bits of element `element` (row-major index inside the unsplit sample).
inline uint32_t randomBits(uint64_t stream, uint64_t element) {
  return static_cast<uint32_t>(mix64(stream ^ element) >> 32);
}

/// Dropout keeps an element iff randomBits >= dropThreshold(p). The drop probability is p with an
/// error below 2^-32.
inline uint64_t dropThreshold(double p) { return static_cast<uint64_t>(p * 4294967296.0); }

} // namespace zorse::abi
