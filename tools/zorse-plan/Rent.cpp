#include "Rent.h"

#include "zorse/Planning/Rent.h"
#include "zorse/Planning/Report.h"
#include "zorse/Summary/Summary.h"
#include "zorse/runtime/OutputFile.h"

#include <algorithm>
#include <cstdio>
#include <iostream>

using namespace zorse;
using namespace zorse::plan;

namespace {

/// The best plan of a problem as a rental. \param price  per hour of everything that is rented
planning::Rental rentalOf(std::string name, const planning::Problem &problem,
                          const planning::SearchOptions &search, size_t devices, double price) {
  planning::Rental rental{std::move(name), devices, price, 0, ""};
  const Result<planning::SearchResult> result = planning::searchPlan(problem, search);
  if (result.failed())
    rental.why = result.message();
  else
    rental.step = result->evaluation.step;
  return rental;
}

planning::RentalGoal goalOf(const Options &o, const Inputs &inputs, int64_t rows) {
  planning::RentalGoal goal;
  goal.batch = rows * samplesPerRow(inputs.model.summary);
  goal.tokensPerSample = planning::tokensPerSample(inputs.model.summary);
  goal.amount = o.amount;
  goal.maxHours = o.maxHours;
  goal.maxTotal = o.maxTotal;
  goal.currency = inputs.cluster->currency;
  return goal;
}

int showRentals(const Options &o, const std::vector<planning::Rental> &rentals,
                const planning::RentalGoal &goal) {
  if (!o.quiet)
    std::cout << planning::printRentals(rentals, goal);
  if (!o.html.empty())
    if (runtime::Status status =
            runtime::writeOutput(o.html, planning::writeRentalPage(rentals, goal));
        status.failed())
      return fail(status.message());
  if (std::all_of(rentals.begin(), rentals.end(), [](const auto &r) { return r.step <= 0; }))
    return fail("no plan fits any of them");
  return planning::recommended(rentals, goal) < 0
             ? fail("nothing keeps the deadline and the budget")
             : 0;
}

} // namespace

int zorse::plan::compareClusters(const Options &given) {
  std::vector<planning::Rental> rentals;
  planning::RentalGoal goal;
  for (const std::string &path : given.compareClusters) {
    Options o = given;
    o.cluster = path;
    Inputs inputs;
    if (Status status = readInputs(o, inputs); status.failed())
      return fail(status.message());
    const planning::Cluster &cluster = *inputs.cluster;
    const Result<planning::CostModel> costs =
        planning::CostModel::make(inputs.model.summary, cluster, inputs.profileIfAny(), {});
    if (costs.failed())
      return fail(path + ": " + costs.message());
    planning::Problem problem{inputs.model.summary, cluster, *costs, o.batch,
                              inputs.model.functions ? &*inputs.model.functions : nullptr};
    if (Status status = applyPlanOptions(o, problem, inputs.plan); status.failed())
      return fail(status.message());
    const Result<planning::SearchOptions> search = searchOptions(o, cluster);
    if (search.failed())
      return fail(path + ": " + search.message());
    double price = 0;
    for (const planning::Offer &offer : planning::offersOf(cluster))
      price += offer.price * double(offer.nodes.size());
    rentals.push_back(rentalOf(path, problem, *search, cluster.devices.size(), price));
    const planning::RentalGoal here = goalOf(given, inputs, o.batch);
    if (rentals.size() > 1 && here.currency != goal.currency)
      return fail(path + ": prices are in " + here.currency + ", those of " +
                  given.compareClusters.front() + " in " + goal.currency +
                  "; give all prices in one currency");
    goal = here;
  }
  return showRentals(given, rentals, goal);
}

int zorse::plan::shop(const Options &o, const Inputs &inputs, const planning::Problem &problem,
                      const planning::SearchOptions &search) {
  constexpr size_t kSelections = 64;
  const std::vector<planning::Offer> offers = planning::offersOf(*inputs.cluster);
  if (std::all_of(offers.begin(), offers.end(), [](const auto &offer) { return offer.price <= 0; }))
    return fail("--shop: no device or node of " + o.cluster +
                " has a price (docs/reference/cluster-yaml.md)");
  const auto selections = planning::selectionsOf(offers, search.maxPrice, kSelections);
  auto rent = [&](const std::vector<size_t> &selection) {
    planning::SearchOptions some = search;
    some.maxPrice = 0;
    some.progress = nullptr;
    some.ranks = true;
    some.memoryHints = false;
    std::string name;
    size_t devices = 0;
    double price = 0;
    for (size_t i = 0; i < offers.size(); ++i)
      for (size_t n = 0; n < offers[i].nodes.size(); ++n) {
        const std::vector<uint32_t> &node = offers[i].nodes[n];
        if (n >= selection[i]) {
          some.excluded.insert(some.excluded.end(), node.begin(), node.end());
          continue;
        }
        devices += node.size();
        price += offers[i].price;
        if (n == 0)
          name += (name.empty() ? "" : ", ") + std::to_string(selection[i]) + " of (" +
                  offers[i].name + ")";
      }
    return rentalOf(name, problem, some, devices, price);
  };
  std::vector<planning::Rental> rentals;
  for (const std::vector<size_t> &selection : selections) {
    if (search.progress)
      fprintf(stderr, "\r  %zu of %zu selections   ", rentals.size() + 1, selections.size());
    rentals.push_back(rent(selection));
  }
  if (search.progress)
    fputs("\r\x1b[K", stderr);
  return showRentals(o, rentals, goalOf(o, inputs, problem.batch));
}
