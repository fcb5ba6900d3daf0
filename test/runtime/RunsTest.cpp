// Tests the places of elements in memory that contains runs of them (zorse/Base/Runs.h).
#include "zorse/Base/Runs.h"

#include <gtest/gtest.h>

#include <random>

using namespace zorse;

TEST(Runs, OneRunIsASubtraction) {
  const Compact one({{3, 5, 9}, {4, 9, 12}}, 3);
  EXPECT_EQ(one.elements(), 4);
  EXPECT_EQ(one.place(5, 9), 0);
  EXPECT_EQ(one.place(7, 8), 2);
  EXPECT_LT(one.place(4, 6), 0);
  EXPECT_LT(one.place(8, 10), 0);
  EXPECT_LT(one.place(9, 12), 0);
  EXPECT_TRUE(Compact({{3, 5, 9}}, 4).empty());
  EXPECT_LT(Compact().place(0, 1), 0);
}

TEST(Runs, SeveralLieOneBehindTheOther) {
  const Compact runs({{0, 2, 4}, {1, 4, 6}, {0, 6, 6}, {0, 6, 9}, {0, 9, 10}}, 0);
  EXPECT_EQ(runs.runs().size(), 3u); // empty runs are dropped
  EXPECT_EQ(runs.elements(), 6);
  EXPECT_EQ(runs.place(6, 9), 2);
  EXPECT_EQ(runs.place(9, 10), 5);
  EXPECT_LT(runs.place(3, 7), 0) << "what lies between two runs is not there";
  EXPECT_LT(runs.place(8, 10), 0) << "no run contains both, although they are adjacent";
}

TEST(Runs, PlacesAreThoseOfACopy) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    constexpr int64_t kElements = 60;
    std::vector<Shard> list;
    std::vector<int64_t> copies[3]; // by device: the elements in its memory
    for (int64_t begin = 0, end; begin < kElements; begin = end) {
      end = std::min<int64_t>(kElements, begin + 1 + int64_t(random() % 8));
      const auto device = uint32_t(random() % 4); // the last has no memory
      if (device == 3)
        continue;
      list.push_back({device, begin, end});
      for (int64_t element = begin; element < end; ++element)
        copies[device].push_back(element);
    }
    for (uint32_t device = 0; device < 3; ++device) {
      const Compact places(list, device);
      const std::vector<int64_t> &copy = copies[device];
      EXPECT_EQ(places.elements(), int64_t(copy.size()));
      for (int64_t element = 0; element < kElements; ++element) {
        const auto found = std::find(copy.begin(), copy.end(), element);
        EXPECT_EQ(places.place(element, element + 1),
                  found == copy.end() ? -1 : found - copy.begin());
      }
    }
  }
}

TEST(Runs, ShardsLieApartOrInside) {
  const Compact whole({{0, 0, 4}, {0, 8, 20}}, 0), shards({{0, 2, 4}, {0, 12, 14}}, 0),
      others({{0, 2, 4}, {0, 6, 7}}, 0);
  const Held inside(whole, shards, 2 * 4,
                    4); // the first shard is in place: two elements from the start
  EXPECT_TRUE(inside.inside);
  EXPECT_EQ(inside.shards.place(2, 4), 0);
  EXPECT_EQ(inside.shards.place(12, 13), 8 - 2);
  EXPECT_EQ(inside.shards.elements(), 4);
  const Held apart(whole, shards, 100 * 4, 4);
  EXPECT_FALSE(apart.inside);
  EXPECT_EQ(apart.shards.place(2, 4), 0);
  EXPECT_EQ(apart.shards.place(12, 13), 2);
  EXPECT_FALSE(Held(whole, others, 2 * 4, 4).inside) << "one of them is not there";
  EXPECT_FALSE(Held(Compact(), shards, 2 * 4, 4).inside)
      << "who reads nothing has its shards apart";
}

TEST(Runs, HoldersHaveAllOfAPiece) {
  const std::vector<Shard> list{{2, 0, 10}, {0, 0, 4}, {1, 3, 10}, {0, 6, 10}};
  EXPECT_EQ(holdersOf(list, {9, 0, 3}), (std::vector<uint32_t>{2, 0}));
  EXPECT_EQ(holdersOf(list, {9, 6, 8}), (std::vector<uint32_t>{2, 1, 0}));
  EXPECT_EQ(holdersOf(list, {9, 3, 5}), (std::vector<uint32_t>{2, 1}));
}
