// Steps of the HARP-like planner, for tests with hand-computed cases.
#pragma once

#include <cstdint>
#include <vector>

namespace zorse::planning::baseline {

/// Times of a stage per micro-batch: seconds of forward and backward, seconds of the link to the
/// next stage in one direction, and the number of devices that share the work.
struct StageTimes {
  double forward = 0, backward = 0, link = 0;
  int64_t devices = 1;
};

/// Returns the micro-batches that a device of each stage launches before its first backward: the
/// time of one micro-batch's path to the last stage and back, links included, divided by the
/// device's period. Equal stages with free links get 1F1B's p - s.
std::vector<int64_t> launchCounts(const std::vector<StageTimes> &stages);

/// Returns the stage ends for the minimum t such that the units, in order, fit into stages of at
/// most t each, where stage s needs seconds[s][u] for unit u. Every stage gets a unit. Empty if
/// there are fewer units than stages.
std::vector<int32_t> cutByTime(const std::vector<std::vector<double>> &seconds);

} // namespace zorse::planning::baseline
