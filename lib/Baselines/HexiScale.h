// Steps of the HexiScale-like planner, for tests with hand-computed cases.
#pragma once

#include <cstdint>
#include <vector>

namespace zorse::planning::baseline {

/// Distributes layers over stages in proportion to memory: rounded down, the rest to the stages
/// with the most memory.
std::vector<int64_t> layersByMemory(int64_t layers, const std::vector<double> &memories);

/// Returns the time of GPipe over stages that take `stage` seconds (links included) per
/// micro-batch, forward and backward together. It is the sum, over the columns of the schedule, of
/// the slowest active stage.
double gpipeTime(const std::vector<double> &stage, int64_t microBatches);

} // namespace zorse::planning::baseline
