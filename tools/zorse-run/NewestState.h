// What a failed start of a job has left to continue from.
#pragma once

#include "Options.h"

namespace zorse::run {

/// Describes the state from which the next start continues, as far as this node knows; "" if it
/// starts from the beginning.
std::string newestState(const Options &options);

/// After a failure, prints which checkpoints in memory this node keeps.
void describeMemoryLeft(const Options &options);

} // namespace zorse::run
