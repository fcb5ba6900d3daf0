// Conversion of a cluster's data for plans.
#include "zorse/Planning/Cluster.h"

#include "zorse/Bundle/DeviceKinds.h"
#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <unordered_map>

using namespace zorse;
using namespace zorse::planning;

/// Returns the name of a device's site; empty if the cluster has one.
static std::string siteName(const Cluster &cluster, const ClusterDevice &device) {
  if (cluster.topology.sites_size() < 2)
    return "";
  const uint32_t site = cluster.topology.nodes(static_cast<int>(device.node)).site();
  return cluster.topology.sites(static_cast<int>(site)).name();
}

std::vector<zorse::step::PlanDevice> zorse::planning::planDevices(const Cluster &cluster,
                                                                  bundle::ElementType computeType) {
  std::vector<step::PlanDevice> devices;
  for (const ClusterDevice &device : cluster.devices)
    devices.push_back({device.name, device.flopsPerSecond[speedIndex(computeType)],
                       device.capacity(), cluster.nodes[device.node].name,
                       siteName(cluster, device)});
  return devices;
}

/// Sums in f16: returns an assumption about the devices that gain by it.
static std::vector<std::string> allowSumsInF16(Cluster &cluster) {
  size_t fast = 0;
  for (ClusterDevice &device : cluster.devices)
    if (const DeviceType *type = findDeviceType(device.type, device.memory);
        type && type->halfRateSums)
      ++fast, device.flopsPerSecond[speedIndex(bundle::F16)] *= 1.5;
  return {"sums in f16: " + std::to_string(fast) + " of " + std::to_string(cluster.devices.size()) +
          " devices multiply faster with them (GeForce); results depend on the plan to within the "
          "rounding of f16, because CPUs sum in f32"};
}

static Result<std::vector<std::string>> allowTf32(Cluster &cluster) {
  std::string lack;
  size_t count = 0;
  for (ClusterDevice &device : cluster.devices) {
    double &speed = device.flopsPerSecond[speedIndex(bundle::F32)];
    if (DeviceKind::hasTf32(device.arch))
      speed = std::max(speed, device.flopsPerSecond[speedIndex(bundle::BF16)] / 2);
    else if (++count <= 3)
      lack += (lack.empty() ? "" : ", ") + device.name;
  }
  if (count == cluster.devices.size())
    return userError("--precision tf32: no device of the cluster has TF32 (" + lack +
                     (count > 3 ? ", ..." : "") +
                     "); GPUs of NVIDIA from sm_80 on have it. Give --precision f32");
  std::vector<std::string> assumed;
  if (count > 0)
    assumed.push_back(std::to_string(count) + (count > 1 ? " devices have" : " device has") +
                      " no TF32 (" + lack + (count > 3 ? ", ..." : "") +
                      "): their products are in f32, and results depend on the plan to within the "
                      "rounding of TF32");
  return assumed;
}

Result<std::vector<std::string>> zorse::planning::adaptToPrecision(Cluster &cluster,
                                                                   const Precision &precision) {
  if (precision.tf32)
    return allowTf32(cluster);
  return precision.sumsF16 ? allowSumsInF16(cluster) : std::vector<std::string>();
}

/// \param canExchange  whether a kind of device can exchange directly
template <typename CanExchange>
static std::vector<int32_t> groupsOf(const Cluster &cluster, CanExchange canExchange) {
  std::vector<int32_t> groups;
  groups.reserve(cluster.devices.size());
  for (const ClusterDevice &device : cluster.devices) {
    const uint32_t site = cluster.topology.nodes(static_cast<int>(device.node)).site();
    const bool can = device.deviceToDevice && canExchange(deviceKindOf(device.kind));
    switch (can ? cluster.deviceToDevice : D2dScope::Nowhere) {
    case D2dScope::Everywhere:
      groups.push_back(0);
      break;
    case D2dScope::Site:
      groups.push_back(static_cast<int32_t>(site));
      break;
    case D2dScope::Node:
      groups.push_back(static_cast<int32_t>(device.node));
      break;
    case D2dScope::Nowhere:
      groups.push_back(-1);
    }
  }
  return groups;
}

std::vector<int32_t> zorse::planning::d2dGroups(const Cluster &cluster) {
  return groupsOf(cluster, [](const DeviceKind &kind) { return kind.deviceToDevice; });
}

std::vector<int32_t> zorse::planning::directGroups(const Cluster &cluster) {
  return groupsOf(cluster,
                  [](const DeviceKind &kind) { return kind.deviceToDevice || !kind.driven; });
}

std::map<std::string, uint64_t> zorse::planning::hostMemory(const Cluster &cluster) {
  std::map<std::string, uint64_t> bytes;
  for (const ClusterNode &node : cluster.nodes)
    if (node.hostMemory)
      bytes[node.name] = node.hostMemory;
  return bytes;
}

void zorse::planning::planLinks(const Cluster &cluster, step::Plan &plan) {
  if (cluster.topology.nodes_size() == 0 || cluster.topology.sites_size() == 0)
    return;
  const auto &node = cluster.topology.nodes(0);
  plan.intraNode = {node.port().bandwidth(), node.port().latency()};
  plan.interNode = {node.nic().bandwidth(),
                    2 * node.nic().latency() + cluster.topology.sites(0).fabric().latency()};
}

Status zorse::planning::applyCluster(step::Plan &plan, const Cluster &cluster,
                                     bundle::ElementType computeType) {
  std::string error;
  std::unordered_map<std::string, const ClusterDevice *> byName;
  for (const ClusterDevice &device : cluster.devices)
    byName[device.name] = &device;
  for (step::PlanDevice &device : plan.devices) {
    auto it = byName.find(device.name);
    if (it == byName.end()) {
      std::string known;
      for (size_t i = 0; i < cluster.devices.size() && i < 12; ++i)
        known += (i ? ", " : "") + cluster.devices[i].name;
      error +=
          (error.empty() ? "" : "\n") +
          ("device '" + device.name + "' of the plan is not in the cluster, which has " + known) +
          (cluster.devices.size() > 12 ? ", ..." : "");
      continue;
    }
    if (device.flopsPerSecond <= 0)
      device.flopsPerSecond = it->second->flopsPerSecond[speedIndex(computeType)];
    if (device.memory == 0)
      device.memory = it->second->capacity();
    if (device.node.empty())
      device.node = cluster.nodes[it->second->node].name;
    if (device.site.empty())
      device.site = siteName(cluster, *it->second);
  }
  plan.hostMemory = hostMemory(cluster);
  auto unset = [](const step::LinkSpeed &link) { return link.bandwidth <= 0 && link.latency <= 0; };
  if (unset(plan.intraNode) && unset(plan.interNode))
    planLinks(cluster, plan);
  return error.empty() ? Status::success() : Status(userError(error));
}
