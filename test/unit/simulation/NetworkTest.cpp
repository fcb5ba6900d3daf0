// Compares routes and transfers with cases computed by hand.

#include "Topologies.h"

#include <gtest/gtest.h>

using namespace zorse;
using namespace zorse::sim;
using namespace zorse::test;

namespace {

/// Two sites; nodes n0 (devices 0, 1), n1 (2, 3) at s0 and n2 (4, 5) at s1.
bundle::Topology twoSites() {
  bundle::Topology t = nodesOfTwo(3);
  *t.mutable_sites(0)->mutable_uplink() = link(200, 0.5);
  *addSite(t)->mutable_uplink() = link(50, 0.25);
  t.mutable_nodes(2)->set_site(1);
  *t.mutable_between_sites() = link(40, 4, 20);
  return t;
}

TEST(Network, RoutesCrossWhatTheDocumentationSays) {
  Network network(twoSites());
  auto names = [&](uint32_t a, uint32_t b) {
    Route r = network.route(a, b);
    std::vector<std::string> list;
    for (uint32_t i = 0; i < r.count; ++i)
      list.push_back(network.name(r.resources[i]));
    return list;
  };
  using List = std::vector<std::string>;
  EXPECT_EQ(names(0, 0), List());
  EXPECT_EQ(names(0, 1), (List{"device link of device 0, out", "bus of node n0",
                               "device link of device 1, in"}));
  EXPECT_EQ(names(1, 2), (List{"NIC of node n0, out", "fabric of site s0", "NIC of node n1, in"}));
  EXPECT_EQ(names(3, 4),
            (List{"NIC of node n1, out", "uplink of site s0, out", "link from site s0 to site s1",
                  "uplink of site s1, in", "NIC of node n2, in"}));
  EXPECT_EQ(network.route(0, 0).latency, 0);
  EXPECT_DOUBLE_EQ(network.route(0, 1).latency, 0.125); // latency of the port
  EXPECT_DOUBLE_EQ(network.route(1, 2).latency,
                   1 + 2 * 0.25); // latencies of the fabric and both NICs
  EXPECT_DOUBLE_EQ(network.route(3, 4).latency, 4 + 0.75 + 2 * 0.25);
  EXPECT_EQ(network.route(1, 2).perFlowBandwidth, 0);
  EXPECT_EQ(network.route(3, 4).perFlowBandwidth, 20);
  EXPECT_EQ(network.node(3), 1u);
  EXPECT_EQ(network.site(5), 1u);
}

TEST(Network, LinksWithoutBandwidthAreNoResources) {
  bundle::Topology t = nodesOfTwo(1);
  t.mutable_nodes(0)->clear_port();
  t.mutable_nodes(0)->clear_bus();
  Network network(t);
  Traffic traffic(network);
  EXPECT_EQ(network.route(0, 1).count, 0u);
  EXPECT_EQ(traffic.send(0, 1, 1e30, 3).arrived, 3);
}

TEST(Network, ListedPairsOfSitesHaveTheirOwnLink) {
  bundle::Topology t = twoSites();
  addSite(t);
  t.mutable_nodes(1)->set_site(2);
  auto *pair = t.add_site_pairs();
  pair->set_a(2);
  pair->set_b(0);
  *pair->mutable_link() = link(8, 1);
  Network network(t);
  Traffic traffic(network);
  EXPECT_DOUBLE_EQ(traffic.send(0, 2, 80, 0).sent, 10);
  EXPECT_DOUBLE_EQ(traffic.send(2, 0, 80, 0).sent, 10); // the other direction is another resource
  EXPECT_DOUBLE_EQ(traffic.send(0, 4, 80, 0).sent, 4);  // an unlisted pair, 20 bytes/s per flow
}

/// With many sites, pairs are not resources: their bandwidth limits each flow, and nothing is
/// stored per pair.
TEST(Network, ManySites) {
  bundle::Topology t;
  for (int s = 0; s < 5000; ++s) {
    addSite(t);
    addNode(t, s, 1);
  }
  *t.mutable_between_sites() = link(10, 1);
  Network network(t);
  EXPECT_LT(network.resources(), 50000u);
  Traffic traffic(network);
  EXPECT_DOUBLE_EQ(traffic.send(0, 4999, 50, 0).sent, 5);
  EXPECT_DOUBLE_EQ(traffic.send(0, 4999, 50, 0).sent, 5);
}

TEST(Traffic, TwoFlowsShareACard) {
  Network network(nodesOfTwo(3)); // NICs of 100 bytes/s
  Traffic traffic(network);
  EXPECT_DOUBLE_EQ(traffic.send(0, 2, 500, 1).sent, 6);
  EXPECT_DOUBLE_EQ(traffic.send(1, 4, 500, 1).sent, 11); // out of the same NIC
  EXPECT_DOUBLE_EQ(traffic.send(4, 0, 500, 1).sent, 6); // in through the other direction of the NIC
  EXPECT_DOUBLE_EQ(traffic.send(5, 2, 100, 20).sent, 21); // idle again
}

TEST(Traffic, FlowsUnderTheirLimitAddUpToTheCard) {
  bundle::Topology t = nodesOfTwo(2);
  t.mutable_nodes(0)->mutable_nic()->set_per_flow_bandwidth(25);
  Network network(t);
  Traffic traffic(network);
  for (int i = 0; i < 4; ++i)
    EXPECT_DOUBLE_EQ(traffic.send(0, 2, 100, 0).sent, 4) << i; // 4 x 25 = 100 bytes/s
  EXPECT_DOUBLE_EQ(traffic.send(0, 2, 100, 0).sent, 5); // the fifth flow exceeds the bandwidth
}

/// A message of `half_bandwidth_bytes` bytes reaches half of the rate. Other transfers can use the
/// remaining bandwidth of the NIC.
TEST(Traffic, SmallMessagesRunAtLess) {
  bundle::Topology t = nodesOfTwo(2);
  t.mutable_nodes(0)->mutable_nic()->set_half_bandwidth_bytes(100);
  Network network(t);
  Traffic traffic(network);
  EXPECT_DOUBLE_EQ(traffic.send(0, 2, 100, 0).sent, 2); // 100 bytes/s
  EXPECT_DOUBLE_EQ(traffic.send(1, 3, 100, 0).sent,
                   3); // after the bytes of the other message, but not after its delay
  EXPECT_DOUBLE_EQ(traffic.send(0, 2, 9900, 10).sent, 110); // 99 % of the rate
  EXPECT_DOUBLE_EQ(traffic.send(0, 2, 0, 200).sent, 200);
  Traffic gathers(network);
  const TransferTimes with = gathers.allGather({{0, 1000}}, {2}, 0);
  t.mutable_nodes(0)->mutable_nic()->set_half_bandwidth_bytes(0);
  Network plain(t);
  Traffic others(plain);
  EXPECT_DOUBLE_EQ(with.arrived, others.allGather({{0, 1000}}, {2}, 0).arrived + 1);
}

TEST(Traffic, LatencyOccupiesNothing) {
  Network network(nodesOfTwo(2));
  Traffic traffic(network);
  TransferTimes first = traffic.send(0, 2, 100, 0);
  EXPECT_DOUBLE_EQ(first.sent, 1);
  EXPECT_DOUBLE_EQ(first.arrived, 2.5);
  TransferTimes second = traffic.send(0, 2, 100, first.sent);
  EXPECT_DOUBLE_EQ(second.sent, 2);
  EXPECT_DOUBLE_EQ(second.arrived, 3.5);
  EXPECT_DOUBLE_EQ(traffic.send(0, 2, 0, 7).arrived, 8.5); // no bytes: only latency
}

TEST(Traffic, FirstComeFirstServed) {
  Network network(nodesOfTwo(2));
  Traffic one(network), other(network);
  EXPECT_DOUBLE_EQ(one.send(0, 2, 100, 0).sent, 1);
  EXPECT_DOUBLE_EQ(one.send(1, 3, 300, 0).sent, 4);
  EXPECT_DOUBLE_EQ(other.send(1, 3, 300, 0).sent, 3);
  EXPECT_DOUBLE_EQ(other.send(0, 2, 100, 0).sent, 4);
  other.reset();
  EXPECT_DOUBLE_EQ(other.send(0, 2, 100, 0).sent, 1);
}

/// For every sequence of flows, a NIC never exceeds its bandwidth, and uses all of it while it has
/// work.
TEST(Traffic, ACardIsNeverOverBooked) {
  Network network(nodesOfTwo(4));
  Traffic traffic(network);
  uint32_t state = 1;
  auto below = [&](uint32_t n) {
    state = state * 1664525 + 1013904223;
    return (state >> 8) % n;
  };
  double start = 0, bytesOut = 0;
  for (int i = 0; i < 1000; ++i) {
    start += 0.01 * below(3);
    uint32_t to = 2 + below(6);
    double bytes = 1 + below(200);
    TransferTimes p = traffic.send(0, to, bytes, start);
    bytesOut += bytes;
    EXPECT_GE(p.sent * 100, bytesOut - 1e-6);
    EXPECT_GE(p.sent, start + bytes / 100 - 1e-9);
  }
}

} // namespace
