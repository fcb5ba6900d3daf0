// State groups (flat parameter groups): parameters that are used by the same set of units share one
// flat buffer.
#pragma once

#include "bundle.pb.h"

#include <vector>

namespace zorse {

/// Fills `groups`, and the group and offset of each parameter, from the parameters (name, shape,
/// type, trainable, update rule) and the units that use them. A group never mixes trained and
/// frozen parameters, element types, types of low-precision copies, types of optimizer states,
/// blocks that the optimizer updates as a whole and other parameters, or, in groups of devices,
/// readers. In a group, parameters are in the order of their update rules. Each parameter is
/// aligned to 512 bytes.
/// \param copies  per parameter, the type in which units read it; unspecified: its own
void layOutGroups(bundle::ModelSummary &summary, const std::vector<bundle::ElementType> &copies);

/// Whether the optimizer updates the parameters of a group as whole blocks.
bool updatesBlocks(const bundle::ModelSummary &summary, const bundle::FlatGroupInfo &group);

/// Number of consecutive blocks of a rule at whose ends parameters and states are aligned.
int64_t alignedBlocks(const bundle::UpdateRule &rule, bundle::ElementType type);

/// Returns the largest position of a group, at most `element`, at which the extent of an owner or
/// the part of an update may begin or end: the parameters there and their optimizer states are
/// aligned to 512 bytes, and no block that the optimizer updates as a whole is divided.
int64_t ownerBorder(const bundle::ModelSummary &summary, uint32_t group, int64_t element);

/// Removes parameters that no unit reads: if devices divide a parameter, units read only its parts.
/// \param copies  as above; changed as the parameters are
void dropUnreadParameters(bundle::ModelSummary &summary, std::vector<bundle::ElementType> &copies);

} // namespace zorse
