#include "TransportConformance.h"

using namespace zorse::runtime;
using namespace zorse::runtime::test;

INSTANTIATE_TEST_SUITE_P(Local, TransportConformance, ::testing::Values(&makeLocalTransports));

namespace {

TEST(HalfTypes, RoundTripsAndRoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    float wide = f16ToFloat(uint16_t(bits));
    if (wide == wide) {
      ASSERT_EQ(floatToF16(wide), bits);
    } else {
      ASSERT_NE(f16ToFloat(floatToF16(wide)), wide);
    }
    wide = bf16ToFloat(uint16_t(bits));
    if (wide == wide) {
      ASSERT_EQ(floatToBf16(wide), bits);
    }
  }
  EXPECT_EQ(floatToF16(1.0f + 0x1p-11f), floatToF16(1.0f)); // half-way, to even
  EXPECT_EQ(floatToF16(1.0f + 3 * 0x1p-11f), floatToF16(1.0f + 0x1p-9f));
  EXPECT_EQ(floatToF16(65520.0f), 0x7c00);
  EXPECT_EQ(floatToF16(65519.0f), 0x7bff);
  EXPECT_EQ(floatToF16(0x1p-25f), 0);
  EXPECT_EQ(floatToF16(-0x1.8p-25f), 0x8001);
  EXPECT_EQ(floatToBf16(1.0f + 0x1p-8f), floatToBf16(1.0f));
}

} // namespace
