// State groups (flat parameter groups): parameters that are used by the same set of units share one
// flat buffer.
#pragma once

#include "bundle.pb.h"

#include <vector>

namespace zorse {

/// Fills `groups`, and the group and offset of each parameter, from the parameters (name, shape,
/// type, trainable, update rule) and the units that use them. A group never mixes trained and
/// frozen parameters, element types, types of low-precision copies, or, in groups of devices,
/// readers. In a group, parameters are in the order of their update rules. Each parameter is
/// aligned to 512 bytes.
/// \param copies  per parameter, the type in which units read it; unspecified: its own
void layOutGroups(bundle::ModelSummary &summary, const std::vector<bundle::ElementType> &copies);

/// Removes parameters that no unit reads: if devices divide a parameter, units read only its parts.
/// \param copies  as above; changed as the parameters are
void dropUnreadParameters(bundle::ModelSummary &summary, std::vector<bundle::ElementType> &copies);

} // namespace zorse
