// Steps of the HARP-like planner, for tests with hand-computed cases.
#pragma once

#include <cstdint>
#include <vector>

namespace zorse::planning::baseline {

/// One stage per micro-batch: seconds of forward and backward, of the link to the next stage in one direction, and how many devices share the work.
struct StageTimes {
  double forward = 0, backward = 0, link = 0;
  int64_t devices = 1;
};

/// Micro-batches that a device of each stage launches before its first backward: as many as one micro-batch's way to the end and back, links
/// included, takes periods of the device. Equal stages with free links get 1F1B's p - s.
std::vector<int64_t> launchCounts(const std::vector<StageTimes> &stages);

/// Least t such that the units, in order, fit into stages of at most t each, where stage s needs seconds[s][u] for unit u; and where the stages end.
/// Every stage gets a unit. Empty if there are fewer units than stages.
std::vector<int32_t> cutByTime(const std::vector<std::vector<double>> &seconds);

} // namespace zorse::planning::baseline
