// A plan for people: picture, memory, predicted time.
#pragma once

#include "zorse/Step/Plan.h"
#include "zorse/Step/StepGraph.h"

#include <string>

namespace zorse::planning {

/// The rectangle of units x samples, one letter per device, and the legend:
///
///     samples      0       8       16      24     32
///     units 0-2    aaaaaaaabbbbbbbbaaaaaaaabbbbbbbb
///     units 2-6    cccccccccccccccccccccccccccccccc
///
/// Rows are merged where neighbours are equal; samples are scaled to at most `width` columns.
std::string drawPlan(const step::Plan &plan, int32_t units, int width = 64);

/// One line per device: cells, samples, busy time, memory by purpose; and the predicted time of a step.
std::string describeStep(const step::Plan &plan, const step::StepGraph &graph);

} // namespace zorse::planning
