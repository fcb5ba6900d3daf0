// What an earlier start of a job has left to continue from.
#pragma once

#include "Options.h"

#include <optional>
#include <string>
#include <vector>

namespace zorse::run {

/// Describes the state from which the next start continues, as far as this node knows; "" if it
/// starts from the beginning.
std::string newestState(const Options &options);

/// The start that ended with its driver, according to the metrics file of an elastic job.
struct EndedStart {
  std::vector<std::string> devices; ///< that took part; empty: no change is noted
  double writtenAt;                 ///< last line, in seconds since 1970
};
/// Nullopt if there is no such file.
std::optional<EndedStart> readEndedStart(const std::string &metricsFile);

/// After a failure, prints which checkpoints in memory this node keeps.
void describeMemoryLeft(const Options &options);

} // namespace zorse::run
