// Adapts a plan to a cluster that has lost or gained devices, in a fraction of the time of a
// search.
#pragma once

#include "zorse/Planning/Search.h"

#include <cstdint>
#include <string>
#include <vector>

namespace zorse::planning {

/// Devices that a plan used and that are not usable any more, and usable ones that it did not use.
struct ClusterChange {
  std::vector<std::string> lost, joined;
};

/// Compares a plan's devices with those of a cluster, by name. \param excluded  devices of the
/// cluster that are not usable
ClusterChange findClusterChange(const step::Plan &old, const Cluster &cluster,
                                const std::vector<uint32_t> &excluded);

/// Adapts a plan of another cluster to the problem's cluster. Devices with equal names are the
/// same. The result is the best of the plan's repairs, strategies near them, and a short search. Of
/// plans within 2 % of the best one, it is the one with the fewest `redistributionBytes`, if it is
/// not slower than the plan without the lost devices.
///
/// Limits count work, so the result depends neither on threads, on the order of devices in the
/// cluster, nor on the time that it takes: at most about one second on two cores for 512 devices.
/// \param old      of the same model and batch, with any schedule. Its structure is not used if
///                 `strategyOf` cannot express it, or if it is not valid
/// \param options  as for searchPlan, without `candidates` and `seconds`
/// \returns nullopt and the message of searchPlan if no plan fits
Result<SearchResult> repairPlan(const Problem &problem, const step::Plan &old,
                                const SearchOptions &options);

/// Returns why repairPlan does not use the structure of a plan; empty: it does.
std::string whyNotRepaired(const Problem &problem, const step::Plan &old);

/// Returns the strategy of a plan for the problem's cluster, or an error that says what of the plan
/// strategies cannot express. makePlan(problem, *strategyOf(problem, plan)) has the cells, owners,
/// schedule and memory optimizations of the plan.
Result<Strategy> strategyOf(const Problem &problem, const step::Plan &plan);

/// Returns the bytes of state that the devices of `plan` must receive because they did not hold
/// them in the plan `old`:
///
///     sum over groups g and devices d of |H(plan, g, d) - H(old, g, name of d)| * bytes(g)
///
/// H are the elements that a device keeps between steps: its owned extent or, if the group is
/// frozen, what it reads. bytes(g) is the size of a parameter (of the master copy, if there is one)
/// and of its optimizer states. A device that `old` does not list held nothing.
uint64_t redistributionBytes(const Problem &problem, const step::Plan &old, const step::Plan &plan);

} // namespace zorse::planning
