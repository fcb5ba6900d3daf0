// State groups (flat parameter groups): parameters that are used by the same set of units share one
// flat buffer.
#pragma once

#include "zorse/Units/Units.h"

namespace zorse::units {

/// Fills `groups`, and the group, offset and `decays` of each parameter, from the parameters (name,
/// shape, type, trainable) and the units that use them. A group never mixes trained and frozen
/// parameters, element types, or types of low-precision copies. In a group, parameters with weight
/// decay are first. Each parameter is aligned to 512 bytes.
/// \param copies  per parameter, the type in which units read it; unspecified: its own.
void layOutGroups(bundle::ModelSummary &summary, const WeightDecayFilter &rule,
                  llvm::ArrayRef<bundle::ElementType> copies);

/// Whether weight decay applies to the parameter.
bool decays(const bundle::ParameterInfo &parameter, const WeightDecayFilter &rule);

} // namespace zorse::units
