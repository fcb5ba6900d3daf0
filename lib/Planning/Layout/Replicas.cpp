#include "Replicas.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>

using namespace zorse;
using namespace zorse::planning;

namespace {

constexpr uint32_t kNone = UINT32_MAX, kSeveral = UINT32_MAX - 1;

bool areDistinct(std::vector<uint32_t> &list) {
  std::sort(list.begin(), list.end());
  return std::adjacent_find(list.begin(), list.end()) == list.end();
}

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

/// Returns the pipelines by what they share with others, in the order of their first pipelines:
/// those of a group share nodes, or a fabric. Groups that use several sites are omitted, because
/// uplinks may be shared.
std::vector<std::vector<uint32_t>> ReplicaFinder::separateGroups(const Strategy &strategy) {
  const bundle::Topology &topology = problem->cluster.topology;
  const auto count = static_cast<uint32_t>(strategy.pipelines.size());
  std::vector<uint32_t> parent(count), siteOf(count, kNone), ofNode(nodeClass.size(), kNone),
      ofSite(sharedFabric.size(), kNone);
  std::iota(parent.begin(), parent.end(), 0u);
  auto rootOf = [&](uint32_t p) {
    while (parent[p] != p)
      p = parent[p] = parent[parent[p]];
    return p;
  };
  auto join = [&](uint32_t &user, uint32_t p) {
    if (user == kNone)
      user = p;
    else
      parent[std::max(rootOf(user), rootOf(p))] = std::min(rootOf(user), rootOf(p));
  };
  for (uint32_t p = 0; p < count; ++p)
    for (const Stage &stage : strategy.pipelines[p].stages)
      for (const step::StageDevice &member : stage.members) {
        const uint32_t node = topology.node_of_device(static_cast<int>(member.device)),
                       here = topology.nodes(static_cast<int>(node)).site();
        join(ofNode[node], p);
        if (sharedFabric[here])
          join(ofSite[here], p);
        siteOf[p] = siteOf[p] == kNone || siteOf[p] == here ? here : kSeveral;
      }
  std::vector<std::vector<uint32_t>> groups(count);
  std::vector<uint8_t> oneSite(count, 1);
  for (uint32_t p = 0; p < count; ++p) {
    groups[rootOf(p)].push_back(p);
    oneSite[rootOf(p)] &= siteOf[p] != kSeveral && siteOf[p] == siteOf[rootOf(p)];
  }
  size_t kept = 0;
  for (uint32_t p = 0; p < count; ++p)
    if (!groups[p].empty() && oneSite[p])
      std::swap(groups[kept++], groups[p]);
  groups.resize(kept);
  return groups;
}

void ReplicaFinder::find(const Strategy &strategy) {
  forget(strategy);
  if (!possible || strategy.pipelines.size() < 2)
    return;
  std::vector<std::vector<uint32_t>> originals;
  for (std::vector<uint32_t> &group : separateGroups(strategy)) {
    const bool known =
        std::any_of(originals.begin(), originals.end(), [&](const std::vector<uint32_t> &original) {
          if (!alike(strategy, original, group))
            return false;
          for (size_t i = 0; i < group.size(); ++i)
            first[group[i]] = original[i];
          pairs.insert(pairs.end(), mapped.begin(), mapped.end());
          return true;
        });
    if (!known)
      originals.push_back(std::move(group));
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
bool ReplicaFinder::alike(const Strategy &strategy, const std::vector<uint32_t> &a,
                          const std::vector<uint32_t> &b) {
  mapped.clear();
  bool same = a.size() == b.size();
  for (size_t i = 0; i < a.size() && same; ++i)
    same = mapDevices(strategy, strategy.pipelines[a[i]], strategy.pipelines[b[i]]);
  // Two devices or nodes of one group must not correspond to one of the other.
  if (same) {
    std::vector<uint32_t> devices, nodes;
    for (auto [device, replica] : mapped)
      devices.push_back(replica);
    for (uint32_t node : touchedNodes)
      nodes.push_back(nodeReplica[node]);
    same = areDistinct(devices) && areDistinct(nodes);
  }
  for (auto [device, replica] : mapped)
    deviceReplica[device] = kNone;
  for (uint32_t node : touchedNodes)
    nodeReplica[node] = kNone;
  touchedNodes.clear();
  return same;
}

/// Extends `mapped` by the devices of a pipeline and their counterparts.
bool ReplicaFinder::mapDevices(const Strategy &strategy, const Pipeline &a, const Pipeline &b) {
  const auto &ahead = strategy.schedule.warmupForwards;
  auto launches = [&](uint32_t device) { return device < ahead.size() ? ahead[device] : 0; };
  const MemoryOptimizations &optimizations = memoryOptimizationsOf(*problem, strategy);
  if (a.samples != b.samples || a.stages.size() != b.stages.size())
    return false;
  for (size_t s = 0; s < a.stages.size(); ++s) {
    const Stage &x = a.stages[s], &y = b.stages[s];
    if (x.unitBegin != y.unitBegin || x.unitEnd != y.unitEnd ||
        x.members.size() != y.members.size())
      return false;
    for (size_t i = 0; i < x.members.size(); ++i) {
      const step::StageDevice &m = x.members[i], &n = y.members[i];
      const ClusterDevice &one = problem->cluster.devices[m.device],
                          &other = problem->cluster.devices[n.device];
      if (m.samples != n.samples || m.microBatchSize != n.microBatchSize ||
          problem->costs.deviceClass(m.device) != problem->costs.deviceClass(n.device) ||
          one.memory != other.memory || one.reservedMemory != other.reservedMemory ||
          launches(m.device) != launches(n.device) ||
          !(optimizations.of(m.device) == optimizations.of(n.device)) ||
          !sameNodes(m.device, n.device))
        return false;
      if (deviceReplica[m.device] == kNone) {
        deviceReplica[m.device] = n.device;
        mapped.push_back({m.device, n.device});
      }
      if (deviceReplica[m.device] != n.device)
        return false;
    }
  }
  return true;
}
