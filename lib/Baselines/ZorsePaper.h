// Steps of Zorse's planner, for tests with hand-computed cases.
#pragma once

#include <cstdint>
#include <vector>

namespace zorse::planning::baseline {

/// Distributes `total` in proportion to `rates`: rounded down, the rest one each to the fastest
/// first.
std::vector<int64_t> shareByRate(int64_t total, const std::vector<double> &rates);

/// Returns the layers of every ministage, by group: each group's layers in `degree` equal chunks.
/// Remaining layers are assigned, one to each chunk of a group, to the group that then takes the
/// least time. Empty if a chunk would have no layer.
std::vector<std::vector<int64_t>> interleave(const std::vector<int64_t> &layers,
                                             const std::vector<double> &rates, int64_t degree);

} // namespace zorse::planning::baseline
