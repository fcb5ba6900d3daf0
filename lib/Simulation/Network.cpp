#include "zorse/Simulation/Network.h"

#include <algorithm>

using namespace zorse::sim;

namespace {

double tighter(double a, double b) { return a <= 0 ? b : b <= 0 ? a : std::min(a, b); }

/// Returns the seconds of a message in addition to the time of its bytes.
double rampOf(const zorse::bundle::LinkSpec &link) {
  const double rate = tighter(link.per_flow_bandwidth(), link.bandwidth());
  return rate > 0 ? link.half_bandwidth_bytes() / rate : 0;
}

uint64_t pairKey(uint32_t from, uint32_t to) { return static_cast<uint64_t>(from) << 32 | to; }

} // namespace

uint32_t Network::addResource(const bundle::LinkSpec &link, Kind kind, uint32_t owner) {
  if (!(link.bandwidth() > 0))
    return kNoResource;
  bandwidths.push_back(link.bandwidth());
  inverse.push_back(1 / link.bandwidth());
  owners.push_back({kind, owner});
  return static_cast<uint32_t>(bandwidths.size() - 1);
}

Network::Network(const bundle::Topology &topology) {
  for (const auto &site : topology.sites()) {
    uint32_t s = static_cast<uint32_t>(siteLinks.size());
    siteNames.push_back(site.name());
    SiteLinks of;
    of.fabric = {addResource(site.fabric(), Kind::Fabric, s), site.fabric().latency(),
                 site.fabric().per_flow_bandwidth(), rampOf(site.fabric())};
    of.uplink = {addResource(site.uplink(), Kind::UplinkOut, s),
                 addResource(site.uplink(), Kind::UplinkIn, s), site.uplink().latency(),
                 site.uplink().per_flow_bandwidth(), rampOf(site.uplink())};
    siteLinks.push_back(of);
  }
  for (const auto &node : topology.nodes()) {
    uint32_t n = static_cast<uint32_t>(nodeLinks.size());
    nodeNames.push_back(node.name());
    NodeLinks of;
    of.site = node.site();
    of.deviceLinkLatency = node.port().latency();
    of.deviceLinkPerFlowBandwidth = node.port().per_flow_bandwidth();
    of.deviceLinkStartupSeconds = rampOf(node.port());
    of.bus = {addResource(node.bus(), Kind::Bus, n), node.bus().latency(),
              node.bus().per_flow_bandwidth(), rampOf(node.bus())};
    of.nic = {addResource(node.nic(), Kind::NicOut, n), addResource(node.nic(), Kind::NicIn, n),
              node.nic().latency(), node.nic().per_flow_bandwidth(), rampOf(node.nic())};
    nodeLinks.push_back(of);
  }
  for (uint32_t node : topology.node_of_device()) {
    uint32_t d = static_cast<uint32_t>(deviceLinks.size());
    const auto &port = topology.nodes(static_cast<int>(node)).port();
    uint32_t out = addResource(port, Kind::DeviceLinkOut, d);
    deviceLinks.push_back({node, out, addResource(port, Kind::DeviceLinkIn, d)});
  }

  if (topology.direct_group_of_device_size() == topology.node_of_device_size())
    directGroups.assign(topology.direct_group_of_device().begin(),
                        topology.direct_group_of_device().end());
  pairwiseSums = topology.pairwise_sums();
  if (topology.cpu_communication_costs_size() == topology.node_of_device_size())
    for (const auto &moving : topology.cpu_communication_costs())
      communicationCosts.push_back({moving.per_byte(), moving.per_message(), moving.delay()});

  const auto &between = topology.between_sites();
  otherPairs = {kNoResource, between.latency(),
                tighter(between.per_flow_bandwidth(), between.bandwidth()), rampOf(between)};
  size_t n = siteLinks.size();
  if (n > kMaxSitesInPairs) {
    for (const auto &listed : topology.site_pairs())
      for (auto [from, to] : {std::pair(listed.a(), listed.b()), std::pair(listed.b(), listed.a())})
        listedPairs[pairKey(from, to)] = {
            kNoResource, listed.link().latency(),
            tighter(listed.link().per_flow_bandwidth(), listed.link().bandwidth()),
            rampOf(listed.link())};
    return;
  }
  std::vector<const bundle::LinkSpec *> links(n * n, &between);
  for (const auto &listed : topology.site_pairs())
    links[listed.a() * n + listed.b()] = links[listed.b() * n + listed.a()] = &listed.link();
  for (size_t p = 0; p < links.size(); ++p)
    pairs.push_back({p / n == p % n ? kNoResource
                                    : addResource(*links[p], Kind::Pair, static_cast<uint32_t>(p)),
                     links[p]->latency(), links[p]->per_flow_bandwidth(), rampOf(*links[p])});
}

const Network::SharedLink &Network::pair(uint32_t from, uint32_t to) const {
  if (!pairs.empty())
    return pairs[from * siteLinks.size() + to];
  auto it = listedPairs.find(pairKey(from, to));
  return it == listedPairs.end() ? otherPairs : it->second;
}

Route Network::route(uint32_t from, uint32_t to) const {
  Route r;
  if (from == to)
    return r;
  auto cross = [&](uint32_t resource) {
    r.resources[r.count] = resource;
    r.count += resource != kNoResource;
  };
  const DeviceLinks &a = deviceLinks[from], &b = deviceLinks[to];
  if (a.node == b.node) {
    const NodeLinks &node = nodeLinks[a.node];
    cross(a.deviceLinkOut);
    cross(node.bus.resource);
    cross(b.deviceLinkIn);
    r.latency = node.deviceLinkLatency + node.bus.latency;
    r.perFlowBandwidth = tighter(node.deviceLinkPerFlowBandwidth, node.bus.perFlowBandwidth);
    r.startupSeconds = std::max(node.deviceLinkStartupSeconds, node.bus.startupSeconds);
    return r;
  }
  const NodeLinks &m = nodeLinks[a.node], &n = nodeLinks[b.node];
  r.latency = m.nic.latency + n.nic.latency;
  r.perFlowBandwidth = tighter(m.nic.perFlowBandwidth, n.nic.perFlowBandwidth);
  r.startupSeconds = std::max(m.nic.startupSeconds, n.nic.startupSeconds);
  cross(m.nic.out);
  if (m.site == n.site) {
    const SharedLink &fabric = siteLinks[m.site].fabric;
    cross(fabric.resource);
    r.latency += fabric.latency;
    r.perFlowBandwidth = tighter(r.perFlowBandwidth, fabric.perFlowBandwidth);
    r.startupSeconds = std::max(r.startupSeconds, fabric.startupSeconds);
  } else {
    const DuplexLink &up = siteLinks[m.site].uplink, &down = siteLinks[n.site].uplink;
    const SharedLink &between = pair(m.site, n.site);
    cross(up.out);
    cross(between.resource);
    cross(down.in);
    r.latency += up.latency + between.latency + down.latency;
    r.perFlowBandwidth = tighter(tighter(r.perFlowBandwidth, between.perFlowBandwidth),
                                 tighter(up.perFlowBandwidth, down.perFlowBandwidth));
    r.startupSeconds = std::max(
        {r.startupSeconds, up.startupSeconds, between.startupSeconds, down.startupSeconds});
  }
  cross(n.nic.in);
  return r;
}

std::string Network::name(uint32_t resource, const std::vector<std::string> &deviceNames) const {
  auto [kind, owner] = owners[resource];
  switch (kind) {
  case Kind::DeviceLinkOut:
  case Kind::DeviceLinkIn:
    return "device link of " +
           (owner < deviceNames.size() ? deviceNames[owner] : "device " + std::to_string(owner)) +
           (kind == Kind::DeviceLinkOut ? ", out" : ", in");
  case Kind::Bus:
    return "bus of node " + nodeNames[owner];
  case Kind::NicOut:
  case Kind::NicIn:
    return "NIC of node " + nodeNames[owner] + (kind == Kind::NicOut ? ", out" : ", in");
  case Kind::Fabric:
    return "fabric of site " + siteNames[owner];
  case Kind::UplinkOut:
  case Kind::UplinkIn:
    return "uplink of site " + siteNames[owner] + (kind == Kind::UplinkOut ? ", out" : ", in");
  case Kind::Pair:
    return "link from site " + siteNames[owner / siteNames.size()] + " to site " +
           siteNames[owner % siteNames.size()];
  }
  return {};
}
