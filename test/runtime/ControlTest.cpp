// Tests ranks and a coordinator over sockets: exchanges, reports, orderly leaving, early stops,
// failures that ranks report.
#include "ControlRig.h"

#include <atomic>

using namespace zorse::runtime;
using namespace zorse::runtime::test;

namespace {

TEST(Control, ExchangesInRankOrder) {
  Rig rig(4);
  rig.each([](uint32_t rank, Member &member) {
    EXPECT_EQ(member.rank(), rank);
    EXPECT_EQ(member.size(), 4u);
    EXPECT_EQ(member.generation(), 1u);
    for (int round = 0; round < 20; ++round) {
      Result<std::vector<std::string>> all = member.allGatherBytes(
          "round " + std::to_string(round), std::string(rank, 'x') + std::to_string(round));
      ASSERT_FALSE(all.failed()) << all.message();
      ASSERT_EQ(all->size(), 4u);
      for (uint32_t r = 0; r < 4; ++r)
        EXPECT_EQ((*all)[r], std::string(r, 'x') + std::to_string(round));
    }
    member.leave();
  });
  EXPECT_TRUE(rig.coordinator->waitUntilOver(5 * patience()));
  EXPECT_FALSE(rig.coordinator->failure());
  rig.members.clear();
  for (Ear &ear : rig.ears)
    EXPECT_EQ(ear.verdicts(), 0u);
}

TEST(Control, ExchangesOfDifferentNamesAtOnce) {
  Rig rig(3);
  rig.each([](uint32_t rank, Member &member) {
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < 8; ++i) // every rank begins with a different name
      threads.emplace_back([&, name = (i + 3 * rank) % 8] {
        Result<std::vector<std::string>> all =
            member.allGatherBytes(std::to_string(name), std::to_string(name * 10 + rank));
        ASSERT_FALSE(all.failed()) << all.message();
        for (uint32_t r = 0; r < 3; ++r)
          EXPECT_EQ((*all)[r], std::to_string(name * 10 + r));
      });
    for (std::thread &thread : threads)
      thread.join();
    EXPECT_TRUE(member.allGatherBytes("3", "again").failed()); // a name can be used once
  });
}

TEST(Control, ExchangesOfManyMegabytes) {
  Rig rig(3);
  rig.each([](uint32_t rank, Member &member) {
    for (int round = 0; round < 3; ++round) {
      std::string mine(size_t(rank == 1 ? 15 : 3) << 20, char('a' + rank + round));
      Result<std::vector<std::string>> all =
          member.allGatherBytes("large " + std::to_string(round), mine);
      ASSERT_FALSE(all.failed()) << all.message();
      for (uint32_t r = 0; r < 3; ++r)
        EXPECT_TRUE((*all)[r] == std::string(size_t(r == 1 ? 15 : 3) << 20, char('a' + r + round)));
    }
    Result<std::vector<std::string>> tooLarge =
        member.allGatherBytes("too large", std::string(size_t(17) << 20, 'x'));
    ASSERT_TRUE(tooLarge.failed());
    EXPECT_TRUE(contains(tooLarge.message(), "at most"));
    EXPECT_FALSE(member.allGatherBytes("empty", "").failed());
  });
}

TEST(Control, ReportsArriveInOrderAndBeforeLaterExchanges) {
  Rig rig(4);
  rig.each([&](uint32_t rank, Member &member) {
    for (int i = 0; i < 200; ++i)
      member.report(std::to_string(rank) + ":" + std::to_string(i));
    ASSERT_FALSE(member.allGatherBytes("after", "").failed());
    if (rank != 0)
      return;
    std::vector<std::string> reports = rig.ears[0].reports();
    EXPECT_EQ(reports.size(), 800u);
    std::vector<int> next(4);
    for (const std::string &report : reports) {
      int from = report[0] - '0';
      EXPECT_EQ(report, std::to_string(from) + ":" + std::to_string(next[size_t(from)]++));
    }
  });
  EXPECT_TRUE(rig.ears[1].reports().empty());
}

TEST(Control, ReportsFromBeforeRankZeroJoinedAreKept) {
  auto coordinator = must(Coordinator::start(coordinatorOptions(2)));
  auto early = must(Member::join(memberOptions(1, 2, coordinator->port())));
  early->report("one");
  early->report("two");
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  Ear ear;
  MemberOptions zero = memberOptions(0, 2, coordinator->port());
  ear.attach(zero);
  auto late = must(Member::join(zero));
  std::thread other([&] { EXPECT_FALSE(early->allGatherBytes("x", "").failed()); });
  EXPECT_FALSE(late->allGatherBytes("x", "").failed());
  other.join();
  EXPECT_EQ(ear.reports(), (std::vector<std::string>{"one", "two"}));
}

TEST(Control, FailureOfARankReachesAllOnceWithItsOwnWords) {
  Rig rig(4);
  std::atomic<int> failedExchanges = 0;
  rig.each([&](uint32_t rank, Member &member) {
    if (rank == 2) {
      Failure mine;
      mine.message = "disk full";
      mine.where = "instruction 17 (snapshot) of step 4";
      mine.exitCode = 3;
      Failure rootCause = member.fail(mine);
      EXPECT_EQ(rootCause.rank, 2u);
      EXPECT_EQ(rootCause.exitCode, 3);
      return;
    }
    Result<std::vector<std::string>> all = member.allGatherBytes("never", "");
    ASSERT_TRUE(all.failed());
    EXPECT_TRUE(contains(all.message(), "disk full"));
    ++failedExchanges;
    EXPECT_FALSE(member.beginIteration(7));
  });
  EXPECT_EQ(failedExchanges, 3);
  EXPECT_TRUE(rig.coordinator->waitUntilOver(5 * patience()));
  ASSERT_TRUE(rig.coordinator->failure());
  EXPECT_EQ(rig.coordinator->failure()->message,
            "rank 2 (device cpu:2), instruction 17 (snapshot) of step 4: disk full");
  rig.members.clear();
  for (Ear &ear : rig.ears) {
    EXPECT_EQ(ear.verdicts(), 1u);
    EXPECT_EQ(ear.verdict().message,
              "rank 2 (device cpu:2), instruction 17 (snapshot) of step 4: disk full");
  }
}

TEST(Control, EarlyStopAtTheHighestStepEntered) {
  Rig rig(3);
  for (uint64_t step = 1; step <= 5; ++step)
    EXPECT_TRUE(rig.members[0]->beginIteration(step));
  EXPECT_TRUE(rig.members[1]->beginIteration(1)); // rank 2 has entered no step
  rig.members[1]->requestStop();
  rig.members[1]->requestStop();
  rig.coordinator->requestStop();
  std::vector<uint64_t> last(3);
  rig.each([&](uint32_t rank, Member &member) {
    last[rank] = rank == 0 ? 5 : rank == 1 ? 1 : 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    while (member.beginIteration(last[rank] + 1))
      ++last[rank];
  });
  EXPECT_EQ(last[1], last[0]);
  EXPECT_EQ(last[2], last[0]);
  EXPECT_GE(last[0], 5u);
}

} // namespace
