// Which of several clusters, or which nodes of a cluster with prices, to rent for a training.
#pragma once

#include "zorse/Planning/Cluster.h"

#include <cstdint>
#include <string>
#include <vector>

namespace zorse::planning {

/// Nodes of a cluster that are equal: devices, links, site and price.
struct Offer {
  std::string name;                         ///< "4 x A100-40"; with the site if there are several
  std::vector<std::vector<uint32_t>> nodes; ///< devices of each
  double price = 0;                         ///< per hour, of one node with all of its devices
};

/// Returns the offers of a cluster: what may be rented, node by node.
std::vector<Offer> offersOf(const Cluster &cluster);

/// Returns numbers of nodes to try, by offer. Every offer contributes 0, 1, 2, 3, 4, 6, 8, 12, 16,
/// ... and all of its nodes. If there are more than `most` combinations, larger numbers are left
/// out first, except all; if there are still too many: everything, everything but one offer, and
/// one offer alone. No combination costs more than maxPrice per hour. \param maxPrice  0: unlimited
std::vector<std::vector<size_t>> selectionsOf(const std::vector<Offer> &offers, double maxPrice,
                                              size_t most);

/// A cluster, or a selection of nodes, and the best plan for it.
struct Rental {
  std::string name;
  size_t devices = 0;
  double price = 0; ///< per hour, of everything that is rented, also of devices without work
  double step = 0;  ///< seconds; 0: no plan
  std::string why;  ///< if there is no plan
};

/// What is to be trained.
struct RentalGoal {
  int64_t batch = 0, tokensPerSample = 0; ///< tokens 0: unknown, samples are counted
  double amount = 0;                      ///< tokens (or samples) in all; 0: not given
  double maxHours = 0, maxTotal = 0;      ///< deadline and budget; 0: unlimited
  std::string currency = "USD";
};

/// Returns the rentals that no other surpasses in both speed and price per hour, the cheapest
/// first. Rentals without a plan are not among them. Without prices: the fastest.
std::vector<size_t> paretoFront(const std::vector<Rental> &rentals);

/// Returns the rental to choose: the cheapest per token that keeps deadline and budget; -1: none
/// does.
int recommended(const std::vector<Rental> &rentals, const RentalGoal &goal);

/// Prints the rentals as a table, the fastest first, with those of the front marked, and what to
/// choose.
std::string printRentals(const std::vector<Rental> &rentals, const RentalGoal &goal);

/// Writes a page with the table and a picture of price and speed.
std::string writeRentalPage(const std::vector<Rental> &rentals, const RentalGoal &goal);

} // namespace zorse::planning
