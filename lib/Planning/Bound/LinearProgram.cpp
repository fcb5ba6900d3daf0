#include "LinearProgram.h"

#include <coin/Clp_C_Interface.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

using namespace zorse::planning;

double zorse::planning::provenBy(const std::vector<double> &prices,
                                 const std::vector<Machines> &machines,
                                 const std::vector<double> &amounts) {
  double worth = 0, rate = 0; // price of all work; price that all machines earn per second
  for (size_t l = 0; l < amounts.size(); ++l)
    worth += amounts[l] * std::max(prices[l], 0.0);
  for (const Machines &m : machines) {
    double best = 0;
    for (size_t l = 0; l < amounts.size(); ++l)
      if (prices[l] > 0)
        best = std::max(best,
                        prices[l] / m.seconds[l]); // infinite if the work is free; the proof then
                                                   // shows nothing
    rate += m.count * best;
  }
  return worth > 0 && rate > 0 ? worth / rate : 0;
}

namespace {

constexpr double kUnlimited = std::numeric_limits<double>::max(); // Clp treats this value as
                                                                  // infinity

using Model = std::unique_ptr<Clp_Simplex, decltype(&Clp_deleteModel)>;

/// Returns the prices of the kinds of work in an optimal solution. Times of machines are scaled to
/// about 1.
std::vector<double> solve(const std::vector<Machines> &machines, const std::vector<double> &amounts,
                          double scale) {
  const size_t kinds = amounts.size(), rows = kinds + machines.size();
  // Columns: T, then for each machine group its total seconds on every kind of work.
  std::vector<CoinBigIndex> starts{0};
  std::vector<int> indices;
  std::vector<double> values, objective{1}, lower(rows, -kUnlimited), upper(rows, kUnlimited);
  for (size_t m = 0; m < machines.size(); ++m) {
    indices.push_back(static_cast<int>(kinds + m));
    values.push_back(-1);
    upper[kinds + m] = 0;
  }
  starts.push_back(static_cast<CoinBigIndex>(indices.size()));
  for (size_t l = 0; l < kinds; ++l)
    lower[l] = 1;
  for (size_t m = 0; m < machines.size(); ++m)
    for (size_t l = 0; l < kinds; ++l) {
      // The share of all work of the kind that one scaled second of each machine of the group
      // executes.
      indices.push_back(static_cast<int>(l));
      values.push_back(machines[m].count * scale / (machines[m].seconds[l] * amounts[l]));
      indices.push_back(static_cast<int>(kinds + m));
      values.push_back(1);
      starts.push_back(static_cast<CoinBigIndex>(indices.size()));
      objective.push_back(0);
    }
  std::vector<double> columnLower(objective.size(), 0), columnUpper(objective.size(), kUnlimited);
  Model model(Clp_newModel(), Clp_deleteModel);
  Clp_setLogLevel(model.get(), 0);
  Clp_loadProblem(model.get(), static_cast<int>(objective.size()), static_cast<int>(rows),
                  starts.data(), indices.data(), values.data(), columnLower.data(),
                  columnUpper.data(), objective.data(), lower.data(), upper.data());
  Clp_initialSolve(model.get());
  const double *prices = Clp_dualRowSolution(model.get());
  std::vector<double> result(kinds);
  for (size_t l = 0; l < kinds; ++l)
    result[l] = prices ? std::max(prices[l], 0.0) / amounts[l] : 0;
  return result;
}

} // namespace

double zorse::planning::minTime(const std::vector<Machines> &machines,
                                const std::vector<double> &amounts) {
  return pricedTime(machines, amounts).seconds;
}

PricedTime zorse::planning::pricedTime(const std::vector<Machines> &all,
                                       const std::vector<double> &allAmounts) {
  // A kind of work does not bind if some machine needs no time for it, or if its amount is 0.
  std::vector<size_t> binding;
  for (size_t l = 0; l < allAmounts.size(); ++l)
    if (allAmounts[l] > 0 &&
        std::all_of(all.begin(), all.end(), [&](const Machines &m) { return m.seconds[l] > 0; }))
      binding.push_back(l);
  std::vector<double> amounts;
  for (size_t l : binding)
    amounts.push_back(allAmounts[l]);
  std::vector<Machines> machines;
  for (const Machines &m : all)
    if (m.count > 0) {
      machines.push_back({m.count, {}});
      for (size_t l : binding)
        machines.back().seconds.push_back(m.seconds[l]);
    }
  PricedTime result{0, std::vector<double>(allAmounts.size(), 0)};
  if (machines.empty() || amounts.empty())
    return result;

  // Prices without a solver: the seconds a machine needs on average for the kind. They also scale
  // the times.
  std::vector<double> average(amounts.size(), 0);
  for (size_t l = 0; l < amounts.size(); ++l) {
    double rate = 0, count = 0;
    for (const Machines &m : machines) {
      rate += m.count / m.seconds[l];
      count += m.count;
    }
    average[l] = count / rate;
  }
  auto propose = [&](const std::vector<double> &prices) {
    const double proven = provenBy(prices, machines, amounts);
    if (proven <= result.seconds)
      return;
    result.seconds = proven;
    for (size_t l = 0; l < binding.size(); ++l)
      result.prices[binding[l]] = prices[l];
  };
  propose(average);
  if (amounts.size() > 1 && machines.size() > 1)
    propose(solve(machines, amounts, result.seconds));
  return result;
}
