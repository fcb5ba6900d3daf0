// Where the time of a step went, by device, and what would change it.
#pragma once

#include "zorse/runtime/Bundle.h"
#include "zorse/runtime/Executor.h"

#include <string>
#include <vector>

namespace zorse::runtime {

/// Of a device's time; they sum to 1.
struct DeviceShares {
  double computing = 0;
  double moving = 0;  ///< bytes, while it computed nothing
  double waiting = 0; ///< doing neither
  double slower = 0;  ///< its computing took so many times as long as planned; 0: nothing was planned
};

struct TimeShares {
  std::vector<DeviceShares> devices;
  uint64_t steps = 0; ///< that were looked at; 0: there is nothing to say
  double seconds = 0; ///< a step of those
  double planned = 0; ///< what the plan predicted for one
};

/// From the longest row of whole training steps among `events`, but for its first step, if there are more.
TimeShares timeShares(const Bundle &bundle, const std::vector<TraceEvent> &events);

/// The table and what to change, for people. \param seconds  a step of the whole run; 0: not known
std::string describeShares(const Bundle &bundle, const TimeShares &shares, double seconds);

/// So many steps suffice for the table, as far as they fit into a little memory.
uint64_t stepsForShares(const Bundle &bundle);

} // namespace zorse::runtime
