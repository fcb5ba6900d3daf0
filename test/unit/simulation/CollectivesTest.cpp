// Compares the algorithms of collectives with cases computed by hand.

#include "Topologies.h"

#include <gtest/gtest.h>

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

/// Two sites of two nodes with one device each; 10 bytes/s and 8 s between the sites.
bundle::Topology farApart() {
  bundle::Topology t = cards(4);
  *addSite(t)->mutable_fabric() = link(0, 1);
  t.mutable_nodes(2)->set_site(1);
  t.mutable_nodes(3)->set_site(1);
  *t.mutable_between_sites() = link(10, 8);
  return t;
}

TEST(Collectives, RingAllGatherOfUnevenPieces) {
  Network network(cards(3));
  Traffic traffic(network);
  // A link carries all pieces except that of the member at its end: 0 -> 1: 300 - 200, 1 -> 2: 300
  // - 0, 2 -> 0: 300 - 100.
  TransferTimes p = traffic.allGather({{0, 100}, {1, 200}, {2, 0}}, {0, 1, 2}, 5, Algorithm::Ring);
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

TEST(Collectives, RingReduceScatterIsTheGatherBackwards) {
  Network network(cards(3));
  Traffic traffic(network);
  TransferTimes p =
      traffic.reduceScatter({0, 1, 2}, {{0, 100}, {1, 200}, {2, 0}}, 0, Algorithm::Ring);
  EXPECT_DOUBLE_EQ(p.sent, 3);
  auto out = [&](uint32_t from, uint32_t to) {
    return traffic.busyUntil(network.route(from, to).resources[0]);
  };
  EXPECT_DOUBLE_EQ(out(1, 0), 1);
  EXPECT_DOUBLE_EQ(out(2, 1), 3);
  EXPECT_DOUBLE_EQ(out(0, 2), 2);
}

TEST(Collectives, RingsCrossACardOncePerNode) {
  Network network(nodesOfTwo(2));
  Traffic traffic(network);
  // 0 -> 1 -> (NIC) 2 -> 3 -> (NIC) 0, pieces of 100: every link carries 300. NIC: 3 s; bus: one
  // link, 0.2 s.
  TransferTimes p =
      traffic.allGather({{0, 100}, {1, 100}, {2, 100}, {3, 100}}, {3, 2, 1, 0}, 0, Algorithm::Ring);
  EXPECT_DOUBLE_EQ(p.sent, 3);
  // Latencies of four links except the shortest: twice two NICs of 0.25 and the fabric's 1, and one
  // port of 0.125.
  EXPECT_DOUBLE_EQ(p.arrived, 3 + 2 * 1.5 + 0.125);
}

TEST(Collectives, ExchangeSendsEveryPieceToEveryReader) {
  Network network(nodesOfTwo(2));
  Traffic traffic(network);
  // Owner 0 (60 bytes) does not read. Readers 1, 2, 3: one over the bus, two over the NIC: 120
  // bytes. Owner 2 (40): reader 1 over its NIC, 3 over the bus.
  TransferTimes p = traffic.allGather({{0, 60}, {2, 40}}, {1, 2, 3}, 0, Algorithm::AllPairs);
  EXPECT_DOUBLE_EQ(p.sent, 1.2);
  EXPECT_DOUBLE_EQ(p.arrived, 1.2 + 1.5);
  EXPECT_DOUBLE_EQ(traffic.busyUntil(network.route(2, 0).resources[0]), 0.4);
  EXPECT_DOUBLE_EQ(traffic.busyUntil(network.route(2, 3).resources[1]), 40 / 1500.0);
  traffic.reset();
  p = traffic.reduceScatter({1, 2, 3}, {{0, 60}, {2, 40}}, 0, Algorithm::AllPairs);
  EXPECT_DOUBLE_EQ(p.sent, 1.2); // into node 0
  EXPECT_DOUBLE_EQ(traffic.busyUntil(network.route(0, 2).resources[0]), 0.4);
}

TEST(Collectives, TreesCarryWhatIsBelow) {
  Network network(cards(3)); // 0 above 1 and 2
  Traffic traffic(network);
  TransferTimes p =
      traffic.allGather({{0, 100}, {1, 200}, {2, 300}}, {0, 1, 2}, 0, Algorithm::Tree);
  // Up: 200 and 300 into the NIC of 0. Down: 600 - 200 and 600 - 300 out of it.
  EXPECT_DOUBLE_EQ(p.sent, 7);
  EXPECT_DOUBLE_EQ(p.arrived, 7 + 2);
  EXPECT_DOUBLE_EQ(traffic.busyUntil(network.route(1, 0).resources[1]), 5);
  traffic.reset();
  EXPECT_DOUBLE_EQ(traffic.allReduce({0, 1, 2}, 100, 0, Algorithm::Tree).sent, 2);
  traffic.reset();
  EXPECT_DOUBLE_EQ(traffic.allReduce({0, 1, 2}, 300, 0, Algorithm::Ring).sent, 4); // 2 (n - 1) / n
}

TEST(Collectives, HierarchicalIsCheaperOverTwoSites) {
  Network network(farApart());
  std::vector<Piece> pieces{{0, 100}, {1, 100}, {2, 100}, {3, 100}};
  std::vector<uint32_t> all{0, 1, 2, 3};
  Traffic traffic(network);
  TransferTimes ring = traffic.allGather(pieces, all, 0, Algorithm::Ring);
  EXPECT_DOUBLE_EQ(ring.sent, 30); // 300 bytes over 10 bytes/s in each direction
  EXPECT_DOUBLE_EQ(ring.arrived, 30 + 8 + 8 + 1);
  traffic.reset();
  TransferTimes both = traffic.allGather(pieces, all, 0, Algorithm::Hierarchical);
  // Inside the sites, 100 bytes per NIC, 1 s; between them 200 bytes, 20 s; inside the sites 200
  // bytes, 2 s.
  EXPECT_DOUBLE_EQ(both.sent, 23);
  EXPECT_DOUBLE_EQ(both.arrived, 23 + 1 + 8 + 1);
  traffic.reset();
  EXPECT_DOUBLE_EQ(traffic.reduceScatter(all, pieces, 0, Algorithm::Hierarchical).sent, 23);
  traffic.reset();
  EXPECT_DOUBLE_EQ(traffic.allGather(pieces, all, 0, Algorithm::Best).arrived, both.arrived);
}

TEST(Collectives, BestIsTheFirstToEnd) {
  for (auto &topology : {cards(6), nodesOfTwo(5), farApart()}) {
    Network network(topology);
    std::vector<uint32_t> all;
    std::vector<Piece> pieces;
    for (uint32_t d = 0; d < network.devices(); ++d) {
      all.push_back(d);
      pieces.push_back({d, 10.0 * d});
    }
    for (double bytes : {0.001, 1.0, 1000.0})
      for (int operation = 0; operation < 3; ++operation) {
        auto arrived = [&](Algorithm algorithm) {
          Traffic traffic(network);
          traffic.send(0, 2, 55, 0); // a transfer is in progress
          std::vector<Piece> scaled(pieces);
          for (Piece &p : scaled)
            p.bytes *= bytes;
          return (operation == 0   ? traffic.allGather(scaled, all, 0, algorithm)
                  : operation == 1 ? traffic.reduceScatter(all, scaled, 0, algorithm)
                                   : traffic.allReduce(all, bytes, 0, algorithm))
              .arrived;
        };
        double min = 1e300;
        for (Algorithm a : {Algorithm::AllPairs, Algorithm::Ring, Algorithm::Tree,
                            Algorithm::Hierarchical, Algorithm::Rails})
          if (a != Algorithm::Hierarchical || network.sites() > 1)
            min = std::min(min, arrived(a));
        EXPECT_DOUBLE_EQ(arrived(Algorithm::Best), min);
      }
  }
}

TEST(Collectives, ShareResourcesWithTransfers) {
  Network network(cards(3));
  Traffic traffic(network);
  EXPECT_DOUBLE_EQ(traffic.send(0, 1, 400, 0).sent, 4);
  EXPECT_DOUBLE_EQ(
      traffic.allGather({{0, 100}, {1, 100}, {2, 100}}, {0, 1, 2}, 1, Algorithm::Ring).sent,
      6);                                               // 200 bytes out of 0 after the 400
  EXPECT_DOUBLE_EQ(traffic.send(1, 2, 100, 1).sent, 4); // after 200 bytes out of 1
  EXPECT_DOUBLE_EQ(traffic.send(2, 0, 0, 1).sent, 1);
}

TEST(Collectives, OneMemberHasNothingToDo) {
  Network network(cards(2));
  Traffic traffic(network);
  EXPECT_EQ(traffic.allGather({{1, 100}}, {1}, 3, Algorithm::Best).arrived, 3);
  EXPECT_EQ(traffic.allReduce({0}, 100, 3, Algorithm::Best).arrived, 3);
  EXPECT_EQ(traffic.allGather({}, {}, 3, Algorithm::AllPairs).arrived, 3);
}

TEST(Collectives, LimitsOfFlowsHold) {
  bundle::Topology t = cards(2);
  t.mutable_nodes(0)->mutable_nic()->set_per_flow_bandwidth(10);
  Network network(t);
  for (Algorithm a : {Algorithm::AllPairs, Algorithm::Ring, Algorithm::Hierarchical}) {
    Traffic traffic(network);
    EXPECT_DOUBLE_EQ(traffic.allGather({{0, 100}, {1, 100}}, {0, 1}, 0, a).sent, 10);
    EXPECT_DOUBLE_EQ(traffic.send(1, 0, 100, 0).sent, 10);
  }
}

/// Two nodes of two devices: 400 bytes; each node owns half of them.
TEST(Collectives, RailsPassACardOnce) {
  for (bool limited : {false, true}) {
    bundle::Topology t = nodesOfTwo(2);
    for (auto &node : *t.mutable_nodes()) {
      node.mutable_bus()->Clear();
      if (limited)
        node.mutable_nic()->set_per_flow_bandwidth(50);
    }
    Network network(t);
    Traffic traffic(network);
    std::vector<Piece> pieces{{0, 100}, {1, 100}, {2, 100}, {3, 100}};
    std::vector<uint32_t> all{0, 1, 2, 3};
    // Between nodes: the 200 bytes of the other node in two flows, 2 s with NICs of 100 bytes/s.
    // Inside: half of 400 over ports of 1000 bytes/s.
    TransferTimes gather = traffic.allGather(pieces, all, 0, Algorithm::Rails);
    EXPECT_DOUBLE_EQ(gather.sent, 2 + 0.2);
    EXPECT_DOUBLE_EQ(traffic.busyUntil(network.route(0, 2).resources[0]), 2);
    traffic.reset();
    EXPECT_DOUBLE_EQ(traffic.reduceScatter(all, pieces, 0, Algorithm::Rails).sent, gather.sent);
    traffic.reset();
    EXPECT_DOUBLE_EQ(traffic.allReduce(all, 400, 0, Algorithm::Rails).sent, 2 * gather.sent);
    traffic.reset();
    EXPECT_DOUBLE_EQ(traffic.allGather(pieces, all, 0, Algorithm::Best).arrived, gather.arrived);
    // Links of a ring carry the pieces of all devices but one.
    traffic.reset();
    EXPECT_DOUBLE_EQ(traffic.allGather(pieces, all, 0, Algorithm::Ring).sent, 3);
  }
}

TEST(Collectives, BestIsOneOfThoseAllowed) {
  bundle::Topology t = nodesOfTwo(2);
  for (auto &node : *t.mutable_nodes())
    node.mutable_bus()->Clear();
  std::vector<Piece> pieces{{0, 100}, {1, 100}, {2, 100}, {3, 100}};
  std::vector<uint32_t> all{0, 1, 2, 3};
  auto arrived = [&](Algorithm algorithm) {
    Network network(t);
    return Traffic(network).allGather(pieces, all, 0, algorithm).arrived;
  };
  EXPECT_EQ(arrived(Algorithm::Best), arrived(Algorithm::Rails));
  for (Algorithm a : {Algorithm::AllPairs, Algorithm::Ring, Algorithm::Tree, Algorithm::Rails}) {
    t.clear_collective_algorithms();
    t.add_collective_algorithms(algorithmOf(a));
    EXPECT_EQ(arrived(Algorithm::Best), arrived(a));
  }
  t.clear_collective_algorithms();
  t.add_collective_algorithms(bundle::Topology::HIERARCHICAL); // which cannot be used in a single
                                                               // site
  EXPECT_EQ(arrived(Algorithm::Best), arrived(Algorithm::Ring));
}

/// Two nodes of two devices, NICs of 100 bytes/s, at most 30 per flow: two rings, one per device of
/// a node.
TEST(Collectives, RingsShareACardOfLimitedFlows) {
  bundle::Topology t = nodesOfTwo(2);
  for (int n = 0; n < 2; ++n)
    t.mutable_nodes(n)->mutable_nic()->set_per_flow_bandwidth(30);
  Network network(t);
  Traffic traffic(network);
  // Every link carries 300 bytes in two parallel flows of 150: 5 s. One ring would take 10 s.
  EXPECT_DOUBLE_EQ(
      traffic.allGather({{0, 100}, {1, 100}, {2, 100}, {3, 100}}, {0, 1, 2, 3}, 0, Algorithm::Ring)
          .sent,
      5);
  EXPECT_DOUBLE_EQ(traffic.busyUntil(network.route(0, 2).resources[0]),
                   3); // the NIC transfers the same bytes as before
  traffic.reset();
  EXPECT_DOUBLE_EQ(
      traffic
          .reduceScatter({0, 1, 2, 3}, {{0, 100}, {1, 100}, {2, 100}, {3, 100}}, 0, Algorithm::Ring)
          .sent,
      5);
  traffic.reset();
  // With one member in a node, there is one ring. Links into 0, 1 and 2 carry 200 bytes each.
  EXPECT_DOUBLE_EQ(
      traffic.allGather({{0, 100}, {1, 100}, {2, 100}}, {0, 1, 2}, 0, Algorithm::Ring).sent,
      200 / 30.0);
}

} // namespace
