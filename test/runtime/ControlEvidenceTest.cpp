// Tests that the root cause of a failure does not depend on the order of the reports.
#include "control/RootCauseFinder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

using namespace zorse::control;
using namespace zorse::runtime;

namespace {

const std::vector<std::string> kDevices = {"a100:0", "a100:1", "t4:0", "t4:1"};

Failure own(uint32_t rank, const std::string &message, uint32_t peer = kNoRank,
            const std::string &where = "") {
  Failure failure;
  failure.rank = rank;
  failure.peer = peer;
  failure.message = message;
  failure.where = where;
  failure.exitCode = 1;
  return failure;
}

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

/// The verdict for events 10 ms apart, and the time of the verdict.
struct Decided {
  Failure failure;
  double at = -1;
};
Decided decide(const std::vector<std::function<void(RootCauseFinder &, double)>> &events) {
  RootCauseFinder rootCauseFinder(4, kDevices);
  double now = 1;
  for (size_t next = 0; now < 3; now += 0.01) {
    if (next < events.size())
      events[next++](rootCauseFinder, now);
    if (std::optional<Failure> rootCause = rootCauseFinder.rootCause(now))
      return {*rootCause, now - 1};
  }
  return {};
}

/// Runs `check` for every order of the events.
void inAllOrders(std::vector<std::function<void(RootCauseFinder &, double)>> events,
                 const std::function<void(const Decided &)> &check) {
  std::vector<size_t> order(events.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  do {
    std::vector<std::function<void(RootCauseFinder &, double)>> arranged;
    std::string text;
    for (size_t i : order) {
      arranged.push_back(events[i]);
      text += std::to_string(i) + " ";
    }
    SCOPED_TRACE("order " + text);
    check(decide(arranged));
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(ControlEvidence, OwnWordsAreBelievedAtOnce) {
  Decided decided =
      decide({[](RootCauseFinder &e, double now) { e.reported(own(2, "disk full"), now); }});
  EXPECT_EQ(decided.at, 0);
  EXPECT_EQ(decided.failure.message, "rank 2 (device t4:0): disk full");
  EXPECT_EQ(decided.failure.exitCode, 1);
}

TEST(ControlEvidence, BlameGivesWayToWhatThePeerSays) {
  inAllOrders(
      {[](RootCauseFinder &e, double now) {
         e.reported(own(1, "connection closed", 2, "instruction 17 (receive from t4:0)"), now);
       },
       [](RootCauseFinder &e, double now) { e.reported(own(2, "disk full"), now); },
       [](RootCauseFinder &e, double now) { e.reported(own(0, "connection closed", 1), now); }},
      [](const Decided &decided) {
        EXPECT_EQ(decided.failure.rank, 2u);
        EXPECT_TRUE(contains(decided.failure.message, "rank 2 (device t4:0): disk full"))
            << decided.failure.message;
      });
}

TEST(ControlEvidence, DeathWithAllItsSigns) {
  inAllOrders({[](RootCauseFinder &e, double now) {
                 e.reported(own(1, "connection closed", 2, "instruction 17 (receive from t4:0)"),
                            now);
               },
               [](RootCauseFinder &e, double now) {
                 e.processEnded(2, "was killed by signal 9 (Killed)", 137, true, now);
               },
               [](RootCauseFinder &e, double now) { e.closed(2, "reset", now); }},
              [](const Decided &decided) {
                EXPECT_EQ(decided.failure.cause, Failure::Died);
                EXPECT_EQ(decided.failure.rank, 2u);
                EXPECT_EQ(decided.failure.exitCode, 137);
                EXPECT_TRUE(contains(decided.failure.message,
                                     "rank 2 (device t4:0) was killed by signal 9 (Killed)"))
                    << decided.failure.message;
                EXPECT_LE(decided.at, kGraceSeconds + 0.02);
              });
}

TEST(ControlEvidence, SaysWhoNoticedAndWhere) {
  Decided decided = decide(
      {[](RootCauseFinder &e, double now) {
         e.reported(own(1, "connection closed", 2, "instruction 17 (receive from t4:0)"), now);
       },
       [](RootCauseFinder &e, double now) {
         e.processEnded(2, "killed by signal 9 (Killed)", 137, true, now);
       },
       [](RootCauseFinder &e, double now) { e.closed(2, "reset", now); }});
  EXPECT_EQ(decided.failure.message,
            "rank 2 (device t4:0) was killed by signal 9 (Killed); rank 1 (device a100:1) noticed "
            "in instruction 17 (receive from t4:0)");
  EXPECT_NEAR(decided.at, 0.02, 1e-9)
      << "certain as soon as its process has ended and its connection is closed";
}

TEST(ControlEvidence, OwnReportIsWaitedForThoughTheProcessHasEnded) {
  // The launcher may report the exit before the rank's own last message arrives.
  Decided decided =
      decide({[](RootCauseFinder &e, double now) {
                e.processEnded(2, "exited with code 1", 1, true, now);
              },
              [](RootCauseFinder &, double) {},
              [](RootCauseFinder &e, double now) { e.reported(own(2, "disk full"), now); },
              [](RootCauseFinder &e, double now) { e.closed(2, "closed", now); }});
  EXPECT_EQ(decided.failure.message, "rank 2 (device t4:0): disk full");
}

TEST(ControlEvidence, AClosedConnectionAloneIsEnoughAfterAMoment) {
  Decided decided = decide({[](RootCauseFinder &e, double now) {
    e.setWhere(2, "instruction 9 (forward) of step 3"), e.closed(2, "reset", now);
  }});
  EXPECT_NEAR(decided.at, kGraceSeconds, 0.02);
  EXPECT_EQ(decided.failure.cause, Failure::Disconnected);
  EXPECT_TRUE(contains(decided.failure.message, "rank 2 (device t4:0) is gone"))
      << decided.failure.message;
  EXPECT_TRUE(
      contains(decided.failure.message, "last heard of in instruction 9 (forward) of step 3"))
      << decided.failure.message;
}

TEST(ControlEvidence, BlameAloneIsTheVerdictAfterAMoment) {
  Decided decided = decide({[](RootCauseFinder &e, double now) {
    e.reported(own(1, "connection timed out", 2, "instruction 17"), now);
  }});
  EXPECT_NEAR(decided.at, kGraceSeconds, 0.02);
  EXPECT_EQ(decided.failure.rank, 2u) << "the one who is not reached, not the one who says so";
  EXPECT_EQ(decided.failure.exitCode, 2)
      << "a broken connection is not an error in the input: a restart may help";
  EXPECT_EQ(decided.failure.message, "rank 2 (device t4:0) is not reached any more (its process "
                                     "has died, or its network is lost): rank 1 (device "
                                     "a100:1), instruction 17, says: connection timed out");
}

TEST(ControlEvidence, BlameAloneSaysWhenTheCoordinatorHeardTheRank) {
  Decided decided = decide({[](RootCauseFinder &e, double now) {
    e.recordActivity(2, now - 2.5), e.reported(own(1, "gone", 2), now);
  }});
  EXPECT_TRUE(contains(decided.failure.message, "the coordinator heard it 2."))
      << decided.failure.message;
}

TEST(ControlEvidence, BlameOfARankThatHasFinishedSaysSo) {
  Decided decided = decide({[](RootCauseFinder &e, double now) {
    e.cannotReport(2), e.reported(own(1, "connection closed", 2), now);
  }});
  EXPECT_EQ(decided.failure.message, "rank 1 (device a100:1): connection closed; it blames rank 2 "
                                     "(device t4:0), which has finished");
}

TEST(ControlEvidence, MutualBlameIsABrokenConnection) {
  Decided decided =
      decide({[](RootCauseFinder &e, double now) { e.reported(own(1, "reset", 2), now); },
              [](RootCauseFinder &e, double now) { e.reported(own(2, "reset", 1), now); }});
  EXPECT_NEAR(decided.at, kGraceSeconds, 0.02);
  EXPECT_TRUE(contains(decided.failure.message, "the connection between them is broken"))
      << decided.failure.message;
  EXPECT_EQ(decided.failure.exitCode, 2);
}

TEST(ControlEvidence, ChainsLeadToTheirEnd) {
  inAllOrders({[](RootCauseFinder &e, double now) { e.reported(own(0, "closed", 1), now); },
               [](RootCauseFinder &e, double now) { e.reported(own(1, "closed", 2), now); },
               [](RootCauseFinder &e, double now) { e.reported(own(2, "closed", 3), now); },
               [](RootCauseFinder &e, double now) { e.closed(3, "reset", now); }},
              [](const Decided &decided) {
                EXPECT_EQ(decided.failure.rank, 3u) << decided.failure.message;
              });
}

TEST(ControlEvidence, BlameOfNobodyInParticularFindsWhoIsInTrouble) {
  inAllOrders({[](RootCauseFinder &e, double now) {
                 Failure lost = own(0, "the all-reduce was broken off");
                 lost.cause = Failure::Disconnected;
                 e.reported(lost, now);
               },
               [](RootCauseFinder &e, double now) {
                 e.processEnded(3, "was killed by signal 11 (Segmentation fault)", 139, true, now);
               },
               [](RootCauseFinder &e, double now) { e.closed(3, "reset", now); }},
              [](const Decided &decided) {
                EXPECT_EQ(decided.failure.rank, 3u);
                EXPECT_TRUE(contains(decided.failure.message, "signal 11"))
                    << decided.failure.message;
              });
}

TEST(ControlEvidence, WrongBlameGivesWayToARankInTrouble) {
  inAllOrders({[](RootCauseFinder &e, double now) { e.reported(own(0, "closed", 1), now); },
               [](RootCauseFinder &e, double now) { e.closed(3, "reset", now); }},
              [](const Decided &decided) {
                EXPECT_EQ(decided.failure.rank, 3u) << decided.failure.message;
              });
}

TEST(ControlEvidence, BeforeItJoined) {
  Decided decided = decide({[](RootCauseFinder &e, double now) {
    e.cannotReport(3), e.processEnded(3, "exited with code 1", 1, false, now);
  }});
  EXPECT_EQ(decided.at, 0);
  EXPECT_EQ(decided.failure.message,
            "rank 3 (device t4:1) exited with code 1 before it had joined");
}

} // namespace
