#include "zorse/Step/AssignMicroBatches.h"

#include <algorithm>
#include <queue>

using namespace zorse::step;

void zorse::step::assignMicroBatches(int32_t unitBegin, int32_t unitEnd, int64_t sampleBegin,
                                     const std::vector<StageDevice> &devices,
                                     std::vector<Cell> &cells) {
  using Next = std::pair<double, size_t>; // fraction done after its next cell, index
  std::priority_queue<Next, std::vector<Next>, std::greater<Next>> queue;
  std::vector<int64_t> dealt(devices.size(), 0);
  auto rows = [&](size_t i) {
    return std::min(std::max<int64_t>(devices[i].microBatchSize, 1), devices[i].samples - dealt[i]);
  };
  auto push = [&](size_t i) {
    if (dealt[i] < devices[i].samples)
      queue.push(
          {static_cast<double>(dealt[i] + rows(i)) / static_cast<double>(devices[i].samples), i});
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
