// Sums of arrays in a fixed order, shared by transports.
#pragma once

#include "zorse/runtime/Transport.h"

namespace zorse::runtime {

/// target[i] = ((sources[0][i] + sources[1][i]) + ...) for i < count. The target may be one of the sources.
void rankedSum(NumberType type, void *target, const std::vector<const void *> &sources, int64_t count);

} // namespace zorse::runtime
