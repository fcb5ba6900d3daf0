// Compares the times of collectives with cases computed by hand.

#include "Topologies.h"

#include "zorse/Simulation/UniformParts.h"

#include <gtest/gtest.h>

#include <numeric>

using namespace zorse;
using namespace zorse::sim;
using namespace zorse::test;

namespace {

/// `nodes` nodes of one device, NICs of 100 bytes/s, latency 1 s between nodes.
bundle::Topology cards(int nodes) {
  bundle::Topology t;
  *addSite(t)->mutable_fabric() = link(0, 1);
  for (int n = 0; n < nodes; ++n)
    *addNode(t, 0, 1)->mutable_nic() = link(100);
  return t;
}

TEST(Collectives, RingAllGatherOfUnevenPieces) {
  Network network(direct(cards(3)));
  Traffic traffic(network);
  // A link carries all pieces except that of the member at its end: 0 -> 1: 300 - 200, 1 -> 2: 300
  // - 0, 2 -> 0: 300 - 100.
  TransferTimes p = traffic.allGather({{0, 100}, {1, 200}, {2, 0}}, {0, 1, 2}, 5);
  EXPECT_DOUBLE_EQ(p.sent, 5 + 3);
  EXPECT_DOUBLE_EQ(p.arrived, 5 + 3 + 2);
  auto free = [&](uint32_t from, uint32_t to, int end) {
    return traffic.busyUntil(network.route(from, to).resources[end]);
  };
  EXPECT_DOUBLE_EQ(free(0, 1, 0), 5 + 1);
  EXPECT_DOUBLE_EQ(free(1, 2, 0), 5 + 3);
  EXPECT_DOUBLE_EQ(free(2, 0, 0), 5 + 2);
  EXPECT_DOUBLE_EQ(free(2, 0, 1), 5 + 2); // into 0
}

TEST(Collectives, RingsCrossACardOncePerNode) {
  Network network(direct(nodesOfTwo(2)));
  Traffic traffic(network);
  // 0 -> 1 -> (NIC) 2 -> 3 -> (NIC) 0, pieces of 100: every link carries 300. NIC: 3 s; bus: one
  // link, 0.2 s.
  TransferTimes p = traffic.allGather({{0, 100}, {1, 100}, {2, 100}, {3, 100}}, {3, 2, 1, 0}, 0);
  EXPECT_DOUBLE_EQ(p.sent, 3);
  // Latencies of four links except the shortest: twice two NICs of 0.25 and the fabric's 1, and one
  // port of 0.125.
  EXPECT_DOUBLE_EQ(p.arrived, 3 + 2 * 1.5 + 0.125);
}

TEST(Collectives, RingsNeedMembersThatReadAndExchangeDirectly) {
  bundle::Topology t = direct(nodesOfTwo(2));
  const std::vector<Piece> pieces{{0, 100}, {1, 100}, {2, 100}, {3, 100}};
  const auto out = [&](const bundle::Topology &topology, const std::vector<uint32_t> &readers) {
    Network network(topology);
    Traffic traffic(network);
    traffic.allGather(pieces, readers, 0);
    return traffic.busyUntil(network.route(0, 2).resources[0]); // of the card of the first node
  };
  EXPECT_DOUBLE_EQ(out(t, {0, 1, 2, 3}), 3); // all bytes but those of the device at the end
  EXPECT_DOUBLE_EQ(out(t, {0, 1, 2}), 2);    // those of the node, to one reader
  t.set_direct_group_of_device(3, 1);
  EXPECT_DOUBLE_EQ(out(t, {0, 1, 2, 3}), 4); // those of the node, to two readers
}

TEST(Collectives, ManyMembersSumAtTheFirst) {
  Network network(cards(17));
  std::vector<uint32_t> all(17);
  std::iota(all.begin(), all.end(), 0u);
  Traffic traffic(network);
  EXPECT_DOUBLE_EQ(traffic.allReduce(all, 100, 0).arrived, 16 + 2);
  traffic.reset();
  all.pop_back();
  EXPECT_DOUBLE_EQ(traffic.allReduce(all, 100, 0).arrived, 15 + 1);
}

TEST(Collectives, ExchangeSendsEveryPieceToEveryReader) {
  Network network(nodesOfTwo(2));
  Traffic traffic(network);
  // Owner 0 (60 bytes) does not read. Readers 1, 2, 3: one over the bus, two over the NIC: 120
  // bytes. Owner 2 (40): reader 1 over its NIC, 3 over the bus.
  TransferTimes p = traffic.allGather({{0, 60}, {2, 40}}, {1, 2, 3}, 0);
  EXPECT_DOUBLE_EQ(p.sent, 1.2);
  EXPECT_DOUBLE_EQ(p.arrived, 1.2 + 1.5);
  EXPECT_DOUBLE_EQ(traffic.busyUntil(network.route(2, 0).resources[0]), 0.4);
  EXPECT_DOUBLE_EQ(traffic.busyUntil(network.route(2, 3).resources[1]), 40 / 1500.0);
  traffic.reset();
  p = traffic.reduceScatter({1, 2, 3}, {{0, 60}, {2, 40}}, 0);
  EXPECT_DOUBLE_EQ(p.sent, 1.2); // into node 0
  EXPECT_DOUBLE_EQ(traffic.busyUntil(network.route(0, 2).resources[0]), 0.4);
}

TEST(Collectives, RoundedTermsHaveTwoBytes) {
  Network network(cards(3));
  Traffic traffic(network);
  const std::vector<Shard> shards{{0, 0, 100}, {1, 100, 200}, {2, 200, 300}};
  auto sent = [&](bool gathers, const std::vector<uint32_t> &members,
                  const std::vector<Shard> &parts, double term) {
    traffic.reset();
    return collectiveTimes(traffic, gathers, members, shards, parts, {4, term}, 0).sent;
  };
  EXPECT_DOUBLE_EQ(sent(false, {0, 1, 2}, {}, 4), 8); // 200 elements into each card
  EXPECT_DOUBLE_EQ(sent(false, {0, 1, 2}, {}, 2), 4);
  EXPECT_DOUBLE_EQ(sent(true, {0, 1, 2}, {}, 2), 8); // a gather has no terms
  EXPECT_DOUBLE_EQ(sent(false, {0}, {}, 2), 8);      // device 0 passes on 200 elements
  // Shards of devices 0 and 1 have two terms, one of them their own; that of 2 has one.
  EXPECT_DOUBLE_EQ(sent(false, {0, 1}, {{0, 0, 300}, {1, 0, 200}}, 2), 2 + 4); // out of 0
}

TEST(Collectives, ShareResourcesWithTransfers) {
  Network network(direct(cards(3)));
  Traffic traffic(network);
  EXPECT_DOUBLE_EQ(traffic.send(0, 1, 400, 0).sent, 4);
  EXPECT_DOUBLE_EQ(traffic.allGather({{0, 100}, {1, 100}, {2, 100}}, {0, 1, 2}, 1).sent,
                   6);                                  // 200 bytes out of 0 after the 400
  EXPECT_DOUBLE_EQ(traffic.send(1, 2, 100, 1).sent, 4); // after 200 bytes out of 1
  EXPECT_DOUBLE_EQ(traffic.send(2, 0, 0, 1).sent, 1);
}

TEST(Collectives, OneMemberHasNothingToDo) {
  Network network(cards(2));
  Traffic traffic(network);
  EXPECT_EQ(traffic.allGather({{1, 100}}, {1}, 3).arrived, 3);
  EXPECT_EQ(traffic.allReduce({0}, 100, 3).arrived, 3);
  EXPECT_EQ(traffic.allGather({}, {}, 3).arrived, 3);
}

TEST(Collectives, LimitsOfFlowsHold) {
  bundle::Topology t = cards(2);
  t.mutable_nodes(0)->mutable_nic()->set_per_flow_bandwidth(10);
  for (const Network &limited : {Network(t), Network(direct(t))}) {
    Traffic traffic(limited);
    EXPECT_DOUBLE_EQ(traffic.allGather({{0, 100}, {1, 100}}, {0, 1}, 0).sent, 10);
    EXPECT_DOUBLE_EQ(traffic.send(1, 0, 100, 0).sent, 10);
  }
}

/// Two nodes of two devices, NICs of 100 bytes/s, at most 30 per flow: two rings, one per device of
/// a node.
TEST(Collectives, RingsShareACardOfLimitedFlows) {
  bundle::Topology t = nodesOfTwo(2);
  for (int n = 0; n < 2; ++n)
    t.mutable_nodes(n)->mutable_nic()->set_per_flow_bandwidth(30);
  Network network(direct(t));
  Traffic traffic(network);
  // Every link carries 300 bytes in two parallel flows of 150: 5 s. One ring would take 10 s.
  EXPECT_DOUBLE_EQ(
      traffic.allGather({{0, 100}, {1, 100}, {2, 100}, {3, 100}}, {0, 1, 2, 3}, 0).sent, 5);
  EXPECT_DOUBLE_EQ(traffic.busyUntil(network.route(0, 2).resources[0]),
                   3); // the NIC transfers the same bytes as before
  traffic.reset();
  // With one member in a node, there is one ring. Links into 0, 1 and 2 carry 200 bytes each.
  EXPECT_DOUBLE_EQ(traffic.allGather({{0, 100}, {1, 100}, {2, 100}}, {0, 1, 2}, 0).sent,
                   200 / 30.0);
}

} // namespace
