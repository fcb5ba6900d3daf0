// Teams: the devices of a cluster in groups, each of which acts as one device. Internal.
#pragma once

#include "zorse/Planning/DividedModel.h"
#include "zorse/Planning/Strategy.h"

#include <cstdint>
#include <string>
#include <vector>

namespace zorse::planning {

/// A divided model, and its costs on all devices of the cluster.
struct CostedDivision {
  DividedModel model;
  CostModel costs;
};

/// A device, or devices that divide all units.
struct Team {
  std::vector<uint32_t> devices;            ///< of the cluster, all in one node
  std::vector<double> shares;               ///< by device; they add up to 1
  const CostedDivision *division = nullptr; ///< of all units, by these shares; null for a device

  bool isGroup() const { return devices.size() > 1; }
};

/// A division of a cluster into teams. Devices that are in none are not used.
struct Grouping {
  std::vector<Team> teams;
};

/// Returns the groupings to search, the most promising first.
/// \param usable   devices
/// \param speeds   by device of the cluster, relative
std::vector<Grouping> makeGroupings(const Cluster &cluster, const CostModel &costs,
                                    const std::vector<uint32_t> &usable,
                                    const std::vector<double> &speeds, uint32_t maxSize);

/// Returns the cluster with one device per team. Memory is what the fullest device permits.
/// \param memory  fraction of the memory that may be used
Cluster clusterOfTeams(const Cluster &cluster, const Grouping &grouping, double memory);

/// Returns the costs of teams: of a group, the time of its slowest device plus that of the
/// exchanges.
/// \param costs  of all devices of the cluster and the undivided model
CostModel costsOfTeams(const CostModel &costs, const Grouping &grouping);

/// Converts a plan for teams to a plan for their devices.
step::Plan planOfDevices(const Problem &problem, const step::Plan &plan, const Grouping &grouping);

} // namespace zorse::planning
