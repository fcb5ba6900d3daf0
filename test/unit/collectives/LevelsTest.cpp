// Reductions as exchanges level by level. ZORSE_TRIALS sets the number of random cases.

#include "RandomReductions.h"

#include "zorse/Collectives/Levels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>

using namespace zorse::test;

namespace {

Placement equalNodes(uint32_t nodes, uint32_t devices, uint32_t sites = 1) {
  Placement made;
  for (uint32_t n = 0; n < nodes; ++n) {
    made.siteOf.push_back(n * sites / nodes);
    made.cardIn.push_back(6e9);
    made.cardOut.push_back(6e9);
    for (uint32_t d = 0; d < devices; ++d) {
      made.nodeOf.push_back(n);
      made.port.push_back(300e9);
    }
  }
  made.uplink.assign(sites, 0);
  return made;
}

std::vector<uint32_t> all(const Placement &placement) {
  std::vector<uint32_t> devices(placement.nodeOf.size());
  std::iota(devices.begin(), devices.end(), 0u);
  return devices;
}

/// Equal owners in the order of ownerOrder.
Cover equalOwners(const Placement &placement, int64_t each) {
  Cover owners;
  for (uint32_t device : ownerOrder(placement, all(placement)))
    owners.push_back({int64_t(owners.size()) * each, int64_t(owners.size() + 1) * each, device});
  return owners;
}

/// "group 0: 0+1 -> 0 [0:4), 1 [4:8)", in grains
std::string text(const LevelReduction &exchange) {
  std::string out = (exchange.forwards ? "pass on " : "group ") + std::to_string(exchange.group) +
                    ":";
  for (uint32_t member : exchange.members)
    out += " " + std::to_string(member);
  out += exchange.toOwner ? " -> owners" : " ->";
  for (const Extent &result : exchange.results)
    out += " " + std::to_string(result.device) + " [" + std::to_string(result.begin / kGrain) +
           ":" + std::to_string(result.end / kGrain) + ")";
  return out;
}

std::string text(const std::optional<std::vector<LevelReduction>> &exchanges) {
  std::string out;
  for (const LevelReduction &exchange : *exchanges)
    out += text(exchange) + "\n";
  return out;
}

TEST(Levels, TwoNodesOfTwo) {
  const Placement placement = equalNodes(2, 2);
  EXPECT_EQ(ownerOrder(placement, all(placement)), (std::vector<uint32_t>{0, 2, 1, 3}));
  const Tree tree = makeTree(placement, all(placement));
  EXPECT_EQ(text(levelReductions(placement, tree, equalOwners(placement, kGrain * 4))),
            "group 0: 0 1 -> 0 [0:8) 1 [8:16)\n"
            "group 1: 2 3 -> 2 [0:8) 3 [8:16)\n"
            "group 2: 0 2 -> owners 0 [0:4) 2 [4:8)\n"
            "group 2: 1 3 -> owners 1 [8:12) 3 [12:16)\n");
}

TEST(Levels, OneOwnerGetsSumsOfOthers) {
  const Placement placement = equalNodes(2, 2);
  const Tree tree = makeTree(placement, all(placement));
  const std::string made = text(levelReductions(placement, tree, {{0, kGrain * 64, 3}}));
  EXPECT_NE(made.find("pass on 2: "), std::string::npos) << made;
}

/// Members of a node exchange once, and members of 256 nodes with their counterparts in pods.
TEST(Levels, FewExchangesPerDevice) {
  const Placement placement = equalNodes(256, 8);
  const Tree tree = makeTree(placement, all(placement));
  const auto exchanges = levelReductions(placement, tree, equalOwners(placement, kGrain));
  ASSERT_TRUE(exchanges);
  std::map<uint32_t, int> perDevice;
  size_t members = 0;
  for (const LevelReduction &exchange : *exchanges) {
    members = std::max(members, exchange.members.size());
    for (uint32_t member : exchange.members)
      ++perDevice[member];
  }
  for (auto [device, count] : perDevice)
    ASSERT_EQ(count, 3) << device; // node, pod, pods
  EXPECT_EQ(members, 16u);
}

/// Owners of different amounts, by their order in ownerOrder.
Cover ownersOf(const Placement &placement, int64_t elements,
               const std::function<double(uint32_t device)> &weightOf) {
  const std::vector<uint32_t> order = ownerOrder(placement, all(placement));
  double sum = 0, passed = 0;
  for (uint32_t device : order)
    sum += weightOf(device);
  Cover owners;
  for (size_t i = 0; i < order.size(); ++i) {
    const int64_t begin = owners.empty() ? 0 : owners.back().end;
    passed += weightOf(order[i]);
    const int64_t end = i + 1 == order.size()
                            ? elements
                            : int64_t(double(elements) * passed / sum) / kGrain * kGrain;
    owners.push_back({begin, end, order[i]});
  }
  return owners;
}

/// Exchanges per contributor, and the elements that enter a node's card, of all elements.
struct Cost {
  double exchanges, enters;
};
Cost costOf(const Placement &placement, const Cover &owners) {
  const auto made = levelReductions(placement, makeTree(placement, all(placement)), owners);
  if (!made)
    return {INFINITY, INFINITY};
  std::vector<int64_t> enters(placement.siteOf.size(), 0);
  for (const LevelReduction &exchange : *made)
    for (const Extent &term : exchange.terms)
      for (const Extent &result : exchange.results)
        if (const uint32_t node = placement.nodeOf[result.device];
            node != placement.nodeOf[term.device])
          enters[node] += std::max<int64_t>(0, std::min(term.end, result.end) -
                                                   std::max(term.begin, result.begin));
  return {double(made->size()) / double(placement.nodeOf.size()),
          double(*std::max_element(enters.begin(), enters.end())) / double(owners.back().end)};
}

/// Groups have whole numbers of grains per owner, which do not divide them evenly. A pairwise
/// exchange would pass the elements of all devices of other nodes.
TEST(Levels, UnevenOwnersNeedFewExchanges) {
  for (uint32_t nodes : {8u, 16u, 32u, 128u}) {
    const Placement placement = equalNodes(nodes, 4, 4);
    for (int64_t elements : {16779264, 34607104, 202000960}) {
      const Cost equal = costOf(placement, ownersOf(placement, elements, [](auto) { return 1; }));
      EXPECT_LT(equal.exchanges, 1.1) << nodes << " " << elements;
      EXPECT_LT(equal.enters, 1) << nodes << " " << elements;
      const Cost byNode = costOf(placement, ownersOf(placement, elements, [&](uint32_t d) {
                                   return 1 + placement.nodeOf[d] % 2;
                                 }));
      EXPECT_LT(byNode.exchanges, 1.1) << nodes << " " << elements;
      EXPECT_LT(byNode.enters, 1.4) << nodes << " " << elements;
      const Cost any = costOf(placement, ownersOf(placement, elements, [](uint32_t d) {
                                return 1 + 0.02 * (d * 7919 % 11);
                              }));
      EXPECT_LT(any.exchanges, 8) << nodes << " " << elements;
      EXPECT_LT(any.enters, 1.1) << nodes << " " << elements;
    }
  }
}

TEST(Levels, OneNodeIsAnExchange) {
  const Placement placement = equalNodes(1, 8);
  EXPECT_FALSE(levelReductions(placement, makeTree(placement, all(placement)),
                               equalOwners(placement, kGrain)));
}

/// The sums of exchanges, in order of additions, as text. Terms are in accumulators, in which
/// results replace them.
class Execution {
public:
  Execution(const RandomReduction &of, const Tree &tree) : of(of), tree(tree) {}

  std::string run(const std::vector<LevelReduction> &exchanges, int64_t element) {
    std::map<uint32_t, std::string> held, owned;
    for (uint32_t device : of.contributors)
      held[device] = std::to_string(device);
    for (const LevelReduction &exchange : exchanges)
      for (const Extent &result : exchange.results) {
        if (element < result.begin || element >= result.end)
          continue;
        std::string sum;
        size_t terms = 0;
        for (const Extent &term : exchange.terms)
          if (term.begin <= result.begin && result.end <= term.end) {
            sum += (terms++ ? "+" : "") + held[term.device];
          }
        if (!exchange.forwards)
          sum.insert(0, "(").append(")");
        if (exchange.forwards ? terms != 1 : terms != tree[exchange.group].children.size())
          return "a term is missing";
        (exchange.toOwner ? owned : held)[result.device] = sum;
      }
    for (const Extent &owner : of.owners)
      if (owner.begin <= element && element < owner.end)
        return owned[owner.device];
    return "";
  }

private:
  const RandomReduction &of;
  const Tree &tree;
};

std::string text(const Tree &tree, Child child) {
  if (child.isContributor())
    return std::to_string(child.device());
  std::string out;
  for (Child below : tree[child.index()].children)
    out += (out.empty() ? "" : "+") + text(tree, below);
  return "(" + out + ")";
}

/// Owners get the sum along the tree, every device has one run of terms and of results in an
/// exchange, and the cards pass what the schedule passes.
TEST(Levels, RandomReductionsFollowTheTree) {
  const char *given = std::getenv("ZORSE_TRIALS");
  const int trials = given ? std::atoi(given) : 1000;
  ReductionMaker maker(11);
  size_t divided = 0, count = 0, contributors = 0;
  for (int trial = 0; trial < trials; ++trial) {
    const RandomReduction of = maker.make();
    const Tree tree = makeTree(of.placement, of.contributors);
    const auto exchanges = levelReductions(of.placement, tree, of.owners);
    if (!exchanges)
      continue;
    ++divided;
    count += exchanges->size();
    contributors += of.contributors.size();
    for (const LevelReduction &exchange : *exchanges) {
      ASSERT_EQ(exchange.terms.size(), exchange.members.size());
      std::map<uint32_t, int64_t> ends;
      for (const Extent &result : exchange.results) {
        ASSERT_TRUE(!ends.count(result.device) || ends[result.device] == result.begin) << trial;
        ends[result.device] = result.end;
        for (const Extent &term : exchange.terms)
          ASSERT_TRUE((term.begin <= result.begin && result.end <= term.end) ||
                      result.end <= term.begin || term.end <= result.begin)
              << trial;
      }
    }
    for (int draw = 0; draw < 5; ++draw) {
      const int64_t element = int64_t(maker.below(uint64_t(of.elements)));
      ASSERT_EQ(Execution(of, tree).run(*exchanges, element),
                text(tree, Child::group(tree.size() - 1)))
          << trial << ", element " << element;
    }
  }
  std::printf("%zu of %d reductions in levels, %.2f exchanges per contributor\n", divided, trials,
              double(count) / double(contributors));
  EXPECT_GT(divided, size_t(trials / 3));
}

} // namespace
