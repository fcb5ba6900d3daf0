#include "zorse/Planning/SelectDevices.h"

#include <algorithm>
#include <cstdlib>

using namespace zorse;
using namespace zorse::planning;

Result<std::vector<uint32_t>> zorse::planning::devicesNamed(const Cluster &cluster,
                                                            const std::vector<std::string> &names) {
  std::vector<uint32_t> devices;
  devices.reserve(names.size());
  for (const std::string &name : names) {
    const auto found =
        std::find_if(cluster.devices.begin(), cluster.devices.end(),
                     [&](const ClusterDevice &device) { return device.name == name; });
    if (found == cluster.devices.end()) {
      constexpr size_t kListed = 8;
      std::string known;
      for (size_t d = 0; d < cluster.devices.size() && d < kListed; ++d)
        known += (d ? ", " : "") + cluster.devices[d].name;
      if (cluster.devices.size() > kListed)
        known += ", ...";
      std::string message = "the cluster has no device '";
      message += name;
      message += "'; its devices are ";
      return userError(message + known);
    }
    devices.push_back(static_cast<uint32_t>(found - cluster.devices.begin()));
  }
  return devices;
}

Status zorse::planning::slowDown(Cluster &cluster, const std::vector<std::string> &texts) {
  for (const std::string &text : texts) {
    const size_t sign = text.rfind('=');
    const std::string name = text.substr(0, sign),
                      number = sign == std::string::npos ? "" : text.substr(sign + 1);
    char *end = nullptr;
    const double factor = std::strtod(number.c_str(), &end);
    if (number.empty() || *end != 0 || !(factor >= kMinSlowdown && factor <= kMaxSlowdown))
      return userError("expected NAME=FACTOR with a factor from 0.01 to 1000, got '" + text + "'");
    const Result<std::vector<uint32_t>> device = devicesNamed(cluster, {name});
    if (device.failed())
      return device.error();
    cluster.devices[device->front()].slowdown = factor;
  }
  return Status::success();
}

Cluster zorse::planning::withoutDevices(Cluster cluster, const std::vector<uint32_t> &devices) {
  std::vector<bool> removed(cluster.devices.size(), false);
  for (const uint32_t device : devices)
    removed[device] = true;
  std::vector<ClusterDevice> kept;
  bundle::Topology topology = cluster.topology;
  topology.clear_node_of_device();
  topology.clear_cpu_communication_costs();
  topology.clear_direct_group_of_device();
  for (size_t d = 0; d < cluster.devices.size(); ++d) {
    if (removed[d])
      continue;
    const int at = static_cast<int>(d);
    topology.add_node_of_device(cluster.topology.node_of_device(at));
    if (cluster.topology.cpu_communication_costs_size() > 0)
      *topology.add_cpu_communication_costs() = cluster.topology.cpu_communication_costs(at);
    if (cluster.topology.direct_group_of_device_size() > 0)
      topology.add_direct_group_of_device(cluster.topology.direct_group_of_device(at));
    kept.push_back(std::move(cluster.devices[d]));
  }
  cluster.devices = std::move(kept);
  cluster.topology = std::move(topology);
  return cluster;
}
