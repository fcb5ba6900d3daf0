// Search with tensor parallelism: groups of devices that divide units.
#pragma once

#include "zorse/Planning/DividedModel.h"
#include "zorse/Planning/Search.h"

#include <memory>
#include <optional>

namespace zorse::planning {

struct GroupedResult {
  SearchResult best; ///< without `strategy` if `model` is set
  /// The model as the groups of the plan divide it; nullptr: the plan has no groups.
  std::unique_ptr<DividedModel> model;
  uint32_t groupings = 0;            ///< number of groupings, with those that their bound excludes
  std::optional<double> stepWithout; ///< seconds of the best plan without groups, if one fits
};

/// Returns the groups of a plan, with the units of their cells.
std::vector<UnitGroup> unitGroupsOf(const step::Plan &plan);

/// Searches as searchPlan does, and also with the cluster's devices in groups of at most `maxSize`.
/// Devices of a group are in one node. Groups of equal devices have equal shares; others have
/// shares in proportion to their speed. A plan has groups only if it is better than all plans
/// without, or if those do not fit.
///
/// For each grouping, the search runs on a cluster in which a group is one device: its time is that
/// of its slowest part plus the exchanges, its memory what the parts of its devices permit. The
/// plan found is then evaluated by the full expansion with the divided functions of all devices.
/// \param model  the model of `problem`
Result<GroupedResult> searchWithGroups(const Problem &problem, const SearchOptions &options,
                                       uint32_t maxSize, DivisibleModel &model);

/// Returns the number of devices of the largest group in a plan with groups that fits; 0: none was
/// found. For a problem of which no plan without groups fits.
uint32_t groupSizeThatFits(const Problem &problem, const SearchOptions &options, uint32_t maxSize,
                           DivisibleModel &model);

} // namespace zorse::planning
