// The linear programme behind the bound (docs/planner-bound.md). Internal to lib/Planning.
#pragma once

#include <vector>

namespace zorse::planning {

/// Machines of one kind: how many, and the seconds each needs for one piece of every kind of work.
struct Machines {
  double count = 0;
  std::vector<double> seconds; ///< by kind of work; >= 0
};

/// Least seconds until every kind of work l has been done `amounts[l]` times, when any machine may do any fraction of any work at any time:
///
///     min T   such that   sum over machines m of x[m][l] >= amounts[l]   for every kind l
///                         sum over kinds l of seconds[m][l] x[m][l] <= T count[m]   for every m,   x >= 0
///
/// The result is computed from the solver's dual prices by weak duality: prices w >= 0 of the kinds prove that
///
///     T >= sum over l of amounts[l] w[l]  /  sum over m of count[m] max over l of (w[l] / seconds[m][l])
///
/// so it is a bound whatever the solver's tolerances are (and even for wrong prices). 0 if there is nothing to do.
double leastTime(const std::vector<Machines> &machines, const std::vector<double> &amounts);

/// The proof above for given prices.
double provenBy(const std::vector<double> &prices, const std::vector<Machines> &machines, const std::vector<double> &amounts);

} // namespace zorse::planning
