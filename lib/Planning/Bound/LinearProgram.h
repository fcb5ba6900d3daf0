// The linear program of the lower bound (docs/internals/cost-models.md). Internal to lib/Planning.
#pragma once

#include <vector>

namespace zorse::planning {

/// Machines of one kind: their number, and the seconds that each needs for one unit of every kind
/// of work.
struct Machines {
  double count = 0;
  std::vector<double> seconds; ///< by kind of work; >= 0
};

/// Returns a lower bound of the seconds until every kind of work l is done `amounts[l]` times, if
/// any machine may execute any fraction of any work at any time:
///
///     min T   such that   sum over machines m of x[m][l] >= amounts[l]              for every l
///                         sum over kinds l of seconds[m][l] x[m][l] <= T count[m]   for every m
///                         x >= 0
///
/// The result is computed from the solver's dual prices by weak duality: prices w >= 0 of the kinds
/// prove that
///
///     T >= sum over l of amounts[l] w[l]
///          / sum over m of count[m] max over l of (w[l] / seconds[m][l])
///
/// The bound is therefore valid for any tolerance of the solver, and even for wrong prices. Returns
/// 0 if there is no work.
double minTime(const std::vector<Machines> &machines, const std::vector<double> &amounts);

/// The same bound, and the prices that prove it: one per kind of work, 0 for kinds that do not
/// bind.
struct PricedTime {
  double seconds = 0;
  std::vector<double> prices;
};
PricedTime pricedTime(const std::vector<Machines> &machines, const std::vector<double> &amounts);

/// Returns the bound that the given prices prove, as above.
double provenBy(const std::vector<double> &prices, const std::vector<Machines> &machines,
                const std::vector<double> &amounts);

} // namespace zorse::planning
