// Time breakdown of a step by device, and hints to improve it.
#pragma once

#include "zorse/runtime/Bundle.h"
#include "zorse/runtime/Executor.h"

#include <string>
#include <vector>

namespace zorse::runtime {

/// Fractions of a device's time. `computing`, `exposedCommunication` and `idle` sum to 1.
struct DeviceTimeBreakdown {
  double computing = 0;
  double exposedCommunication = 0; ///< exposed communication
  double idle = 0;                 ///< idle
  double slowdown = 0; ///< computation time divided by the planned time; 0: no planned time
};

struct TimeBreakdown {
  std::vector<DeviceTimeBreakdown> devices;
  uint64_t steps = 0; ///< steps that were evaluated; 0: no result
  double seconds = 0; ///< duration of one of those steps
  double planned = 0; ///< duration that the plan predicts for one step
};

/// Planned computing seconds of a step by device; 0: the device does not compute.
std::vector<double> plannedComputing(const Bundle &bundle);

/// Computes the breakdown from the longest sequence of complete training steps in `events`, without
/// its first step if there are several.
TimeBreakdown timeBreakdown(const Bundle &bundle, const std::vector<TraceEvent> &events);

/// Returns the table and hints, human-readable. \param seconds  duration of a step of the whole
/// run; 0: unknown
std::string describeBreakdown(const Bundle &bundle, const TimeBreakdown &breakdown, double seconds);

/// Returns the number of steps to trace for the table, limited by memory.
uint64_t stepsForBreakdown(const Bundle &bundle);

} // namespace zorse::runtime
