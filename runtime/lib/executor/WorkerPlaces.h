// The instructions that the workers of devices have reached, for reports on progress.
#pragma once

#include "DeviceProgram.h"

#include <vector>

namespace zorse::runtime {

/// Sets the places of all workers in `progress`, and the earliest unfinished instruction.
/// \param submitted  number of submitted steps
void locateWorkers(const std::vector<const DeviceProgram *> &programs, uint64_t submitted,
                   Executor::Progress &progress);

} // namespace zorse::runtime
