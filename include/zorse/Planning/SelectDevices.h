// Devices of a cluster by name, and a cluster without some of them.
#pragma once

#include "zorse/Planning/Cluster.h"

#include <cstdint>
#include <string>
#include <vector>

namespace zorse::planning {

/// Returns the indices of the devices with these names. The error names one that does not exist,
/// and those that do.
Result<std::vector<uint32_t>> devicesNamed(const Cluster &cluster,
                                           const std::vector<std::string> &names);

/// Parses texts "NAME=FACTOR" and sets ClusterDevice::slowdown of these devices.
Status slowDown(Cluster &cluster, const std::vector<std::string> &texts);

/// Returns a cluster without some of its devices. Nodes and links stay, also of nodes that are left
/// without devices.
Cluster withoutDevices(Cluster cluster, const std::vector<uint32_t> &devices);

} // namespace zorse::planning
