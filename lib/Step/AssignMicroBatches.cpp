#include "zorse/Step/AssignMicroBatches.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <queue>

using namespace zorse::step;

void zorse::step::assignMicroBatches(int32_t unitBegin, int32_t unitEnd, int64_t sampleBegin, const std::vector<StageDevice> &devices,
                                     std::vector<Cell> &cells) {
  using Next = std::pair<double, size_t>; // fraction done after its next cell, index
  std::priority_queue<Next, std::vector<Next>, std::greater<Next>> queue;
  std::vector<int64_t> dealt(devices.size(), 0);
  auto rows = [&](size_t i) { return std::min(std::max<int64_t>(devices[i].microBatchSize, 1), devices[i].samples - dealt[i]); };
  auto push = [&](size_t i) {
    if (dealt[i] < devices[i].samples)
      queue.push({static_cast<double>(dealt[i] + rows(i)) / static_cast<double>(devices[i].samples), i});
  };
  for (size_t i = 0; i < devices.size(); ++i)
    push(i);
  while (!queue.empty()) {
    size_t i = queue.top().second;
    queue.pop();
    int64_t n = rows(i);
    cells.push_back({unitBegin, unitEnd, sampleBegin, sampleBegin + n, devices[i].device});
    sampleBegin += n;
    dealt[i] += n;
    push(i);
  }
}

std::vector<int64_t> zorse::step::apportion(int64_t total, const std::vector<double> &weights) {
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
  std::stable_sort(remainders.begin(), remainders.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
  for (size_t i = 0; given < total; ++i, ++given)
    ++parts[remainders[i % remainders.size()].second];
  return parts;
}
