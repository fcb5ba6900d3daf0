// Tests loss of ranks and of the coordinator, over sockets: the verdicts, which ranks receive them,
// and when.
#include "ControlFailures.h"

#include "control/Sockets.h"

#include <atomic>

using namespace zorse::runtime;
using namespace zorse::runtime::test;
using zorse::control::monotonicSeconds;

namespace {

TEST(ControlFault, ALostConnectionIsNamedToAllOthers) {
  Rig rig(4);
  double begin = monotonicSeconds();
  rig.members[2].reset(); // as if it had died
  for (uint32_t rank : {0u, 1u, 3u}) {
    Failure rootCause = rig.ears[rank].verdict();
    EXPECT_EQ(rootCause.cause, Failure::Disconnected);
    EXPECT_EQ(rootCause.rank, 2u);
    EXPECT_EQ(rootCause.device, "cpu:2");
    EXPECT_TRUE(contains(rootCause.message, "rank 2 (device cpu:2) is gone")) << rootCause.message;
  }
  EXPECT_LT(monotonicSeconds() - begin, 1.5 * patience());
  EXPECT_EQ(rig.ears[2].verdicts(), 0u);
  EXPECT_TRUE(rig.coordinator->waitUntilOver(5 * patience()));
}

/// The coordinator waits 0.25 s for a better report than one that names a peer. On a busy machine,
/// a report that a test sends later than that after `begin` may be too late.
bool withinGrace(double begin) { return monotonicSeconds() - begin < 0.2; }

TEST(ControlFault, TheLaunchersWordIsPreferredToBlame) {
  Rig rig(3);
  double begin = monotonicSeconds();
  std::thread survivor(
      [&] { rig.members[1]->fail(blame(2, "instruction 17 (receive from cpu:2)")); });
  sleepFor(0.03);
  rig.members[2].reset();
  rig.coordinator->processEnded(2, true, "was killed by signal 9 (Killed)", 137);
  bool inTime = withinGrace(begin);
  survivor.join();
  for (uint32_t rank : {0u, 1u}) {
    Failure rootCause = rig.ears[rank].verdict();
    EXPECT_EQ(rootCause.rank, 2u);
    if (!inTime)
      continue;
    EXPECT_EQ(rootCause.message, "rank 2 (device cpu:2) was killed by signal 9 (Killed); rank 1 "
                                 "(device cpu:1) noticed in instruction 17 (receive from cpu:2)");
    EXPECT_EQ(rootCause.cause, Failure::Died);
    EXPECT_EQ(rootCause.exitCode, 137);
  }
}

TEST(ControlFault, APeersOwnReportIsPreferredToBlame) {
  bool inTime = false;
  for (int attempt = 0; attempt < 50 && !inTime; ++attempt) {
    Rig rig(3);
    double begin = monotonicSeconds();
    std::thread survivor([&] { rig.members[1]->fail(blame(2, "instruction 17")); });
    sleepFor(0.05);
    rig.members[2]->fail(ownError("disk full"));
    inTime = withinGrace(begin);
    survivor.join();
    if (inTime)
      for (uint32_t rank : {0u, 1u, 2u})
        EXPECT_EQ(rig.ears[rank].verdict().message, "rank 2 (device cpu:2): disk full");
  }
}

TEST(ControlFault, LaterFailuresDoNotChangeTheVerdict) {
  Rig rig(3);
  rig.members[1]->fail(ownError("first"));
  rig.ears[0].verdict(), rig.ears[2].verdict();
  EXPECT_TRUE(contains(rig.members[2]->fail(ownError("second")).message, "first"));
  EXPECT_TRUE(contains(rig.members[1]->fail(ownError("third")).message, "first"));
  rig.members[0].reset();
  rig.coordinator->processEnded(0, true, "exited with code 1", 1);
  sleepFor(0.4);
  EXPECT_TRUE(contains(rig.coordinator->failure()->message, "first"));
  for (Ear &ear : rig.ears)
    EXPECT_EQ(ear.verdicts(), 1u);
}

TEST(ControlFault, ManyFailAtOnceAndAllHearTheSame) {
  Rig rig(6);
  rig.each([](uint32_t rank, Member &member) {
    member.fail(ownError("number " + std::to_string(rank)));
  });
  std::string message = rig.ears[0].verdict().message;
  EXPECT_NE(message, "");
  rig.members.clear();
  for (Ear &ear : rig.ears) {
    EXPECT_EQ(ear.verdict().message, message);
    EXPECT_EQ(ear.verdicts(), 1u);
  }
}

TEST(ControlFault, FailingFromACallbackDoesNotBlock) {
  auto coordinator = must(Coordinator::start(coordinatorOptions(2)));
  Ear ear, other;
  MemberOptions zero = memberOptions(0, 2, coordinator->port()),
                one = memberOptions(1, 2, coordinator->port());
  ear.attach(zero);
  other.attach(one);
  std::atomic<Member *> self{nullptr};
  std::atomic<bool> returned{false};
  zero.reported = [&](const std::string &) {
    while (!self)
      sleepFor(0.001);
    EXPECT_EQ(self.load()->fail(ownError("the log's disk is full")).message,
              "the log's disk is full");
    returned = true;
  };
  auto first = must(Member::join(zero)), second = must(Member::join(one));
  self = first.get();
  second->report("line");
  EXPECT_EQ(other.verdict().message, "rank 0 (device cpu:0): the log's disk is full");
  EXPECT_EQ(ear.verdict().message, "rank 0 (device cpu:0): the log's disk is full");
  EXPECT_TRUE(returned);
}

TEST(ControlFault, DeathAfterSomeHaveLeft) {
  Rig rig(4);
  rig.members[0]->leave();
  rig.members[3]->leave();
  rig.members[3].reset(); // it has left in order: no failure
  sleepFor(0.4);
  EXPECT_FALSE(rig.coordinator->failure());
  rig.members[2].reset();
  EXPECT_TRUE(contains(rig.ears[1].verdict().message, "rank 2"));
  EXPECT_TRUE(rig.coordinator->waitUntilOver(5 * patience()));
  EXPECT_EQ(rig.ears[0].verdicts() + rig.ears[3].verdicts(), 0u) << "they have left";
  EXPECT_EQ(rig.members[0]->fail(ownError("after goodbye")).message, "after goodbye");
  EXPECT_TRUE(rig.members[0]->allGatherBytes("after goodbye", "").failed());
  EXPECT_FALSE(rig.members[0]->beginIteration(1));
}

TEST(ControlFault, ACrashAfterTheGoodbyeIsAFailure) {
  Rig rig(2);
  rig.members[1]->leave();
  rig.members[1].reset();
  rig.coordinator->processEnded(1, true, "was killed by signal 11 (Segmentation fault)", 139);
  EXPECT_EQ(
      rig.ears[0].verdict().message,
      "rank 1 (device cpu:1) was killed by signal 11 (Segmentation fault) after it had finished");
}

TEST(ControlFault, AnEndWithoutAGoodbyeIsAFailureWhateverTheExitCode) {
  bool inTime = false;
  for (int attempt = 0; attempt < 50 && !inTime; ++attempt) {
    Rig rig(2);
    double begin = monotonicSeconds();
    rig.members[1].reset();
    rig.coordinator->processEnded(1, false, "exited with code 0", 0);
    inTime = withinGrace(begin);
    if (inTime)
      EXPECT_TRUE(contains(rig.ears[0].verdict().message,
                           "rank 1 (device cpu:1) exited with code 0 without saying goodbye"))
          << rig.ears[0].verdict().message;
  }
}

TEST(ControlFault, NobodyWaitsForARankThatHasLeft) {
  Rig rig(3);
  rig.members[1]->leave();
  Result<std::vector<std::string>> all = rig.members[0]->allGatherBytes("acks", "");
  ASSERT_TRUE(all.failed());
  EXPECT_EQ(all.message(), "rank 1 (device cpu:1) ended without taking part in the exchange "
                           "'acks', in which rank 0 (device cpu:0) waits for it");
}

TEST(ControlFault, ProcessesThatNeverJoined) {
  CoordinatorOptions options = coordinatorOptions(2);
  options.devices = {"a100:0", "t4:0"};
  {
    auto coordinator = must(Coordinator::start(options));
    Ear ear;
    MemberOptions zero = memberOptions(0, 2, coordinator->port());
    ear.attach(zero);
    auto member = must(Member::join(zero));
    coordinator->processEnded(1, true, "exited with code 1", 1);
    EXPECT_EQ(ear.verdict().message,
              "rank 1 (device t4:0) exited with code 1 before it had joined");
    EXPECT_EQ(ear.verdict().exitCode, 1);
  }
  auto coordinator = must(Coordinator::start(options)); // as with --help
  coordinator->processEnded(0, false, "exited with code 0", 0);
  coordinator->processEnded(1, false, "exited with code 0", 0);
  EXPECT_TRUE(coordinator->waitUntilOver(5 * patience()));
  EXPECT_FALSE(coordinator->failure());
}

TEST(ControlFault, RanksConcludeByThemselvesThatTheLauncherIsGone) {
  Rig rig(3);
  std::vector<std::thread> waiting;
  for (uint32_t rank = 0; rank < 2; ++rank)
    waiting.emplace_back([&, rank] {
      EXPECT_TRUE(contains(rig.members[rank]->allGatherBytes("never", "").message(),
                           "the launcher at 127.0.0.1:"));
    });
  sleepFor(0.05);
  double begin = monotonicSeconds();
  rig.coordinator.reset();
  for (uint32_t rank = 0; rank < 3; ++rank) {
    Failure rootCause = rig.ears[rank].verdict();
    EXPECT_EQ(rootCause.rank, kNoRank);
    EXPECT_EQ(rootCause.cause, Failure::Died);
    EXPECT_TRUE(contains(rootCause.message, "the launcher at 127.0.0.1:")) << rootCause.message;
    EXPECT_TRUE(contains(rootCause.message, "has died")) << rootCause.message;
  }
  EXPECT_LT(monotonicSeconds() - begin, 1 * patience());
  for (std::thread &thread : waiting)
    thread.join();
}

TEST(ControlFault, TheHostOfTheCoordinatorIsNamedWhenItDies) {
  CoordinatorOptions options = coordinatorOptions(3);
  options.rank = 0;
  Rig rig(options);
  rig.members[2]->setProgress([] {
    return RankProgress{1, true, "is in instruction 17 (receive from cpu:0) of step 4", 4, 17};
  });
  rig.coordinator.reset();
  for (uint32_t rank : {1u, 2u}) {
    Failure rootCause = rig.ears[rank].verdict();
    EXPECT_EQ(rootCause.rank, 0u);
    EXPECT_EQ(rootCause.cause, Failure::Died);
    EXPECT_TRUE(
        contains(rootCause.message, "rank 0 (device cpu:0), which holds the coordinator, has died"))
        << rootCause.message;
  }
  EXPECT_TRUE(
      contains(rig.ears[2].verdict().message,
               "rank 2 (device cpu:2) noticed in instruction 17 (receive from cpu:0) of step 4"))
      << rig.ears[2].verdict().message;
}

TEST(ControlFault, TheHostOfTheCoordinatorIsToldLast) {
  // Its process may end as soon as it has the verdict.
  for (int round = 0; round < 20; ++round) {
    CoordinatorOptions options = coordinatorOptions(5);
    options.rank = 0;
    Rig rig(options);
    Failure rootCause = rig.members[round % 5]->fail(ownError("disk full"));
    EXPECT_TRUE(contains(rootCause.message, "disk full"));
    rig.ears[0].verdict();
    for (uint32_t rank = 1; rank < 5; ++rank) {
      EXPECT_TRUE(contains(rig.ears[rank].verdict().message, "disk full"));
      EXPECT_LE(rig.ears[rank].at(),
                rig.ears[0].at() + std::chrono::milliseconds(patience() > 1 ? 500 : 20))
          << "rank " << rank; // it confirmed before its callback ran
    }
    EXPECT_TRUE(rig.coordinator->waitUntilOver(5 * patience()));
  }
}

TEST(ControlFault, VerdictsOvertakeLargeExchanges) {
  std::atomic<bool> blocked{false};
  CoordinatorOptions options = coordinatorOptions(3);
  options.times.heartbeatTimeoutSeconds = 30 * patience();
  Rig rig(options);
  rig.members[1]->setProgress([&] { // its control thread does not read in this time
    while (blocked)
      sleepFor(0.005);
    return RankProgress();
  });
  std::vector<std::thread> exchanging;
  exchanging.emplace_back(
      [&] { EXPECT_TRUE(rig.members[1]->allGatherBytes("large", "").failed()); });
  sleepFor(0.1 * patience());
  blocked = true;
  sleepFor(0.1);
  for (uint32_t rank : {0u, 2u}) // complete for all but the rank that does not read
    exchanging.emplace_back([&, rank] {
      EXPECT_FALSE(rig.members[rank]->allGatherBytes("large", std::string(14 << 20, 'x')).failed());
    });
  exchanging[1].join(), exchanging[2].join();
  std::thread failing([&] { rig.members[2]->fail(ownError("disk full")); });
  EXPECT_TRUE(contains(rig.ears[0].verdict(5 * patience()).message, "disk full"))
      << "the slow rank delays the others";
  blocked = false;
  EXPECT_TRUE(contains(rig.ears[1].verdict().message, "disk full"));
  failing.join();
  exchanging[0].join();
}

TEST(ControlFault, AStallIsNamed) {
  CoordinatorOptions options = coordinatorOptions(3);
  options.times.watchdogTimeoutSeconds = 0.6;
  Rig rig(options);
  rig.each([](uint32_t rank, Member &member) {
    member.setProgress([rank] {
      return RankProgress{7, rank != 0,
                          "is in instruction " + std::to_string(20 - rank) + " (send) of step 4", 4,
                          20 - rank};
    });
  });
  Failure rootCause = rig.ears[0].verdict();
  EXPECT_EQ(rootCause.cause, Failure::Stalled);
  EXPECT_EQ(rootCause.rank, 2u);
  EXPECT_EQ(rootCause.message, "no rank has made progress for 0.6 s: the earliest unfinished "
                               "instruction is of step 4, where rank 2 (device cpu:2) "
                               "is in instruction 18 (send) of step 4");
}

TEST(ControlFault, AnIdleJobGoesOn) {
  CoordinatorOptions options = coordinatorOptions(3);
  options.times.heartbeatTimeoutSeconds = 1.5;
  Rig rig(options);
  sleepFor(3); // only heartbeats, in both directions
  EXPECT_FALSE(rig.coordinator->failure());
  rig.each([](uint32_t, Member &member) {
    EXPECT_FALSE(member.allGatherBytes("still there", "").failed());
  });
}

TEST(ControlFault, AMissingHeartbeatIsALostRank) {
  std::atomic<bool> blocked{true};
  CoordinatorOptions options = coordinatorOptions(3);
  options.times.heartbeatTimeoutSeconds = 1;
  Rig rig(options);
  rig.members[1]->setProgress([&] {
    while (blocked)
      sleepFor(0.005);
    return RankProgress();
  });
  double begin = monotonicSeconds();
  Failure rootCause = rig.ears[2].verdict();
  EXPECT_EQ(rootCause.cause, Failure::MissedHeartbeats);
  EXPECT_EQ(rootCause.rank, 1u);
  EXPECT_TRUE(contains(rootCause.message,
                       "rank 1 (device cpu:1) is lost: nothing was heard of it for 1.0 s"))
      << rootCause.message;
  EXPECT_GT(monotonicSeconds() - begin, 0.4);
  EXPECT_LT(monotonicSeconds() - begin, 2 * patience());
  EXPECT_TRUE(rig.coordinator->waitUntilOver(5 * patience()));
  blocked = false;
  EXPECT_TRUE(
      contains(rig.ears[1].verdict().message, "This is that rank: it was stopped or starved for"))
      << rig.ears[1].verdict().message;
}

TEST(ControlFault, LateRanksHearWhyAndNobodyWaitsLonger) {
  auto coordinator = must(Coordinator::start(coordinatorOptions(3)));
  coordinator->waitForLateRanks(20 * patience()); // no failure yet: returns immediately
  std::atomic<double> waited{-1};
  double begin = monotonicSeconds();
  {
    auto first = must(Member::join(memberOptions(1, 3, coordinator->port())));
    first->fail(ownError("no such file"));
  }
  std::thread host([&] {
    coordinator->waitForLateRanks(20 * patience());
    waited = monotonicSeconds() - begin;
  });
  for (uint32_t rank : {0u, 2u}) {
    sleepFor(0.1);
    EXPECT_LT(waited, 0) << "before rank " << rank << " came";
    std::string error = Member::join(memberOptions(rank, 3, coordinator->port())).message();
    EXPECT_TRUE(contains(error, "the job has failed already: rank 1 (device cpu:1)") &&
                contains(error, "no such file"))
        << error;
  }
  host.join();
  EXPECT_LT(waited, 10 * patience());
}

TEST(ControlFault, NobodyWaitsForRanksThatWereGivenUp) {
  CoordinatorOptions options = coordinatorOptions(3);
  options.times.joinSeconds = 0.3;
  auto coordinator = must(Coordinator::start(options));
  auto first = must(Member::join(memberOptions(0, 3, coordinator->port())));
  EXPECT_TRUE(first->allGatherBytes("hello", "").failed());
  double begin = monotonicSeconds();
  coordinator->waitForLateRanks(20 * patience());
  EXPECT_LT(monotonicSeconds() - begin, 10 * patience());
}

} // namespace
