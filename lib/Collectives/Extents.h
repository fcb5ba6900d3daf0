// Lists of extents that are divided among devices. Internal to Collectives.
#pragma once

#include "zorse/Collectives/Schedule.h"

#include <vector>

namespace zorse::collectives {

int64_t lengthOf(const Cover &cover);

/// Removes the first `amount` elements of a list, up to the next multiple of kGrain, and returns
/// them.
Cover takeFront(Cover &list, int64_t amount);

/// Divides a list, in its order, in proportion to weights. \returns one list per weight
/// \param rounding  elements by which a cut may move to the end of an extent
std::vector<Cover> divideByWeights(const Cover &list, const std::vector<double> &weights,
                                   int64_t rounding);

/// Sorts by element and joins adjacent extents of a device.
void normalize(Cover &cover);

/// Links of a child of a group, and what its devices own.
struct ChildLinks {
  double in = 0, out = 0; ///< elements per unit of time
  int64_t owned = 0;      ///< elements
};

/// Returns the number of elements that each child sums, of `whole`, such that the busiest child's
/// links are busy for the least time. A child that sums S elements receives `terms` terms of each,
/// and those that it owns and others sum; it sends those that it does not sum, and sums that others
/// own:
///
///     in = terms * S + max(0, owned - S)      out = whole - S + max(0, S - owned)
///
/// Both are monotone in S, so that for a time there is an interval of S; the time is bisected.
///
/// \param rounding  elements by which a share may differ from the best one, to be what a child owns
std::vector<int64_t> shareSums(const std::vector<ChildLinks> &children, double terms, int64_t whole,
                               int64_t rounding);

} // namespace zorse::collectives
