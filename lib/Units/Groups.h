// State groups: parameters with the same set of using units, one flat buffer each.
#pragma once

#include "zorse/Units/Units.h"

namespace zorse::units {

/// Fills `groups` and each parameter's group, offset and `decays` from the parameters (name, shape, type, trainable) and the units that name them.
/// Trained and frozen parameters never share a group, nor do element types, nor what is read as copies of different types. Within a group decaying
/// parameters come first; each starts on a multiple of 512 bytes.
/// \param copies  per parameter the type in which units read it; unspecified: its own.
void layOutGroups(bundle::ModelSummary &summary, const DecayRule &rule, llvm::ArrayRef<bundle::ElementType> copies);

/// True if weight decay applies.
bool decays(const bundle::ParameterInfo &parameter, const DecayRule &rule);

} // namespace zorse::units
