// Places at which several divisions of one axis agree.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace zorse {

/// Divisions of [0, n) into consecutive ranges, such as those of an axis by several groups of
/// devices.
class CommonBoundaries {
public:
  /// \param divisions  sizes of the ranges; each list has the sum n
  explicit CommonBoundaries(const std::vector<std::vector<int64_t>> &divisions) {
    std::map<int64_t, size_t> count;
    for (const std::vector<int64_t> &sizes : divisions) {
      std::set<int64_t> ends;
      int64_t end = 0;
      for (int64_t size : sizes)
        ends.insert(end += size);
      for (int64_t boundary : ends)
        ++count[boundary];
    }
    for (auto [boundary, times] : count) {
      if (boundary > 0 && times == divisions.size())
        common.push_back(boundary);
      differ |= times != divisions.size();
    }
  }

  /// Whether the divisions differ.
  bool areDifferent() const { return differ; }
  /// Returns the smallest range that contains [begin, end) and that begins and ends at boundaries
  /// of all divisions.
  std::pair<int64_t, int64_t> containing(int64_t begin, int64_t end) const {
    return {*std::prev(std::upper_bound(common.begin(), common.end(), begin)),
            *std::lower_bound(common.begin(), common.end(), end)};
  }

private:
  std::vector<int64_t> common{0};
  bool differ = false;
};

} // namespace zorse
