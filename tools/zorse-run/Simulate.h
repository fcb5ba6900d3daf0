// zorse-run --simulate: what the programs of a bundle would do, on a simulated clock.
#pragma once

#include "Options.h"

namespace zorse::run {

runtime::Status runSimulation(const Options &options);

} // namespace zorse::run
