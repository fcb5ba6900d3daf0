// Replaces described links of a topology by measured ones.
#include "zorse/Planning/Profile.h"

#include <algorithm>
#include <map>
#include <unordered_map>

using namespace zorse;
using namespace zorse::planning;

namespace {

constexpr uint32_t kNowhere = UINT32_MAX;

/// The best of several measurements of one link.
struct BestMeasurement {
  double bandwidth = 0, flow = 0, latency = -1, halfSize = -1;
  void add(const LinkProfile &link) {
    bandwidth = std::max(bandwidth, link.bandwidth);
    flow = std::max(flow, link.perFlowBandwidth);
    latency = latency < 0 ? link.latency : std::min(latency, link.latency);
    halfSize = halfSize < 0 ? link.halfBandwidthBytes : std::min(halfSize, link.halfBandwidthBytes);
  }
  void put(bundle::LinkSpec &link) const {
    if (bandwidth > 0)
      link.set_bandwidth(bandwidth);
    link.set_per_flow_bandwidth(flow > 0 && flow < bandwidth ? flow : 0);
    link.set_latency(latency);
    link.set_half_bandwidth_bytes(halfSize);
  }
};

} // namespace

void zorse::planning::applyLinks(const std::vector<LinkProfile> &links, const Cluster &cluster,
                                 bundle::Topology &topology) {
  std::unordered_map<std::string, uint32_t> nodes;
  for (const ClusterDevice &device : cluster.devices)
    nodes[device.name] = device.node;
  for (uint32_t n = 0; n < cluster.nodes.size(); ++n)
    nodes[cluster.nodes[n].name] = n;
  auto nodeOf = [&](const std::string &name) {
    auto it = nodes.find(name);
    return it == nodes.end() ? kNowhere : it->second;
  };

  std::map<uint32_t, BestMeasurement> ports, nics, fabrics;
  std::map<std::pair<uint32_t, uint32_t>, BestMeasurement> sitePairs;
  for (const LinkProfile &link : links) {
    uint32_t a = nodeOf(link.from), b = nodeOf(link.to);
    if (a == kNowhere || b == kNowhere)
      continue; // a link of another cluster
    if (a == b) {
      ports[a].add(link);
      continue;
    }
    uint32_t s = topology.nodes(static_cast<int>(a)).site(),
             t = topology.nodes(static_cast<int>(b)).site();
    if (s != t) {
      sitePairs[{std::min(s, t), std::max(s, t)}].add(link);
      continue;
    }
    nics[a].add(link);
    nics[b].add(link);
    fabrics[s].add(link);
  }
  for (auto &[n, best] : ports)
    best.put(*topology.mutable_nodes(static_cast<int>(n))->mutable_port());
  for (auto &[n, best] : nics) {
    bundle::LinkSpec &nic = *topology.mutable_nodes(static_cast<int>(n))->mutable_nic();
    best.put(nic);
    nic.set_latency(0); // the fabric has the latency of the whole path
  }
  for (auto &[s, best] : fabrics)
    topology.mutable_sites(static_cast<int>(s))->mutable_fabric()->set_latency(best.latency);
  for (auto &[pair, best] : sitePairs) {
    bundle::Topology::SitePair *entry = nullptr;
    for (bundle::Topology::SitePair &known : *topology.mutable_site_pairs())
      if (std::make_pair(std::min(known.a(), known.b()), std::max(known.a(), known.b())) == pair)
        entry = &known;
    if (!entry) {
      entry = topology.add_site_pairs();
      entry->set_a(pair.first);
      entry->set_b(pair.second);
    }
    best.put(*entry->mutable_link());
  }
}
