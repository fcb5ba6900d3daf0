#include "zorse/Base/Apportion.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>

std::vector<int64_t> zorse::apportion(int64_t total, const std::vector<double> &weights) {
  double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  assert(sum > 0 && "callers pass a positive weight");
  std::vector<int64_t> parts(weights.size());
  std::vector<std::pair<double, size_t>> remainders;
  int64_t given = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    double exact = static_cast<double>(total) * weights[i] / sum;
    parts[i] = std::min<int64_t>(static_cast<int64_t>(std::floor(exact)), total - given);
    given += parts[i];
    if (weights[i] > 0)
      remainders.push_back({static_cast<double>(parts[i]) - exact, i});
  }
  std::stable_sort(remainders.begin(), remainders.end(),
                   [](const auto &a, const auto &b) { return a.first < b.first; });
  for (size_t i = 0; given < total; ++i, ++given)
    ++parts[remainders[i % remainders.size()].second];
  return parts;
}
