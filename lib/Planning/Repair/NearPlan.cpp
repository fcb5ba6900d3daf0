#include "NearPlan.h"

#include "zorse/Step/StepGraph.h"
#include "zorse/Summary/StateLayout.h"
#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <map>
#include <tuple>

using namespace zorse;
using namespace zorse::planning;

NearPlan::NearPlan(const Problem &problem, const step::Plan &plan)
    : summary(problem.summary), plan(plan), held(static_cast<size_t>(summary.groups_size())) {
  for (const bundle::FlatGroupInfo &group : summary.groups()) {
    const bundle::UpdateRule *rule = ruleOf(summary, group);
    bytesOf.push_back(static_cast<double>(elementBytes(group.type())) +
                      (rule ? stateBytesPerElement(*rule, group.type()) : 0));
  }
  if (Status status = step::validatePlan(plan, summary); status.failed()) {
    difference = status.message();
    return;
  }
  held = step::findHeldState(summary, plan);
  if (plan.batch != problem.batch) {
    difference = "its batch is another one";
    return;
  }
  Result<ReadStrategy> found = readStrategy(summary, plan);
  if (found.failed()) {
    difference = found.message();
  } else {
    read = std::move(found->strategy);
    difference = found->difference;
  }
}

std::vector<uint32_t> NearPlan::oldIndices(const Cluster &cluster) const {
  std::map<std::string, uint32_t> index;
  for (uint32_t d = 0; d < plan.devices.size(); ++d)
    index.emplace(plan.devices[d].name, d);
  std::vector<uint32_t> indices;
  for (const ClusterDevice &device : cluster.devices) {
    const auto at = index.find(device.name);
    indices.push_back(at == index.end() ? kNew : at->second);
  }
  return indices;
}

uint64_t NearPlan::movedBytes(const Problem &problem, const step::Plan &to) const {
  const std::vector<uint32_t> old = oldIndices(problem.cluster);
  const std::vector<std::vector<Shard>> now = step::findHeldState(summary, to);
  double bytes = 0;
  for (size_t g = 0; g < now.size(); ++g)
    for (const Shard &shard : now[g]) {
      int64_t missing = shard.size();
      for (auto own =
               std::lower_bound(held[g].begin(), held[g].end(), old[shard.device],
                                [](const Shard &a, uint32_t device) { return a.device < device; });
           own != held[g].end() && own->device == old[shard.device]; ++own)
        missing -=
            std::max<int64_t>(0, std::min(shard.end, own->end) - std::max(shard.begin, own->begin));
      bytes += static_cast<double>(missing) * bytesOf[g];
    }
  return static_cast<uint64_t>(bytes);
}

namespace {

/// Bytes that devices would keep in the place of others.
class Overlaps {
public:
  using Pair = std::pair<uint32_t, uint32_t>; ///< device that held, device whose place it takes

  void add(uint32_t holder, uint32_t place, double bytes) { of[{holder, place}] += bytes; }

  /// Pairs holders and places, those with the most common bytes first. `allowed` pairs may take
  /// each other's places.
  template <typename Allowed>
  void match(std::vector<uint32_t> &holderOf, const Allowed &allowed) const {
    std::vector<std::tuple<double, uint32_t, uint32_t>> order;
    for (const auto &[pair, bytes] : of)
      if (allowed(pair.first, pair.second))
        order.push_back({-bytes, pair.first, pair.second});
    std::sort(order.begin(), order.end());
    std::vector<uint8_t> used(holderOf.size(), 0);
    for (const auto &[bytes, holder, place] : order)
      if (!used[holder] && holderOf[place] == UINT32_MAX) {
        used[holder] = 1;
        holderOf[place] = holder;
      }
    // The others stay where they are, or take what is free.
    for (uint32_t place = 0; place < holderOf.size(); ++place)
      if (holderOf[place] == UINT32_MAX && !used[place] && allowed(place, place)) {
        holderOf[place] = place;
        used[place] = 1;
      }
    for (uint32_t place = 0; place < holderOf.size(); ++place)
      for (uint32_t holder = 0; holder < used.size() && holderOf[place] == UINT32_MAX; ++holder)
        if (!used[holder] && allowed(holder, place)) {
          holderOf[place] = holder;
          used[holder] = 1;
        }
  }

private:
  std::map<Pair, double> of;
};

/// A property of devices for which they can take each other's places.
std::string placeOf(const Problem &problem, uint32_t device) {
  const ClusterDevice &of = problem.cluster.devices[device];
  const auto &groups = problem.cluster.topology.direct_group_of_device();
  return std::to_string(problem.costs.deviceClass(device)) + "/" + std::to_string(of.memory) + "/" +
         std::to_string(of.reservedMemory) + "/" + std::to_string(of.price) + "/" +
         (groups.empty() || groups[static_cast<int>(device)] >= 0 ? "direct" : "staged");
}

/// The same for nodes: their site, links and devices.
std::vector<std::string> placesOfNodes(const Problem &problem,
                                       const std::vector<uint32_t> &places) {
  const Cluster &cluster = problem.cluster;
  std::vector<std::vector<uint32_t>> devices(cluster.nodes.size());
  for (uint32_t d = 0; d < places.size(); ++d)
    devices[cluster.devices[d].node].push_back(places[d]);
  std::vector<std::string> text;
  for (size_t n = 0; n < devices.size(); ++n) {
    bundle::Topology::Node node = cluster.topology.nodes(static_cast<int>(n));
    node.clear_name();
    text.push_back(node.SerializeAsString() + "/" + std::to_string(cluster.nodes[n].hostMemory) +
                   "/" + std::to_string(cluster.nodes[n].pcie));
    std::sort(devices[n].begin(), devices[n].end());
    for (uint32_t place : devices[n])
      text.back() += "/" + std::to_string(place);
  }
  return text;
}

/// Numbers texts: equal ones have equal numbers.
std::vector<uint32_t> numbered(const std::vector<std::string> &texts) {
  std::map<std::string, uint32_t> known;
  std::vector<uint32_t> numbers;
  numbers.reserve(texts.size());
  for (const std::string &text : texts)
    numbers.push_back(known.emplace(text, static_cast<uint32_t>(known.size())).first->second);
  return numbers;
}

} // namespace

Strategy NearPlan::withNearestDevices(const Problem &problem, const Strategy &strategy,
                                      const step::Plan &of,
                                      const std::vector<uint32_t> &usable) const {
  const Cluster &cluster = problem.cluster;
  const auto devices = static_cast<uint32_t>(cluster.devices.size());
  if (cluster.topology.cpu_communication_costs_size() > 0)
    return strategy;
  std::vector<std::string> texts; // devices that must not be used take no place
  texts.reserve(devices);
  for (uint32_t d = 0; d < devices; ++d)
    texts.push_back("unusable " + std::to_string(d));
  for (uint32_t d : usable)
    texts[d] = placeOf(problem, d);
  const std::vector<uint32_t> places = numbered(texts),
                              nodePlaces = numbered(placesOfNodes(problem, places));
  const std::vector<uint32_t> old = oldIndices(cluster);
  std::vector<uint32_t> now(plan.devices.size(), kNew); // by device of the plan
  for (uint32_t d = 0; d < devices; ++d)
    if (old[d] != kNew)
      now[old[d]] = d;

  // Devices that are equal, in nodes that are equal.
  const std::vector<std::vector<Shard>> shards = step::findHeldState(summary, of);
  Overlaps overlaps, nodeOverlaps;
  for (size_t g = 0; g < shards.size(); ++g) {
    std::vector<Shard> sorted = shards[g];
    std::sort(sorted.begin(), sorted.end());
    for (const Shard &own : held[g]) {
      const uint32_t holder = now[own.device];
      if (holder == kNew)
        continue;
      auto at = std::partition_point(sorted.begin(), sorted.end(),
                                     [&](const Shard &s) { return s.end <= own.begin; });
      for (; at != sorted.end() && at->begin < own.end; ++at) {
        const uint32_t node = cluster.devices[holder].node,
                       other = cluster.devices[at->device].node;
        if (places[holder] != places[at->device] || nodePlaces[node] != nodePlaces[other])
          continue;
        const double bytes =
            static_cast<double>(std::min(own.end, at->end) - std::max(own.begin, at->begin)) *
            bytesOf[g];
        overlaps.add(holder, at->device, bytes);
        nodeOverlaps.add(node, other, bytes);
      }
    }
  }
  std::vector<uint32_t> nodeFor(cluster.nodes.size(), UINT32_MAX), newDevice(devices, UINT32_MAX);
  nodeOverlaps.match(nodeFor, [&](uint32_t holder, uint32_t place) {
    return nodePlaces[holder] == nodePlaces[place];
  });
  overlaps.match(newDevice, [&](uint32_t holder, uint32_t place) {
    return places[holder] == places[place] &&
           nodeFor[cluster.devices[place].node] == cluster.devices[holder].node;
  });
  return withDevices(strategy, newDevice);
}

uint64_t zorse::planning::redistributionBytes(const Problem &problem, const step::Plan &old,
                                              const step::Plan &plan) {
  return NearPlan(problem, old).movedBytes(problem, plan);
}
