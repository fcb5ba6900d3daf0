// Maps the samples of a run to the samples of the file.
#pragma once

#include "zorse/runtime/abi/Random.h"

#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace zorse::runtime {

class SampleOrder {
public:
  SampleOrder(uint64_t samples, std::optional<uint64_t> seed) : samples_(samples), seed_(seed) {}

  uint64_t at(uint64_t n) {
    uint64_t epoch = n / samples_, index = n % samples_;
    if (!seed_)
      return index;
    if (order_.empty() || epoch != epoch_)
      shuffle(epoch);
    return order_[index];
  }

private:
  /// Fisher-Yates shuffle with random numbers keyed by (seed, epoch).
  void shuffle(uint64_t epoch) {
    order_.resize(samples_);
    std::iota(order_.begin(), order_.end(), uint64_t(0));
    uint64_t stream = zorse::abi::randomStream(*seed_, epoch, 0, 0);
    for (uint64_t i = samples_; i > 1; --i)
      std::swap(order_[i - 1], order_[zorse::abi::mix64(stream ^ i) % i]);
    epoch_ = epoch;
  }

  uint64_t samples_;
  std::optional<uint64_t> seed_;
  uint64_t epoch_ = 0;
  std::vector<uint64_t> order_;
};

} // namespace zorse::runtime
