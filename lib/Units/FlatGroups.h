// Update rules of parameters, which their order in state groups depends on.
#pragma once

#include "zorse/Units/Units.h"

namespace zorse::units {

/// Sets the update rules and that of each parameter, and lays out the groups
/// (zorse/Summary/FlatGroups.h). Returns which parameter group is wrong, or "".
std::string layOutGroups(bundle::ModelSummary &summary, const WeightDecayFilter &rule,
                         const std::vector<bundle::ElementType> &copies);

/// Whether weight decay applies to the parameter.
bool decays(const bundle::ParameterInfo &parameter, const WeightDecayFilter &rule);

} // namespace zorse::units
