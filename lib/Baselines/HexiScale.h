// Steps of the HexiScale-like planner, for tests with hand-computed cases.
#pragma once

#include <cstdint>
#include <vector>

namespace zorse::planning::baseline {

/// Layers of stages in proportion to memory: rounded down, the rest to those with most memory.
std::vector<int64_t> layersByMemory(int64_t layers, const std::vector<double> &memories);

/// Time of GPipe over stages that take `stage` seconds (links included) per micro-batch, forward and backward together: the sum over the columns of
/// the schedule of the slowest stage at work.
double gpipeTime(const std::vector<double> &stage, int64_t microBatches);

} // namespace zorse::planning::baseline
