// One rule for every schedule; lib/Step/Schedules has a file for each. Internal to lib/Step.
#pragma once

#include "zorse/Step/Schedules.h"

#include <memory>

namespace zorse::step {

std::unique_ptr<ScheduleRule> oneForwardOneBackwardRule();
std::unique_ptr<ScheduleRule> gpipeRule();
std::unique_ptr<ScheduleRule> timedRule();
std::unique_ptr<ScheduleRule> interleavedRule();
std::unique_ptr<ScheduleRule> foldedRule();
std::unique_ptr<ScheduleRule> ministagesRule();
std::unique_ptr<ScheduleRule> explicitRule();

} // namespace zorse::step
