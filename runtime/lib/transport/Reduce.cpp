#include "Reduce.h"

#include "zorse/runtime/HalfTypes.h"

#include <algorithm>
#include <cstring>

using namespace zorse::runtime;

size_t zorse::runtime::bytesOf(NumberType type) {
  switch (type) {
  case NumberType::F64:
    return 8;
  case NumberType::F32:
    return 4;
  case NumberType::BF16:
  case NumberType::F16:
    return 2;
  }
  return 0;
}

namespace {

constexpr int64_t kBlock = 1024; // elements; a block of sums fits in the L1 cache

template <typename Stored, typename Sum, typename Load, typename Store>
void sumBlocks(void *target, const std::vector<const void *> &sources, int64_t count, Load load,
               Store store) {
  Sum sums[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    int64_t size = std::min(kBlock, count - begin);
    const Stored *first = static_cast<const Stored *>(sources[0]) + begin;
    for (int64_t i = 0; i < size; ++i)
      sums[i] = load(first[i]);
    for (size_t s = 1; s < sources.size(); ++s) {
      const Stored *next = static_cast<const Stored *>(sources[s]) + begin;
      for (int64_t i = 0; i < size; ++i)
        sums[i] += load(next[i]);
    }
    Stored *out = static_cast<Stored *>(target) + begin;
    for (int64_t i = 0; i < size; ++i)
      out[i] = store(sums[i]);
  }
}

} // namespace

void zorse::runtime::rankedSum(NumberType type, void *target,
                               const std::vector<const void *> &sources, int64_t count) {
  auto same = [](auto x) { return x; };
  switch (type) {
  case NumberType::F32:
    return sumBlocks<float, float>(target, sources, count, same, same);
  case NumberType::F64:
    return sumBlocks<double, double>(target, sources, count, same, same);
  case NumberType::BF16:
    return sumBlocks<uint16_t, float>(target, sources, count, bf16ToFloat, floatToBf16);
  case NumberType::F16:
    return sumBlocks<uint16_t, float>(target, sources, count, f16ToFloat, floatToF16);
  }
}

void zorse::runtime::roundToBf16(uint16_t *target, const float *source, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    target[i] = floatToBf16(source[i]);
}

void zorse::runtime::sumOfRounded(float *target, const std::vector<RoundedTerm> &terms,
                                  int64_t count) {
  float sums[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t size = std::min(kBlock, count - begin);
    for (size_t t = 0; t < terms.size(); ++t) {
      uint16_t rounded[kBlock];
      if (terms[t].isBf16)
        std::memcpy(rounded, static_cast<const uint16_t *>(terms[t].data) + begin,
                    size_t(size) * sizeof *rounded);
      else
        roundToBf16(rounded, static_cast<const float *>(terms[t].data) + begin, size);
      for (int64_t i = 0; i < size; ++i)
        sums[i] = t == 0 ? bf16ToFloat(rounded[i]) : sums[i] + bf16ToFloat(rounded[i]);
    }
    std::memcpy(target + begin, sums, size_t(size) * sizeof *sums);
  }
}
