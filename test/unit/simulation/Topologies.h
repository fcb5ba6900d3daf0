// Small topologies with round numbers.
#pragma once

#include "zorse/Simulation/Network.h"

namespace zorse::test {

inline bundle::LinkSpec link(double bandwidth, double latency = 0, double flow = 0) {
  bundle::LinkSpec l;
  l.set_bandwidth(bandwidth);
  l.set_latency(latency);
  l.set_per_flow_bandwidth(flow);
  return l;
}

inline bundle::Topology::Site *addSite(bundle::Topology &t) {
  auto *site = t.add_sites();
  site->set_name("s" + std::to_string(t.sites_size() - 1));
  return site;
}

inline bundle::Topology::Node *addNode(bundle::Topology &t, uint32_t site, int devices) {
  auto *node = t.add_nodes();
  node->set_name("n" + std::to_string(t.nodes_size() - 1));
  node->set_site(site);
  for (int i = 0; i < devices; ++i)
    t.add_node_of_device(static_cast<uint32_t>(t.nodes_size() - 1));
  return node;
}

/// One site with `nodes` nodes of two devices: ports of 1000 bytes/s and 0.125 s, a bus of 1500
/// bytes/s, NICs of 100 bytes/s and 0.25 s, and a fabric of 1000 bytes/s and 1 s.
inline bundle::Topology nodesOfTwo(int nodes) {
  bundle::Topology t;
  *addSite(t)->mutable_fabric() = link(1000, 1);
  for (int n = 0; n < nodes; ++n) {
    auto *node = addNode(t, 0, 2);
    *node->mutable_port() = link(1000, 0.125);
    *node->mutable_bus() = link(1500);
    *node->mutable_nic() = link(100, 0.25);
  }
  return t;
}

/// All devices exchange from memory to memory, so that they gather by rings.
inline bundle::Topology direct(bundle::Topology t) {
  for (int d = 0; d < t.node_of_device_size(); ++d)
    t.add_direct_group_of_device(0);
  return t;
}

} // namespace zorse::test
