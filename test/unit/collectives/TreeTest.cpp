#include "RandomReductions.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

using namespace zorse::test;

namespace {

/// Nodes of k devices on one site, with cards of 6 GB/s.
Placement equalNodes(uint32_t nodes, uint32_t k) {
  Placement placement;
  placement.uplink = {0};
  for (uint32_t n = 0; n < nodes; ++n) {
    placement.siteOf.push_back(0);
    placement.cardIn.push_back(6e9);
    placement.cardOut.push_back(6e9);
    for (uint32_t d = 0; d < k; ++d) {
      placement.nodeOf.push_back(n);
      placement.port.push_back(300e9);
    }
  }
  return placement;
}

std::vector<uint32_t> all(const Placement &placement) {
  std::vector<uint32_t> devices;
  devices.reserve(placement.nodeOf.size());
  for (uint32_t d = 0; d < placement.nodeOf.size(); ++d)
    devices.push_back(d);
  return devices;
}

std::string text(const Tree &tree) { return sumText(tree, tree.size() - 1); }

TEST(Tree, NodesAndSitesAreInTheOrderOfTheirFirstContributor) {
  Placement placement = equalNodes(3, 2); // 0 1 | 2 3 | 4 5
  EXPECT_EQ(text(makeTree(placement, {0, 1, 2, 3, 4, 5})), "((0+1)+(2+3)+(4+5))");
  EXPECT_EQ(text(makeTree(placement, {4, 0, 5, 1, 3})), "((4+5)+(0+1)+3)");
  placement.siteOf = {0, 1, 0};
  placement.uplink = {0, 0};
  EXPECT_EQ(text(makeTree(placement, {0, 1, 2, 3, 4, 5})), "(((0+1)+(4+5))+(2+3))");
  EXPECT_EQ(text(makeFlatTree(placement, {4, 0, 5})), "(4+0+5)");
}

TEST(Tree, GroupsOfOneVanish) {
  EXPECT_EQ(text(makeTree(equalNodes(1, 4), {2, 1})), "(2+1)");
  EXPECT_EQ(text(makeTree(equalNodes(4, 1), {0, 1, 2})), "(0+1+2)");
  const Tree one = makeTree(equalNodes(2, 2), {3});
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(text(one), "(3)");
}

TEST(Tree, ManyNodesAreInPods) {
  const Placement placement = equalNodes(12, 1);
  EXPECT_EQ(text(makeTree(placement, all(placement), 4)), "((0+1+2+3)+(4+5+6+7)+(8+9+10+11))");
  for (uint32_t nodes : {17, 31, 257, 512, 4096, 5000}) {
    const Placement large = equalNodes(nodes, 1);
    const Tree tree = makeTree(large, all(large));
    for (const Group &group : tree)
      EXPECT_LE(group.children.size(), kRadix) << nodes;
    EXPECT_EQ(tree.back().level, nodes <= 256 ? 1u : nodes <= 4096 ? 2u : 3u) << nodes;
  }
}

/// With owners by digits (lane, place in the pod, pod), what a device holds is one run at every
/// level, and it exchanges few messages.
TEST(Tree, OwnersByDigitsExchangeFewMessages) {
  constexpr int64_t kEach = 3000 * kGrain;
  const uint32_t nodes = 128, k = 4, pods = 8;
  const Placement placement = equalNodes(nodes, k);
  for (bool digits : {false, true}) {
    Cover owners;
    for (uint32_t i = 0; i < nodes * k; ++i) {
      const uint32_t lane = i / nodes, place = i % nodes / pods, pod = i % pods;
      owners.push_back(
          {i * kEach, (i + 1) * kEach, digits ? (pod * (nodes / pods) + place) * k + lane : i});
    }
    const auto begin = std::chrono::steady_clock::now();
    const Tree tree = makeTree(placement, all(placement));
    const Schedule schedule = makeSchedule(tree, chooseCovers(placement, tree, owners), owners);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    const Loads loads = loadsOf(placement, schedule);
    const uint32_t most = *std::max_element(loads.messages.begin(), loads.messages.end());
    std::printf("owners by %s: %zu parts, at most %u messages of a device, %.3f s\n",
                digits ? "digits" : "rank", schedule.parts.size(), most, seconds.count());
    EXPECT_NEAR(busiestLink(placement, loads, 4), lowerBound(placement, all(placement), owners, 4),
                1e-9);
    if (digits)
      EXPECT_LE(most, 50u);
    else
      EXPECT_LE(most, 1022u);
  }
}

/// One node: the exchange over ports. One device per node: the exchange of nodes.
TEST(Tree, SmallReductionsAreExchanges) {
  for (const Placement &placement : {equalNodes(1, 4), equalNodes(4, 1)}) {
    const Cover owners = {{0, 1024, 0}, {1024, 2048, 1}, {2048, 3072, 2}, {3072, 4096, 3}};
    const Tree tree = makeTree(placement, {0, 1, 2, 3});
    const std::vector<Cover> covers = chooseCovers(placement, tree, owners);
    ASSERT_EQ(covers.size(), 1u);
    EXPECT_EQ(covers[0], owners);
  }
}

} // namespace
