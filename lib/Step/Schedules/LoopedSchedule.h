// Schedules in which micro-batches visit the same devices several times. A loop is one pass through
// all stages of devices. Internal to lib/Step.
#pragma once

#include "Ordering.h"
#include "Rules.h"

#include <string>
#include <vector>

namespace zorse::step {

/// Direction of successive loops: from the last stage of devices to the first again, or back in
/// reverse order.
enum class LoopStyle : uint8_t { Loop, V };

/// A tiling in loops: the unit ranges of its cells are contiguous, and the sets of devices of
/// successive ranges follow the loops.
struct LoopedTiling {
  struct LoopPosition {
    uint32_t virtualRank = 0;
    uint32_t microBatch = 0; ///< index by first sample among the cells of its device and unit range
  };
  size_t stages = 0,
         virtualPipelineSize = 0;      ///< stages of devices; the last lap of a ring may be shorter
  std::vector<LoopPosition> positions; ///< per cell
  std::vector<size_t> stageOf;         ///< per device of the plan; 0 for one without cells
};

/// Base of schedules in laps: the tilings that they support, and their parameter.
class LoopedSchedule : public ScheduleRule {
public:
  LoopedSchedule(ScheduleKind kind, const char *name, LoopStyle style)
      : ScheduleRule(kind, name,
                     {{"in_flight_factor", &Schedule::inFlightFactor, /*positive=*/true}}),
        style(style) {}

  std::string whyUnsupported(const Plan &plan, const bundle::ModelSummary &summary) const override;
  std::string memoryHint() const override {
    return "a smaller \"in_flight_factor\" of the schedule";
  }

protected:
  const LoopStyle style;
};

/// Finds the laps of a plan's tiling. The error contains the expected and the found tiling.
Result<LoopedTiling> findLoopedTiling(const Plan &plan, LoopStyle style);

} // namespace zorse::step
