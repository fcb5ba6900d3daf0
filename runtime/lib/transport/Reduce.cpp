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
