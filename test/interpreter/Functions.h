// The effect of a call of a function on words. The interpreter of programs and the one-device
// reference use it.
#pragma once

#include "bundle.pb.h"

#include <cstdint>
#include <vector>

namespace zorse::interpret {

using Words = std::vector<uint64_t>;

inline uint64_t mix(uint64_t x) {
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93ull;
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93ull;
  return x ^ (x >> 32);
}
template <typename... Rest> uint64_t mix(uint64_t a, uint64_t b, Rest... rest) {
  return mix(mix(a + 0x632BE59BD9B4E019ull) ^ b, rest...);
}

/// Words of the scalars block.
constexpr size_t kDecidedBegin = 16, kDecidedEnd = 32, kSeedsBegin = 32, kScalarWords = 192,
                 kSumWords = 32, kNormWords = 4, kBlockWords = 256;

/// Hash of all words of an optimizer step that a decision writes.
inline uint64_t hashOfStep(const Words &words) {
  uint64_t all = words[0];
  for (size_t w = 2; w < words.size(); ++w)
    all = mix(all, words[w]);
  return all;
}

uint64_t initialWord(int kind, uint32_t group, uint32_t moment, int64_t element);
uint64_t inputWord(uint32_t input, int64_t sample, size_t word, int step);
uint64_t scalarWord(size_t word, int step);

enum class Role { Unit, Update, Norm, SumLoss, Decide, ScaleSeeds };
Role roleOf(const bundle::ModelSummary &summary, uint32_t function);

/// Whether a function is a backward that starts from the seeds in the scalars.
bool readsSeeds(const bundle::ModelSummary &summary, uint32_t function);

/// Bytes of an argument for `rows` rows, independent of its binding; -1 if invalid.
int64_t argumentBytes(const bundle::FunctionArgument &argument, int64_t rows);

/// Computes one call in place. `arguments` hold the words of each argument; `overwrite` is per
/// argument.
void execute(const bundle::ModelSummary &summary, const bundle::FunctionLibrary &functions,
             uint32_t function, int64_t rows, int64_t sampleBase, uint64_t rngIdBase,
             std::vector<Words> &arguments, const std::vector<bool> &overwrite);

} // namespace zorse::interpret
