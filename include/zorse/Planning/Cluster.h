// The cluster file: nodes, devices, links (docs/cluster.md).
#pragma once

#include "zorse/Step/Plan.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zorse::planning {

struct ClusterDevice {
  std::string name;
  std::string kind = "cpu";  ///< which driver runs it
  std::string type;          ///< an entry of the table of device types, or free text
  std::string node;
  double speed = 0;          ///< FLOP/s that matrix products reach
  uint64_t memory = 0;       ///< bytes; 0: not limited
  uint32_t threads = 1;      ///< cpu: threads that share a launch
};

struct Cluster {
  std::string name;
  std::vector<ClusterDevice> devices; ///< in file order, which is rank order
  step::Link intraNode, interNode;
};

/// What is known about a type of device when the file does not say: speed and memory. Figures are dense matrix throughput and vendors' memory sizes.
struct DeviceType {
  const char *name;
  const char *kind;
  double speed;
  uint64_t memory;
};
const std::vector<DeviceType> &deviceTypes();

/// Limits that keep a wrong or hostile file from exhausting the machine.
inline constexpr size_t kMostClusterBytes = size_t(16) << 20;
inline constexpr size_t kMostDevices = 65536;

// Errors of this library are like those of zorse/Step/Plan.h: nullopt or false, one message per line in `error`, with "line N:" in front where it
// concerns a file.

std::optional<Cluster> readCluster(const std::string &yaml, std::string &error);

/// Messages start with the path.
std::optional<Cluster> readClusterFile(const std::string &path, std::string &error);

/// Devices of a cluster as a plan lists them.
std::vector<step::PlanDevice> planDevices(const Cluster &cluster);

/// Completes a plan that names devices only: speed, memory, node and links from the cluster, except where the plan has its own. A device the cluster
/// does not have is an error.
bool applyCluster(step::Plan &plan, const Cluster &cluster, std::string &error);

} // namespace zorse::planning
