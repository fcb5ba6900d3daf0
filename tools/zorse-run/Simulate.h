// zorse-run --simulate: simulates the programs of a bundle on a simulated clock.
#pragma once

#include "Options.h"

namespace zorse::run {

runtime::Status runSimulation(const Options &options);

} // namespace zorse::run
