// Compares steps of the re-implemented planners with results computed by hand.
#include "Baselines/Harp.h"
#include "Baselines/HexiScale.h"
#include "Baselines/Partitions.h"
#include "Baselines/ZorsePaper.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <tuple>

using namespace zorse::planning::baseline;

namespace {

Weights graph(size_t n, std::vector<std::tuple<int, int, double>> edges) {
  Weights w(n, std::vector<double>(n, 0));
  for (auto [a, b, weight] : edges)
    w[a][b] = w[b][a] = weight;
  return w;
}

double weightOf(const Weights &w, const std::vector<bool> &side) {
  double sum = 0;
  for (size_t i = 0; i < w.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      sum += side[i] != side[j] ? w[i][j] : 0;
  return sum;
}

/// The example of Stoer and Wagner's paper: the minimum cut separates {3, 4, 7, 8} (numbered from
/// 1) and has weight 4.
TEST(Cuts, StoerAndWagnersExample) {
  Weights w = graph(8, {{0, 1, 2},
                        {0, 4, 3},
                        {1, 2, 3},
                        {1, 4, 2},
                        {1, 5, 2},
                        {2, 3, 4},
                        {2, 6, 2},
                        {3, 6, 2},
                        {3, 7, 2},
                        {4, 5, 3},
                        {5, 6, 1},
                        {6, 7, 3}});
  Partition cut = lightestCut(w);
  EXPECT_EQ(cut.weight, 4);
  bool side = cut.side[2];
  EXPECT_EQ(cut.side, std::vector<bool>({!side, !side, side, side, !side, !side, side, side}));
}

TEST(Cuts, LightestOfAll) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 300; ++trial) {
    size_t n = 2 + random() % 7;
    Weights w(n, std::vector<double>(n, 0));
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < i; ++j)
        w[i][j] = w[j][i] = static_cast<double>(random() % 6);
    double min = 1e300;
    for (uint64_t mask = 1; mask + 1 < (uint64_t(1) << n); ++mask) {
      std::vector<bool> side(n);
      for (size_t v = 0; v < n; ++v)
        side[v] = mask >> v & 1;
      min = std::min(min, weightOf(w, side));
    }
    Partition cut = lightestCut(w);
    EXPECT_EQ(cut.weight, min);
    EXPECT_EQ(weightOf(w, cut.side), min);
  }
}

/// Two nodes of two devices, weight 100 inside nodes and 1 between them: the first cut separates
/// the nodes, the second a device.
TEST(Cuts, SplitsNodesFirst) {
  Weights w = graph(4, {{0, 1, 100}, {2, 3, 100}, {0, 2, 1}, {0, 3, 1}, {1, 2, 1}, {1, 3, 1}});
  auto parts = splitCuts(w, 4);
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_EQ(parts[0], (std::vector<uint32_t>{0, 0, 0, 0}));
  EXPECT_EQ(parts[1], (std::vector<uint32_t>{0, 0, 1, 1}));
  EXPECT_EQ(parts[2], (std::vector<uint32_t>{0, 1, 2, 2}));
  EXPECT_EQ(parts[3], (std::vector<uint32_t>{0, 1, 2, 3}));
}

/// Nodes of 3, 3 and 2 devices in a mesh: the small node has the minimum cut (2 * 6 = 12, not 3 * 5
/// = 15).
TEST(Cuts, SplitsTheLightestPart) {
  Weights w(8, std::vector<double>(8, 1));
  int node[] = {0, 0, 0, 1, 1, 1, 2, 2};
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 8; ++j)
      w[i][j] = node[i] == node[j] ? 100 : 1;
  auto parts = splitCuts(w, 3);
  EXPECT_EQ(parts[1], (std::vector<uint32_t>{0, 0, 0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(parts[2], (std::vector<uint32_t>{0, 0, 0, 1, 1, 1, 2, 2}));
}

TEST(Cuts, BisectionFindsClusters) {
  // Four clusters of four with interleaved vertices: only swaps can separate them.
  Weights w(16, std::vector<double>(16, 1));
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j)
      w[i][j] = i % 4 == j % 4 ? 10 : 1;
  std::vector<uint32_t> parts = bisectRecursively(w, std::vector<double>(16, 1), 4);
  for (int i = 4; i < 16; ++i)
    EXPECT_EQ(parts[i], parts[i % 4]);
  EXPECT_EQ(std::set<uint32_t>(parts.begin(), parts.end()).size(), 4u);
  // Shares follow vertex weights: one vertex of weight 4 balances four of weight 1.
  parts = bisectRecursively(Weights(5, std::vector<double>(5, 1)), {4, 1, 1, 1, 1}, 2);
  for (int i = 1; i < 5; ++i)
    EXPECT_NE(parts[i], parts[0]);
}

TEST(ZorsePaper, Shares) {
  EXPECT_EQ(shareByRate(8, {2, 1, 1}), (std::vector<int64_t>{4, 2, 2}));
  // 3.5, 1.75, 1.75: the remaining two go to the fastest devices first.
  EXPECT_EQ(shareByRate(7, {2, 1, 1}), (std::vector<int64_t>{4, 2, 1}));
  EXPECT_EQ(shareByRate(32, {1.0 / 3, 1.0 / 3, 1.0 / 3}), (std::vector<int64_t>{11, 11, 10}));
}

TEST(ZorsePaper, Ministages) {
  EXPECT_EQ(interleave({4, 6}, {1, 1}, 1), (std::vector<std::vector<int64_t>>{{4}, {6}}));
  EXPECT_EQ(interleave({4, 6}, {1, 1}, 2), (std::vector<std::vector<int64_t>>{{2, 2}, {3, 3}}));
  EXPECT_EQ(interleave({4, 5}, {1, 1}, 2),
            (std::vector<std::vector<int64_t>>{{3, 2}, {2, 2}})); // the remaining layer goes to the
                                                                  // first of equal devices
  EXPECT_EQ(interleave({4, 5}, {1, 2}, 2),
            (std::vector<std::vector<int64_t>>{{2, 2}, {3, 2}})); // or to the faster device
  EXPECT_TRUE(interleave({1, 5}, {1, 1}, 2).empty());
}

TEST(HexiScale, LayersByMemory) {
  EXPECT_EQ(layersByMemory(10, {16, 16, 8}), (std::vector<int64_t>{4, 4, 2}));
  EXPECT_EQ(layersByMemory(8, {80, 16, 16}), (std::vector<int64_t>{6, 1, 1})); // 5.7, 1.1, 1.1
}

TEST(HexiScale, GPipe) {
  EXPECT_EQ(gpipeTime({1, 2, 1}, 4), 10); // columns 1 2 2 2 2 1
  EXPECT_EQ(gpipeTime({3, 1, 2}, 1), 6);
  EXPECT_EQ(gpipeTime({3, 1, 2}, 2), 3 + 3 + 2 + 2);
  EXPECT_EQ(gpipeTime({3, 1, 2}, 100),
            3 * 100 + 2 + 2); // the first stage is the slowest while it has work
  EXPECT_EQ(gpipeTime({5}, 7), 35);
}

TEST(Harp, LaunchCounts) {
  EXPECT_EQ(launchCounts({{1, 2, 0, 1}, {1, 2, 0, 1}, {1, 2, 0, 1}, {1, 2, 0, 1}}),
            (std::vector<int64_t>{4, 3, 2, 1})); // 1F1B
  // Links take the time of a stage: (4 * 3 + 3 * 6) / 3 = 10 with periods of 3, (3 * 3 + 2 * 6) /
  // 3, (2 * 3 + 6) / 3.
  EXPECT_EQ(launchCounts({{1, 2, 3, 1}, {1, 2, 3, 1}, {1, 2, 3, 1}, {1, 2, 0, 1}}),
            (std::vector<int64_t>{10, 7, 4, 1}));
  // Two devices alternate: each starts a micro-batch every two periods.
  EXPECT_EQ(launchCounts({{2, 4, 0, 2}, {1, 2, 0, 1}}), (std::vector<int64_t>{2, 1}));
  // A fast stage before a slow one needs fewer: (1 + 6) / 6.
  EXPECT_EQ(launchCounts({{0.5, 0.5, 0, 1}, {2, 4, 0, 1}}), (std::vector<int64_t>{2, 1}));
}

TEST(Harp, Cuts) {
  EXPECT_EQ(cutByTime({{1, 1, 1, 1, 1, 1}, {2, 2, 2, 2, 2, 2}}), (std::vector<int32_t>{4, 6}));
  EXPECT_EQ(cutByTime({{0, 1, 1, 5}, {0, 1, 1, 5}}), (std::vector<int32_t>{3, 4}));
  EXPECT_EQ(cutByTime({{1, 1}, {1, 1}}), (std::vector<int32_t>{1, 2}));
  EXPECT_TRUE(cutByTime({{1}, {1}}).empty());
}

} // namespace
