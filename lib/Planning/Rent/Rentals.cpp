#include "zorse/Planning/Rent.h"

#include "../Report/Text.h"

#include "zorse/Base/Format.h"
#include "zorse/Html/Page.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// Tokens (or samples) of a step.
double unitsOf(const RentalGoal &goal) {
  return static_cast<double>(goal.batch) *
         static_cast<double>(std::max<int64_t>(goal.tokensPerSample, 1));
}
const char *unitName(const RentalGoal &goal) {
  return goal.tokensPerSample > 0 ? "tokens" : "samples";
}
/// Price of a million tokens (or samples).
double perMillion(const Rental &rental, const RentalGoal &goal) {
  return rental.price / 3600 * rental.step / unitsOf(goal) * 1e6;
}
double hoursOf(const Rental &rental, const RentalGoal &goal) {
  return goal.amount / unitsOf(goal) * rental.step / 3600;
}

/// Whether rentals can be compared by price.
bool arePriced(const std::vector<Rental> &rentals) {
  return std::all_of(rentals.begin(), rentals.end(),
                     [](const Rental &rental) { return rental.step <= 0 || rental.price > 0; });
}

bool keepsLimits(const Rental &rental, const RentalGoal &goal) {
  if (rental.step <= 0)
    return false;
  const double hours = hoursOf(rental, goal);
  return (goal.maxHours <= 0 || hours <= goal.maxHours) &&
         (goal.maxTotal <= 0 || hours * rental.price <= goal.maxTotal);
}

/// The fastest first; those without a plan last.
std::vector<size_t> bySpeed(const std::vector<Rental> &rentals) {
  std::vector<size_t> order(rentals.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    auto key = [&](size_t i) { return rentals[i].step > 0 ? rentals[i].step : INFINITY; };
    return key(a) < key(b);
  });
  return order;
}

std::string choiceText(const std::vector<Rental> &rentals, const RentalGoal &goal) {
  const int chosen = recommended(rentals, goal);
  const bool isLimited = goal.maxHours > 0 || goal.maxTotal > 0;
  if (chosen < 0)
    return {};
  const Rental &rental = rentals[static_cast<size_t>(chosen)];
  std::string text = "choose          " + rental.name + ": " +
                     (arePriced(rentals)
                          ? std::string("the cheapest, by ") + unitName(goal)
                          : "the fastest; prices are missing, so they are not compared") +
                     (isLimited ? ", that keeps the limits" : "");
  if (goal.amount > 0)
    text += format(", %.1f hours", hoursOf(rental, goal)) +
            (rental.price > 0
                 ? format(", %.2f ", hoursOf(rental, goal) * rental.price) + goal.currency
                 : "");
  return text + "\n";
}

TextTable tableOf(const std::vector<Rental> &rentals, const RentalGoal &goal,
                  const std::vector<size_t> &front) {
  TextTable table;
  std::vector<std::string> head{"rented",
                                "devices",
                                goal.currency + "/h",
                                "predicted step",
                                std::string(unitName(goal)) + "/s",
                                goal.currency + " per million"};
  if (goal.amount > 0)
    head.insert(head.end(), {"hours", goal.currency});
  head.emplace_back("");
  table.add(head);
  for (const size_t i : bySpeed(rentals)) {
    const Rental &rental = rentals[i];
    if (rental.step <= 0)
      continue;
    const bool priced = rental.price > 0;
    std::vector<std::string> row{rental.name,
                                 std::to_string(rental.devices),
                                 priced ? format("%.2f", rental.price) : "?",
                                 showSeconds(rental.step),
                                 showCount(unitsOf(goal) / rental.step),
                                 priced ? format("%.3g", perMillion(rental, goal)) : "?"};
    if (goal.amount > 0) {
      row.push_back(format("%.1f", hoursOf(rental, goal)));
      row.push_back(priced ? format("%.0f", hoursOf(rental, goal) * rental.price) : "?");
    }
    row.emplace_back(std::find(front.begin(), front.end(), i) == front.end() && arePriced(rentals)
                         ? "surpassed"
                     : keepsLimits(rental, goal) ? ""
                                                 : "beyond the limits");
    table.add(std::move(row));
  }
  return table;
}

} // namespace

std::vector<size_t> planning::paretoFront(const std::vector<Rental> &rentals) {
  std::vector<size_t> order = bySpeed(rentals), front;
  if (!arePriced(rentals))
    order.resize(1);
  double cheapest = INFINITY;
  for (const size_t i : order)
    if (rentals[i].step > 0 && rentals[i].price < cheapest) {
      cheapest = rentals[i].price;
      front.push_back(i);
    }
  std::reverse(front.begin(), front.end());
  return front;
}

int planning::recommended(const std::vector<Rental> &rentals, const RentalGoal &goal) {
  int best = -1;
  auto key = [&](size_t i) {
    return std::pair(arePriced(rentals) ? perMillion(rentals[i], goal) : 0, rentals[i].step);
  };
  for (size_t i = 0; i < rentals.size(); ++i)
    if (keepsLimits(rentals[i], goal) && (best < 0 || key(i) < key(static_cast<size_t>(best))))
      best = static_cast<int>(i);
  return best;
}

std::string planning::printRentals(const std::vector<Rental> &rentals, const RentalGoal &goal) {
  std::string text = tableOf(rentals, goal, paretoFront(rentals)).print();
  for (const Rental &rental : rentals)
    if (rental.step <= 0)
      text += rental.name + ": " + rental.why.substr(0, rental.why.find('\n')) + "\n";
  return text + choiceText(rentals, goal);
}

namespace {

/// Draws price per hour against speed, with the front as a line.
class Scatter {
public:
  Scatter(const std::vector<Rental> &rentals, const RentalGoal &goal)
      : rentals(rentals), goal(goal) {
    for (const Rental &rental : rentals)
      if (rental.step > 0) {
        largestPrice = std::max(largestPrice, rental.price);
        largestSpeed = std::max(largestSpeed, unitsOf(goal) / rental.step);
      }
  }

  std::string draw() const {
    const std::vector<size_t> front = paretoFront(rentals);
    const int chosen = recommended(rentals, goal);
    std::string svg = format("<svg viewBox=\"0 0 %d %d\" role=img>", kWidth + 90, kHeight + 50);
    svg += format("<path d=\"M60 10V%dH%d\" fill=none stroke=currentColor />", kHeight + 10,
                  kWidth + 70);
    svg += "<polyline fill=none stroke=\"#4a7\" points=\"";
    for (const size_t i : front)
      svg += format("%.1f,%.1f ", x(rentals[i]), y(rentals[i]));
    svg += "\"/>";
    for (size_t i = 0; i < rentals.size(); ++i)
      if (rentals[i].step > 0)
        svg += dot(i, std::find(front.begin(), front.end(), i) != front.end(),
                   static_cast<int>(i) == chosen);
    svg += format("<text x=%d y=%d text-anchor=end>%s an hour, up to %.2f</text>", kWidth + 70,
                  kHeight + 40, html::escape(goal.currency).c_str(), largestPrice);
    svg += "<text x=64 y=20>" + std::string(unitName(goal)) + " a second, up to " +
           showCount(largestSpeed) + "</text></svg>\n";
    return svg;
  }

private:
  static constexpr int kWidth = 700, kHeight = 320;

  double x(const Rental &rental) const {
    return 60 + (largestPrice > 0 ? rental.price / largestPrice * kWidth : 0);
  }
  double y(const Rental &rental) const {
    return kHeight + 10 - unitsOf(goal) / rental.step / largestSpeed * (kHeight - 20);
  }
  std::string dot(size_t i, bool isOfFront, bool isChosen) const {
    const Rental &rental = rentals[i];
    std::string text = format("<circle cx=%.1f cy=%.1f r=%d fill=\"%s\"><title>", x(rental),
                              y(rental), isChosen ? 7 : 4,
                              isChosen    ? "#d60"
                              : isOfFront ? "#4a7"
                                          : "#999");
    return text + html::escape(rental.name) + format(": %.2f ", rental.price) +
           html::escape(goal.currency) + " an hour, " + showCount(unitsOf(goal) / rental.step) +
           " " + unitName(goal) + " a second</title></circle>";
  }

  const std::vector<Rental> &rentals;
  const RentalGoal &goal;
  double largestPrice = 0, largestSpeed = 1e-300;
};

} // namespace

std::string planning::writeRentalPage(const std::vector<Rental> &rentals, const RentalGoal &goal) {
  std::string body = "<p class=lead>" + html::escape(choiceText(rentals, goal)) + "</p>\n" +
                     Scatter(rentals, goal).draw() + "<h2>Table</h2>\n<pre>" +
                     html::escape(printRentals(rentals, goal)) + "</pre>\n";
  return html::page("What to rent", body, nlohmann::json::object(), "");
}
