// Selections of nodes to rent.
#include "zorse/Planning/Rent.h"

#include <gtest/gtest.h>

using namespace zorse::planning;

TEST(Rent, SelectionsNameEveryOffer) {
  for (const size_t count : {1, 3, 8, 30}) { // 30: too many for all combinations
    std::vector<Offer> offers(count);
    for (Offer &offer : offers) {
      offer.nodes.assign(4, {0});
      offer.price = 1;
    }
    const auto selections = selectionsOf(offers, 0, 64);
    EXPECT_FALSE(selections.empty());
    EXPECT_LE(selections.size(), std::max<size_t>(64, 2 * count + 1));
    for (const std::vector<size_t> &selection : selections) {
      ASSERT_EQ(selection.size(), count);
      for (const size_t nodes : selection)
        EXPECT_LE(nodes, 4U);
    }
    for (const std::vector<size_t> &selection : selectionsOf(offers, 4, 64)) {
      size_t nodes = 0;
      for (const size_t each : selection)
        nodes += each;
      EXPECT_LE(nodes, 4U);
      EXPECT_GE(nodes, 1U);
    }
  }
}
