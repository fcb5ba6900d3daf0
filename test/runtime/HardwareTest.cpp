// What ranks find where they run, against what the bundle was compiled for.
#include "zorse/runtime/Hardware.h"
#include "TemporaryFolder.h"
#include "TwoDevices.h"

#include <gtest/gtest.h>

using namespace zorse::runtime;
using namespace zorse::runtime::test;

namespace {

class HardwareTest : public ::testing::Test {
protected:
  HardwareTest() : two(folder.path("two.zorse")) {
    RankFacts facts;
    facts.host = "h1";
    facts.processor = "x86-64-v3";
    facts.cores = 4;
    facts.memory = uint64_t(1) << 30;
    facts.bundle = "b";
    facts.run = "steps=3";
    ranks = {facts, facts};
    two.bundle.bodies.set_arch("x86-64-v3");
  }

  std::string check() {
    Status status = checkHardware(two.bundle, ranks, &note);
    return status.failed() ? status.message() : "";
  }

  TemporaryFolder folder;
  TwoDevices two;
  std::vector<RankFacts> ranks;
  std::string note;
};

TEST_F(HardwareTest, WhatFitsIsAccepted) {
  EXPECT_EQ(check(), "");
  EXPECT_EQ(note, "");
}

TEST_F(HardwareTest, FactsOfThisProcessSurviveTheWire) {
  RankFacts facts = factsOfThisProcess();
  EXPECT_GT(facts.cores, 0);
  EXPECT_GT(facts.memory, uint64_t(64) << 20);
  EXPECT_FALSE(facts.host.empty());
  Result<RankFacts> back = decodeFacts(encodeFacts(facts));
  ASSERT_FALSE(back.failed());
  EXPECT_EQ(encodeFacts(*back), encodeFacts(facts));
  EXPECT_TRUE(decodeFacts("{\"host\": 3}").failed());
  EXPECT_TRUE(decodeFacts("").failed());
  EXPECT_TRUE(decodeFacts(R"({"host": "h", "processor": "p", "cores": 1e300, "memory": 1, "bundle": "b", "run": "r"})").failed());
}

TEST_F(HardwareTest, EveryMismatchIsListed) {
  ranks[1].processor = "x86-64-v2";
  ranks[1].bundle = "c";
  ranks[1].run = "steps=4";
  std::string message = check();
  for (const char *part : {"rank 1 (device beta, host h1)", "for x86-64-v3, this processor is x86-64-v2", "has bundle c, rank 0 has b",
                           "with steps=4, rank 0 with steps=3"})
    EXPECT_NE(message.find(part), std::string::npos) << part << " is not in:\n" << message;
}

TEST_F(HardwareTest, ProcessorsOfAnotherFamilyDoNotRunX86) {
  ranks[0].processor = "aarch64";
  EXPECT_NE(check().find("this processor is aarch64"), std::string::npos);
}

TEST_F(HardwareTest, MemoryCountsByHost) {
  uint64_t planned[2] = {0, 0};
  for (int r = 0; r < 2; ++r)
    for (const zorse::bundle::Arena &arena : two.bundle.programs[r].arenas())
      planned[r] += arena.bytes();
  ranks[0].memory = ranks[1].memory = std::max(planned[0], planned[1]);
  EXPECT_NE(check().find("plan"), std::string::npos);
  ranks[1].host = "h2";
  EXPECT_EQ(check(), "");
}

TEST_F(HardwareTest, RanksMustBeAsManyAsDevices) {
  ranks.pop_back();
  EXPECT_NE(check().find("for 2 devices, the job has 1 ranks"), std::string::npos);
}

TEST_F(HardwareTest, MoreThreadsThanCoresIsANote) {
  ranks[0].cores = ranks[1].cores = 1;
  EXPECT_EQ(check(), "");
  EXPECT_NE(note.find("has 1 cores for devices with 3 threads"), std::string::npos) << note;
}

} // namespace
