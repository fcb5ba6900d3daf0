#include "Replicas.h"

#include <algorithm>
#include <map>
#include <string>

using namespace zorse;
using namespace zorse::planning;

namespace {

constexpr uint32_t kNone = UINT32_MAX, kSeveral = UINT32_MAX - 1;

} // namespace

ReplicaFinder::ReplicaFinder(const Problem &problem) : problem(&problem) {
  const bundle::Topology &topology = problem.cluster.topology;
  possible = topology.cpu_communication_costs_size() == 0 &&
             topology.node_of_device_size() == static_cast<int>(problem.cluster.devices.size());
  std::map<std::string, uint32_t> classes;
  for (const auto &node : topology.nodes()) {
    std::string text;
    for (const bundle::LinkSpec *link : {&node.port(), &node.bus(), &node.nic(),
                                         &topology.sites(static_cast<int>(node.site())).fabric()})
      for (double value : {link->bandwidth(), link->latency(), link->per_flow_bandwidth()})
        text.append(reinterpret_cast<const char *>(&value), sizeof value);
    nodeClass.push_back(classes.emplace(text, static_cast<uint32_t>(classes.size())).first->second);
  }
  for (const auto &site : topology.sites())
    sharedFabric.push_back(site.fabric().bandwidth() > 0);
  deviceReplica.assign(problem.cluster.devices.size(), kNone);
  nodeReplica.assign(nodeClass.size(), kNone);
}

void ReplicaFinder::forget(const Strategy &strategy) {
  pairs.clear();
  begins.clear();
  first.resize(strategy.pipelines.size());
  for (uint32_t p = 0; p < first.size(); ++p)
    first[p] = p;
}

void ReplicaFinder::find(const Strategy &strategy) {
  forget(strategy);
  const size_t count = strategy.pipelines.size();
  if (!possible || count < 2)
    return;
  // Pipelines that share neither their nodes nor the fabric they use with others.
  const bundle::Topology &topology = problem->cluster.topology;
  ownerOfNode.assign(nodeClass.size(), kNone);
  ownerOfSite.assign(sharedFabric.size(), kNone);
  std::vector<uint8_t> apart(count, 1);
  auto own = [&](uint32_t &owner, uint32_t p) {
    if (owner != kNone && owner != p) {
      if (owner != kSeveral)
        apart[owner] = 0;
      apart[p] = 0;
      owner = kSeveral;
    } else {
      owner = p;
    }
  };
  for (uint32_t p = 0; p < count; ++p) {
    uint32_t site = kNone;
    for (const Stage &stage : strategy.pipelines[p].stages)
      for (const step::StageDevice &member : stage.members) {
        const uint32_t node = topology.node_of_device(static_cast<int>(member.device)),
                       here = topology.nodes(static_cast<int>(node)).site();
        own(ownerOfNode[node], p);
        if (sharedFabric[here])
          own(ownerOfSite[here], p);
        if (site != kNone && site != here) // uplinks may be shared
          apart[p] = 0;
        site = here;
      }
  }
  for (uint32_t p = 1; p < count; ++p)
    for (uint32_t q = 0; q < p && apart[p] && first[p] == p; ++q)
      if (apart[q] && first[q] == q &&
          alike(strategy, strategy.pipelines[q], strategy.pipelines[p])) {
        first[p] = q;
        pairs.insert(pairs.end(), mapped.begin(), mapped.end());
      }
  if (pairs.empty())
    return;
  std::sort(pairs.begin(), pairs.end());
  begins.assign(problem->cluster.devices.size(), static_cast<uint32_t>(pairs.size()));
  for (uint32_t i = static_cast<uint32_t>(pairs.size()); i-- > 0;)
    begins[pairs[i].first] = i;
}

bool ReplicaFinder::sameNodes(uint32_t a, uint32_t b) {
  const bundle::Topology &topology = problem->cluster.topology;
  const uint32_t m = topology.node_of_device(static_cast<int>(a)),
                 n = topology.node_of_device(static_cast<int>(b));
  if (nodeReplica[m] == kNone) {
    nodeReplica[m] = n;
    touchedNodes.push_back(m);
  }
  return nodeReplica[m] == n && nodeClass[m] == nodeClass[n];
}

/// Also fills `mapped`.
bool ReplicaFinder::alike(const Strategy &strategy, const Pipeline &a, const Pipeline &b) {
  const auto &ahead = strategy.schedule.warmupForwards;
  auto launches = [&](uint32_t device) { return device < ahead.size() ? ahead[device] : 0; };
  const MemoryOptimizations &optimizations = memoryOptimizationsOf(*problem, strategy);
  mapped.clear();
  bool same = a.samples == b.samples && a.stages.size() == b.stages.size();
  for (size_t s = 0; s < a.stages.size() && same; ++s) {
    const Stage &x = a.stages[s], &y = b.stages[s];
    same = x.unitBegin == y.unitBegin && x.unitEnd == y.unitEnd &&
           x.members.size() == y.members.size();
    for (size_t i = 0; i < x.members.size() && same; ++i) {
      const step::StageDevice &m = x.members[i], &n = y.members[i];
      const ClusterDevice &one = problem->cluster.devices[m.device],
                          &other = problem->cluster.devices[n.device];
      same = m.samples == n.samples && m.microBatchSize == n.microBatchSize &&
             problem->costs.deviceClass(m.device) == problem->costs.deviceClass(n.device) &&
             one.memory == other.memory && one.reservedMemory == other.reservedMemory &&
             launches(m.device) == launches(n.device) &&
             optimizations.of(m.device) == optimizations.of(n.device) &&
             sameNodes(m.device, n.device);
      if (!same)
        break;
      if (deviceReplica[m.device] == kNone) {
        deviceReplica[m.device] = n.device;
        touchedDevices.push_back(m.device);
        mapped.push_back({m.device, n.device});
      }
      same = deviceReplica[m.device] == n.device;
    }
  }
  // Two nodes of one pipeline must not correspond to one node of the other.
  if (same) {
    std::vector<uint32_t> images;
    for (uint32_t node : touchedNodes)
      images.push_back(nodeReplica[node]);
    std::sort(images.begin(), images.end());
    same = std::adjacent_find(images.begin(), images.end()) == images.end();
  }
  for (uint32_t device : touchedDevices)
    deviceReplica[device] = kNone;
  for (uint32_t node : touchedNodes)
    nodeReplica[node] = kNone;
  touchedDevices.clear();
  touchedNodes.clear();
  return same;
}
