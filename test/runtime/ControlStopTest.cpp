// Tests early stops, and jobs with random failures and stops, over sockets.
#include "ControlFailures.h"

#include "control/Sockets.h"

#include <atomic>
#include <cstdlib>
#include <random>

using namespace zorse::runtime;
using namespace zorse::runtime::test;
using zorse::control::monotonicSeconds;

namespace {

/// Long enough for a request and a decision. A rank that asks to enter a step before the request
/// reaches it may still begin the step.
double agreed() { return 0.3 * patience(); }

TEST(ControlStop, BeforeAnybodyElseHasJoined) {
  auto coordinator = must(Coordinator::start(coordinatorOptions(3)));
  auto first = must(Member::join(memberOptions(0, 3, coordinator->port())));
  for (uint64_t step = 1; step <= 3; ++step)
    EXPECT_TRUE(first->beginIteration(step));
  first->requestStop();
  sleepFor(agreed());
  EXPECT_FALSE(first->beginIteration(4));
  const uint64_t last = 3;
  auto late = must(Member::join(memberOptions(1, 3, coordinator->port())));
  for (uint64_t step = 1; step <= last; ++step)
    EXPECT_TRUE(late->beginIteration(step));
  EXPECT_FALSE(late->beginIteration(last + 1));
  coordinator->requestStop();
  auto later = must(Member::join(memberOptions(2, 3, coordinator->port())));
  EXPECT_TRUE(later->beginIteration(last));
  EXPECT_FALSE(later->beginIteration(last + 1));
}

TEST(ControlStop, BeforeTheFirstStep) {
  auto coordinator = must(Coordinator::start(coordinatorOptions(2)));
  coordinator->requestStop();
  sleepFor(0.05);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    auto member = must(Member::join(memberOptions(rank, 2, coordinator->port())));
    EXPECT_FALSE(member->beginIteration(1));
    member->leave();
  }
  EXPECT_TRUE(coordinator->waitUntilOver(5 * patience()));
  EXPECT_FALSE(coordinator->failure());
}

TEST(ControlStop, WhenSomeHaveFinishedAlready) {
  Rig rig(3);
  for (uint64_t step = 1; step <= 8; ++step)
    EXPECT_TRUE(rig.members[1]->beginIteration(step));
  rig.members[1]->leave(); // completed all 8 steps
  EXPECT_TRUE(rig.members[0]->beginIteration(1));
  rig.members[2]->requestStop();
  sleepFor(agreed());
  for (uint32_t rank : {0u, 2u}) {
    for (uint64_t step = rank == 0 ? 2 : 1; step <= 8; ++step)
      EXPECT_TRUE(rig.members[rank]->beginIteration(step))
          << "the finished rank's steps need the others";
    EXPECT_FALSE(rig.members[rank]->beginIteration(9));
  }
}

TEST(ControlStop, DeathWhileTheRanksAgree) {
  std::atomic<bool> blocked{true};
  Rig rig(3);
  rig.members[1]->setProgress([&] { // does not answer the question
    while (blocked)
      sleepFor(0.005);
    return RankProgress();
  });
  sleepFor(0.15);
  rig.members[0]->requestStop();
  std::thread entering([&] {
    for (uint64_t step = 1; rig.members[0]->beginIteration(step); ++step)
      sleepFor(0.01);
  });
  sleepFor(0.2);
  rig.members[2].reset();
  EXPECT_TRUE(contains(rig.ears[0].verdict(1 * patience()).message, "rank 2 (device cpu:2)"))
      << rig.ears[0].verdict().message;
  entering.join();
  blocked = false;
}

uint32_t schedules(uint32_t usual) {
  const char *more = std::getenv("ZORSE_CONTROL_SCHEDULES");
  return more ? uint32_t(std::max(1, std::atoi(more))) : usual;
}

/// Runs one job with a random failure. Several run in parallel.
void randomJob(uint32_t seed) {
  std::mt19937 random(seed);
  auto uniform = [&](double high) {
    return std::uniform_real_distribution<double>(0, high)(random);
  };
  uint32_t worldSize = 3 + random() % 6, culprit = random() % worldSize, fate = random() % 5,
           stopper = random() % worldSize;
  bool stop = random() % 2;
  double when = uniform(0.06);
  CoordinatorOptions options = coordinatorOptions(worldSize);
  options.times.heartbeatTimeoutSeconds = 20 * patience(); // so that a loaded machine causes no
                                                           // timeout
  if (random() % 2)
    options.rank = 0;
  Rig rig(options);
  SCOPED_TRACE("seed " + std::to_string(seed) + " fate " + std::to_string(fate) + " culprit " +
               std::to_string(culprit) + " of " + std::to_string(worldSize));
  std::vector<uint64_t> last(worldSize);
  std::atomic<uint32_t> left{0};
  rig.each([&](uint32_t rank, Member &member) {
    double begin = monotonicSeconds();
    Result<std::vector<std::string>> hello = member.allGatherBytes("hello", std::to_string(rank));
    for (uint64_t step = 1; step <= 40; ++step) {
      if (!member.beginIteration(step))
        break;
      last[rank] = step;
      sleepFor(0.0005 * (1 + (rank + seed) % 3));
      member.report(std::to_string(step));
      if (stop && rank == stopper && step == 7)
        member.requestStop();
      if (rank == culprit && monotonicSeconds() - begin > when) {
        if (fate == 0) {
          member.fail(ownError("own trouble"));
          return;
        }
        if (fate == 1) {
          rig.members[rank].reset(); // dies
          return;
        }
        if (fate == 2) { // another rank names it as the cause, then it dies
          std::thread other([&] {
            rig.members[(culprit + 1) % worldSize]->fail(blame(culprit, "instruction 3"));
          });
          sleepFor(0.01);
          rig.members[rank].reset();
          other.join();
          return;
        }
      }
    }
    if (member.allGatherBytes("end", "").failed())
      return;
    member.leave();
    ++left;
  });
  EXPECT_TRUE(rig.coordinator->waitUntilOver(10 * patience()));
  std::optional<Failure> failure = rig.coordinator->failure();
  bool dies = fate == 1 || fate == 2;
  if (failure) {
    EXPECT_LT(fate, 3u) << failure->message;
    EXPECT_EQ(failure->rank, culprit) << failure->message;
    for (uint32_t rank = 0; rank < worldSize; ++rank) {
      if (rank == culprit && dies)
        continue;
      EXPECT_EQ(rig.ears[rank].verdict().message, failure->message) << "rank " << rank;
      EXPECT_EQ(rig.ears[rank].verdicts(), 1u);
    }
  } else {
    EXPECT_EQ(left, worldSize);
    for (uint32_t rank = 0; rank < worldSize; ++rank)
      EXPECT_EQ(last[rank], last[0]);
    if (!stop)
      EXPECT_EQ(last[0], 40u);
  }
}

TEST(ControlRandom, SchedulesOfDeathsFailuresAndStops) {
  const uint32_t count = schedules(240), lanes = 12;
  std::vector<std::thread> threads;
  for (uint32_t lane = 0; lane < lanes; ++lane)
    threads.emplace_back([=] {
      for (uint32_t seed = lane; seed < count && !testing::Test::HasFailure(); seed += lanes)
        randomJob(seed);
    });
  for (std::thread &thread : threads)
    thread.join();
}

} // namespace
