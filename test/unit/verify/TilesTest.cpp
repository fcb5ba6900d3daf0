// Tests contributions to the gradient of a parameter: they are rectangles of samples and of parts
// of an axis, and must tile the whole (lib/Verify/SymbolicExecution.h).
#include "SymbolicExecution.h"

#include <gtest/gtest.h>

#include <random>

using namespace zorse::verify;

namespace {

Contribution of(int64_t begin, int64_t end, int32_t from, int32_t to) {
  return {0, 0, begin, end, {from, to}};
}

} // namespace

TEST(Tiles, WholePartsAreRowsOfCells) {
  const std::vector<Range> rows{{0, 3}, {3, 5}, {8, 9}};
  EXPECT_TRUE(tiles({{0, 0, 8, 9}, {0, 0, 0, 3}, {0, 0, 3, 5}}, rows));
  EXPECT_TRUE(tiles({{0, 0, 0, 5}, {0, 0, 8, 9}}, rows)) << "how samples are cut does not matter";
  EXPECT_FALSE(tiles({{0, 0, 0, 3}, {0, 0, 3, 5}}, rows)) << "a row is missing";
  EXPECT_FALSE(tiles({{0, 0, 0, 5}, {0, 0, 5, 9}}, rows)) << "samples of another device";
  EXPECT_FALSE(tiles({{0, 0, 0, 5}, {0, 0, 8, 9}, {0, 0, 1, 2}}, rows)) << "one twice";
  EXPECT_TRUE(tiles({}, {}));
  EXPECT_FALSE(tiles({}, rows));
}

TEST(Tiles, PartsFillTheAxis) {
  const std::vector<Range> rows{{0, 8}};
  EXPECT_TRUE(tiles({of(0, 8, 0, 3), of(0, 8, 3, 7)}, rows, 7));
  EXPECT_TRUE(tiles({of(0, 5, 0, 3), of(0, 8, 3, 7), of(5, 8, 0, 1), of(5, 8, 1, 3)}, rows, 7))
      << "a pinwheel's corners need not meet";
  EXPECT_FALSE(tiles({of(0, 8, 0, 3), of(0, 8, 4, 7)}, rows, 7)) << "a hole in the axis";
  EXPECT_FALSE(tiles({of(0, 8, 0, 4), of(0, 8, 3, 7)}, rows, 7)) << "an overlap";
  EXPECT_FALSE(tiles({of(0, 8, 0, 4), of(0, 8, 3, 6)}, rows, 7))
      << "an overlap as long as the hole";
  EXPECT_FALSE(tiles({of(0, 8, 0, 3), of(0, 7, 3, 7)}, rows, 7))
      << "a hole in the samples of one part";
  EXPECT_FALSE(tiles({of(0, 8, 0, 8)}, rows, 7)) << "beyond the axis";
}

TEST(Tiles, RandomCutsAreAcceptedAndFaultsAreNot) {
  std::mt19937_64 random(3);
  auto upTo = [&](int64_t n) { return int64_t(random() % uint64_t(n + 1)); };
  for (int round = 0; round < 300; ++round) {
    const int32_t length = int32_t(1 + upTo(9));
    std::vector<Contribution> pieces;
    std::vector<Range> rows;
    for (int64_t begin = upTo(3), end; begin < 20; begin = end + upTo(2)) {
      end = begin + 1 + upTo(4);
      rows.push_back({begin, end});
      pieces.push_back({0, 0, begin, end, {0, length}});
    }
    for (int cuts = 0; cuts < 12; ++cuts) { // cut a piece along samples or along the axis
      Contribution &one = pieces[size_t(upTo(int64_t(pieces.size()) - 1))], other = one;
      if (upTo(1) && one.end - one.begin > 1)
        one.end = other.begin = one.begin + 1 + upTo(one.end - one.begin - 2);
      else if (one.part.end - one.part.begin > 1)
        one.part.end = other.part.begin =
            int32_t(one.part.begin + 1 + upTo(one.part.end - one.part.begin - 2));
      else
        continue;
      pieces.push_back(other);
    }
    std::shuffle(pieces.begin(), pieces.end(), random);
    ASSERT_TRUE(tiles(pieces, rows, length)) << round;
    std::vector<Contribution> twice = pieces, missing = pieces, moved = pieces;
    twice.push_back(pieces[0]);
    missing.pop_back();
    ++moved[0].end;
    EXPECT_FALSE(tiles(twice, rows, length)) << round;
    EXPECT_FALSE(tiles(missing, rows, length)) << round;
    EXPECT_FALSE(tiles(moved, rows, length)) << round;
  }
}
