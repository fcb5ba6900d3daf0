// One rule for every schedule; lib/Step/Schedules has a file for each. Internal to lib/Step.
#pragma once

#include "zorse/Step/Schedules.h"

#include <memory>

namespace zorse::step {

std::unique_ptr<ScheduleRule> oneForwardOneBackwardRule();
std::unique_ptr<ScheduleRule> gpipeRule();
std::unique_ptr<ScheduleRule> steadyStateRule();
std::unique_ptr<ScheduleRule> interleavedRule();
std::unique_ptr<ScheduleRule> waveRule();
std::unique_ptr<ScheduleRule> breadthFirstRule();
std::unique_ptr<ScheduleRule> explicitRule();

} // namespace zorse::step
