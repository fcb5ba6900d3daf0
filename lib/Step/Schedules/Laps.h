// Schedules in which micro-batches pass the same devices several times: a lap is one passage along all stages of devices. Internal to lib/Step.
#pragma once

#include "Ordering.h"
#include "Rules.h"

#include <string>
#include <vector>

namespace zorse::step {

/// How one lap follows another: from the last stage of devices again to the first, or back along the same way.
enum class Turn : uint8_t { Ring, BackAndForth };

/// A tiling in laps: the unit ranges of its cells follow each other, and so do the sets of devices that work on them.
struct Laps {
  struct Passage {
    uint32_t lap = 0;
    uint32_t microBatch = 0; ///< of its device and unit range, by first sample
  };
  size_t stages = 0, laps = 0;   ///< stages of devices; the last lap of a ring may be shorter
  std::vector<Passage> passages; ///< by cell
  std::vector<size_t> stageOf;   ///< by device of the plan; 0 for one without cells
};

/// What schedules in laps have in common: the tilings that they take, and their parameter.
class LapsRule : public ScheduleRule {
public:
  LapsRule(ScheduleKind kind, const char *name, Turn turn)
      : ScheduleRule(kind, name, {{"in_flight_factor", &Schedule::inFlight, /*positive=*/true}}), turn(turn) {}

  std::string refuses(const Plan &plan, const bundle::ModelSummary &summary) const override;
  std::string memoryRemedy() const override { return "a smaller \"in_flight_factor\" of the schedule"; }

protected:
  const Turn turn;
};

/// Finds the laps of a plan's tiling. The error says what was expected and what was found.
Result<Laps> findLaps(const Plan &plan, Turn turn);

} // namespace zorse::step
