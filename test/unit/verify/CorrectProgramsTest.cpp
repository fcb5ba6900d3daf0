// Tests that correct programs are accepted: serial programs of handwritten plans.
#include "VerifyTestSupport.h"

#include <gtest/gtest.h>

using namespace zorse;
using namespace zorse::test;

TEST(CorrectPrograms, OneDevice) {
  EXPECT_EQ(Case({}, oneDevice()).text(), "");
  EXPECT_EQ(Case({}, oneDeviceTwoCells()).text(), "");
}

TEST(CorrectPrograms, Pipeline) { EXPECT_EQ(Case({}, pipeline()).text(), ""); }

TEST(CorrectPrograms, DataParallelWithUnevenShards) {
  EXPECT_EQ(Case({}, dataParallel(makeModel({}))).text(), "");
}

TEST(CorrectPrograms, SeveralRunsOfADevice) {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    SyntheticOptions options;
    options.seed = seed;
    EXPECT_EQ(Case(options, ownersInTurns(makeModel(options))).text(), "") << "seed " << seed;
    EXPECT_EQ(Case(options, ownersInTurns(makeModel(options), /*compact=*/true)).text(), "")
        << "seed " << seed;
  }
}

TEST(CorrectPrograms, WithoutCommit) {
  SyntheticOptions options;
  options.clipNorm = 0;
  options.moments = 0;
  EXPECT_EQ(Case(options, dataParallel(makeModel(options))).text(), "");
}

TEST(CorrectPrograms, PinwheelAndOwnersWithoutWork) {
  // Five cells without a guillotine cut; device 5 only owns state.
  SyntheticOptions options;
  options.units = 6;
  SerialPlan plan{
      9,
      6,
      {{0, 4, 0, 3, 0}, {0, 2, 3, 9, 1}, {2, 6, 6, 9, 2}, {4, 6, 0, 6, 3}, {2, 4, 3, 6, 4}},
      {{1, 5, 0, 128}, {1, 2, 128, 256}}};
  EXPECT_EQ(Case(options, plan).text(), "");
}

TEST(CorrectPrograms, ManyModels) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SyntheticOptions options;
    options.seed = seed;
    options.units = 2 + int(seed % 5);
    options.lossTerms = 1 + int(seed % 2);
    options.tied = seed % 3;
    options.moments = int(seed % 3);
    int half = options.units / 2;
    SerialPlan plan{6,
                    3,
                    {{0, half, 0, 2, 0},
                     {0, half, 2, 6, 1},
                     {half, options.units, 0, 5, 2},
                     {half, options.units, 5, 6, 0}},
                    {}};
    EXPECT_EQ(Case(options, plan).text(), "") << "seed " << seed;
  }
}

TEST(CorrectPrograms, ThreadsDoNotMatter) {
  Case broken({}, pipeline());
  broken.programs[0].mutable_instructions()->RemoveLast();
  broken.programs[1].mutable_instructions(5)->clear_waits();
  auto one = broken.findings(1), four = broken.findings(4);
  ASSERT_EQ(one.size(), four.size());
  for (size_t i = 0; i < one.size(); ++i)
    EXPECT_EQ(one[i].message, four[i].message);
}
