// Tests the coordinator's decisions under random schedules in simulated time. Ranks join, work,
// agree on an early stop, leave, fail, die and stop sending. Every message has a random delay;
// messages on one connection stay in order.
#include "control/Job.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <random>

using namespace zorse::control;
using namespace zorse::runtime;

namespace {

constexpr double kTick = 0.002;

/// A rank as the coordinator observes it.
struct SimulatedRank {
  enum {
    Absent,
    Working,
    Left,
    Dead,
    Silent,
    Ended
  } state = Absent; ///< Ended: it has received the verdict
  double joinsAt = 0, nextStepAt = 0, stepSeconds = 0.01;
  uint64_t highest = 0;
  bool asked = false, saysGoodbye = false, contributed = false, exchanged = false;
  std::optional<uint64_t> last;
  std::vector<Failure> verdicts;
  double upAt = 0, downAt = 0; ///< arrival time of the last message in each direction
};

class Simulation final : public Outbox {
public:
  Simulation(uint32_t seed)
      : random_(seed), worldSize_(3 + random_() % 6), ranks(worldSize_),
        job_({worldSize_, times(), kNoRank, {}}, *this) {
    steps = 3 + random_() % 40;
    for (SimulatedRank &rank : ranks) {
      rank.joinsAt = uniform(0, 0.3);
      rank.stepSeconds = uniform(0.002, 0.02);
    }
  }

  static ControlTimes times() {
    ControlTimes times;
    times.heartbeatSeconds = 0.05;
    times.heartbeatTimeoutSeconds = 0.5;
    times.joinSeconds = 1;
    times.watchdogTimeoutSeconds = 2;
    return times;
  }

  double uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }
  bool chance(double p) { return uniform(0, 1) < p; }
  uint32_t anyRank() { return uint32_t(random_() % worldSize_); }
  uint32_t world() const { return worldSize_; }
  Job &job() { return job_; }
  double now() const { return now_; }

  void at(double when, std::function<void()> what) {
    events_.push_back({when, order_++, std::move(what)});
  }

  /// Sends a message from a rank to the coordinator.
  void up(uint32_t rank, Message message) {
    double when = ranks[rank].upAt = std::max(ranks[rank].upAt, now_ + uniform(0, 0.02));
    at(when, [this, rank, message] {
      if (!job_.isConnected(rank))
        return;
      job_.recordActivity(rank, now_);
      job_.received(rank, message, now_);
    });
  }

  void send(uint32_t rank, const SharedFrame &frame, bool) override {
    Message message;
    ASSERT_TRUE(
        message.ParseFromArray(frame->data() + kLengthBytes, int(frame->size() - kLengthBytes)));
    double when = ranks[rank].downAt = std::max(ranks[rank].downAt, now_ + uniform(0, 0.02));
    at(when, [this, rank, message] { receive(rank, message); });
  }
  void giveUp(uint32_t) override {}

  void run(double until) {
    for (; now_ < until; now_ += kTick) {
      std::vector<Event> due;
      auto later = std::stable_partition(events_.begin(), events_.end(),
                                         [&](const Event &event) { return event.when > now_; });
      due.assign(later, events_.end());
      events_.erase(later, events_.end());
      std::sort(due.begin(), due.end(), [](const Event &a, const Event &b) {
        return std::tie(a.when, a.order) < std::tie(b.when, b.order);
      });
      for (Event &event : due)
        event.what();
      for (uint32_t rank = 0; rank < worldSize_; ++rank)
        live(rank);
      job_.tick(now_);
    }
  }

  // ---- failures of a rank ----
  void fail(uint32_t rank, uint32_t peer, const std::string &text,
            Failure::Cause cause = Failure::OwnError) {
    if (ranks[rank].state != SimulatedRank::Working)
      return;
    Failure failure;
    failure.cause = cause;
    failure.rank = rank;
    failure.peer = peer;
    failure.message = text;
    Message message;
    *message.mutable_failed() = toMessage(failure);
    up(rank, message);
  }

  void die(uint32_t rank, bool launcherTells) {
    SimulatedRank &r = ranks[rank];
    bool connected = r.state == SimulatedRank::Working || r.state == SimulatedRank::Left ||
                     r.state == SimulatedRank::Silent;
    r.state = SimulatedRank::Dead;
    if (connected)
      at(std::max(r.upAt, now_ + uniform(0, 0.05)),
         [this, rank] { job_.closed(rank, "reset", now_); });
    if (launcherTells)
      at(now_ + uniform(0, 0.15), [this, rank] {
        job_.processEnded(rank, true, "was killed by signal 9 (Killed)", 137, now_);
      });
  }

  void requestStop(uint32_t rank) {
    if (rank == kNoRank)
      return job_.requestStop(now_);
    Message message;
    message.mutable_stop_request();
    if (ranks[rank].state == SimulatedRank::Working)
      up(rank, message);
  }

private:
  struct Event {
    double when;
    uint64_t order;
    std::function<void()> what;
  };

  void receive(uint32_t rank, const Message &message) {
    SimulatedRank &r = ranks[rank];
    if (r.state != SimulatedRank::Working)
      return;
    switch (message.what_case()) {
    case Message::kStopQuery: {
      r.asked = true;
      Message answer;
      answer.mutable_stop_answer()->set_highest(r.highest);
      up(rank, answer);
      break;
    }
    case Message::kStopDecision:
      EXPECT_FALSE(r.last) << "two decisions";
      r.last = message.stop_decision().last();
      EXPECT_LE(r.highest, *r.last) << "a rank is to stop before a step that it has begun";
      break;
    case Message::kContributions:
      r.exchanged = true;
      EXPECT_EQ(message.contributions().values_size(), int(worldSize_));
      break;
    case Message::kRootCause: {
      r.verdicts.push_back(fromMessage(message.root_cause().failure()));
      Message heard;
      heard.mutable_root_cause_acknowledged();
      up(rank, heard);
      r.state = SimulatedRank::Ended;
      at(r.upAt + uniform(0, 0.05), [this, rank] { job_.closed(rank, "closed", now_); });
      break;
    }
    case Message::kGoodbye:
      r.state = SimulatedRank::Left;
      at(now_ + uniform(0, 0.05), [this, rank] { job_.closed(rank, "closed", now_); });
      break;
    default:
      break;
    }
  }

  /// The actions of a healthy rank.
  void live(uint32_t rank) {
    SimulatedRank &r = ranks[rank];
    if (r.state == SimulatedRank::Absent && now_ >= r.joinsAt && !job_.rootCause() &&
        job_.isAbsent(rank)) {
      r.state = SimulatedRank::Working;
      r.last = job_.lastStep();
      job_.joined(rank, "cpu:" + std::to_string(rank), now_);
    }
    if (r.state != SimulatedRank::Working)
      return;
    if (int(now_ / kTick) % 25 == 0) {
      Message heartbeat;
      heartbeat.mutable_heartbeat();
      up(rank, heartbeat);
    }
    bool mayGoOn = r.last ? r.highest < *r.last : !r.asked;
    uint64_t end = r.last ? std::min(*r.last, steps) : steps;
    if (r.highest < end && mayGoOn && now_ >= r.nextStepAt) {
      ++r.highest;
      r.nextStepAt = now_ + r.stepSeconds;
    }
    if (r.highest < end || (r.asked && !r.last))
      return;
    if (!r.contributed) {
      r.contributed = true;
      Message message;
      message.mutable_contribution()->set_name("end");
      up(rank, message);
    } else if (r.exchanged && !r.saysGoodbye) {
      r.saysGoodbye = true;
      Message message;
      message.mutable_leave()->set_highest(r.highest);
      up(rank, message);
    }
  }

  std::mt19937 random_;
  const uint32_t worldSize_;

public:
  std::vector<SimulatedRank> ranks;
  uint64_t steps = 0;

private:
  Job job_;
  double now_ = 0;
  uint64_t order_ = 0;
  std::vector<Event> events_;
};

uint32_t schedules(uint32_t usual) {
  const char *more = std::getenv("ZORSE_CONTROL_SCHEDULES");
  return more ? uint32_t(std::max(1, std::atoi(more))) : usual;
}

TEST(ControlJob, RandomRunsEndTogetherAtOneStep) {
  for (uint32_t seed = 0; seed < schedules(300); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation sim(seed);
    bool stop = sim.chance(0.7);
    if (stop)
      for (int i = 0; i < 3; ++i)
        sim.at(sim.uniform(0, 0.5),
               [&] { sim.requestStop(sim.chance(0.3) ? kNoRank : sim.anyRank()); });
    sim.run(2.5);
    EXPECT_TRUE(sim.job().isOver());
    EXPECT_FALSE(sim.job().rootCause()) << sim.job().rootCause()->message;
    for (const SimulatedRank &rank : sim.ranks) {
      EXPECT_EQ(rank.state, SimulatedRank::Left);
      EXPECT_EQ(rank.highest, sim.ranks[0].highest);
      if (!stop)
        EXPECT_EQ(rank.highest, sim.steps);
    }
    if (testing::Test::HasFailure())
      return;
  }
}

TEST(ControlJob, RandomTroubleEndsInOneVerdictAboutItsCause) {
  for (uint32_t seed = 0; seed < schedules(600); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation sim(seed + 100000);
    uint32_t culprit = sim.anyRank(), kind = sim.anyRank() % 4;
    double when = sim.uniform(0.31, 0.8); // all have joined
    sim.steps = 10000;                    // no rank leaves earlier
    if (sim.chance(0.3))
      sim.at(when - sim.uniform(0, 0.02),
             [&] { sim.requestStop(sim.chance(0.5) ? kNoRank : sim.anyRank()); });
    sim.at(when, [&] {
      switch (kind) {
      case 0:
        sim.fail(culprit, kNoRank, "disk full");
        break;
      case 1:
        sim.die(culprit, /*launcherTells=*/false);
        break;
      case 2:
        sim.die(culprit, /*launcherTells=*/true);
        break;
      case 3:
        sim.ranks[culprit].state = SimulatedRank::Silent;
        break;
      }
    });
    if (kind != 3) // other ranks report the culprit, or a rank that failed because of it
      for (uint32_t rank = 0; rank < sim.world(); ++rank) {
        if (rank == culprit || !sim.chance(0.6))
          continue;
        uint32_t blamed = rank > 0 && rank - 1 != culprit && sim.chance(0.3) ? rank - 1 : culprit;
        bool knows = sim.chance(0.8);
        sim.at(when + sim.uniform(0, 0.1), [&sim, rank, blamed, knows] {
          sim.fail(rank, knows ? blamed : kNoRank, "a connection ended",
                   knows ? Failure::OwnError : Failure::Disconnected);
        });
      }
    sim.at(when + 0.6,
           [&] { sim.fail((culprit + 1) % sim.world(), kNoRank, "too late to matter"); });
    sim.run(when + 0.2 + 2 * kGraceSeconds);
    if (kind != 3)
      EXPECT_TRUE(sim.job().rootCause()) << "not in time";
    sim.run(3);
    ASSERT_TRUE(sim.job().rootCause()) << "kind " << kind;
    EXPECT_EQ(sim.job().rootCause()->rank, culprit) << sim.job().rootCause()->message;
    EXPECT_TRUE(sim.job().isOver());
    for (uint32_t rank = 0; rank < sim.world(); ++rank) {
      bool alive = rank != culprit || kind == 0;
      EXPECT_EQ(sim.ranks[rank].verdicts.size(), alive ? 1u : 0u) << "rank " << rank;
      for (const Failure &rootCause : sim.ranks[rank].verdicts)
        EXPECT_EQ(rootCause.message, sim.job().rootCause()->message);
    }
    if (testing::Test::HasFailure())
      return;
  }
}

TEST(ControlJob, RandomDeathsAtAnyTime) {
  // Deaths also occur before joining, while the ranks agree to stop and after some ranks have left.
  // Either the job was over for that rank, or all ranks learn of the death.
  uint32_t failed = 0;
  for (uint32_t seed = 0; seed < schedules(600); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation sim(seed + 200000);
    uint32_t culprit = sim.anyRank();
    bool wasLeft = false, overBefore = false;
    if (sim.chance(0.5))
      sim.at(sim.uniform(0, 0.5),
             [&] { sim.requestStop(sim.chance(0.5) ? kNoRank : sim.anyRank()); });
    sim.at(sim.uniform(0, 0.8), [&] {
      wasLeft = sim.ranks[culprit].state == SimulatedRank::Left;
      overBefore = sim.job().isOver();
      sim.die(culprit, /*launcherTells=*/true);
    });
    sim.run(3);
    ASSERT_TRUE(sim.job().rootCause());
    EXPECT_EQ(sim.job().rootCause()->rank, culprit) << sim.job().rootCause()->message;
    EXPECT_TRUE(sim.job().isOver());
    failed += !wasLeft;
    for (const SimulatedRank &rank : sim.ranks) {
      EXPECT_TRUE(overBefore || rank.state == SimulatedRank::Left ||
                  rank.state == SimulatedRank::Dead || rank.state == SimulatedRank::Ended ||
                  rank.state == SimulatedRank::Absent);
      EXPECT_EQ(rank.verdicts.size(), rank.state == SimulatedRank::Ended ? 1u : 0u);
    }
    if (testing::Test::HasFailure())
      return;
  }
  EXPECT_GT(failed, 10u);
}

TEST(ControlJob, AnExchangeDoesNotWaitForRanksThatHaveLeft) {
  struct Quiet final : Outbox {
    void send(uint32_t, const SharedFrame &, bool) override {}
    void giveUp(uint32_t) override {}
  } quiet;
  Job job({2, Simulation::times(), kNoRank, {}}, quiet);
  job.joined(0, "a", 0);
  job.joined(1, "b", 0);
  Message leave, contribution;
  leave.mutable_leave();
  contribution.mutable_contribution()->set_name("acks");
  job.received(1, leave, 0.1);
  EXPECT_FALSE(job.rootCause());
  job.received(0, contribution, 0.2);
  ASSERT_TRUE(job.rootCause());
  EXPECT_EQ(job.rootCause()->message, "rank 1 (device b) ended without taking part in the exchange "
                                      "'acks', in which rank 0 (device a) waits for it");
}

TEST(ControlJob, ACoordinatorThatWasStoppedDoesNotWaitLongerForRanksToJoin) {
  struct Quiet final : Outbox {
    void send(uint32_t, const SharedFrame &, bool) override {}
    void giveUp(uint32_t) override {}
  } quiet;
  Job job({2, Simulation::times(), 0, {}}, quiet);
  double limit = Simulation::times().joinSeconds;
  job.joined(0, "a", 0);
  job.tick(0.1, nullptr, limit - 0.1);
  EXPECT_FALSE(job.rootCause());
  // Little time on its own clock, but the other ranks have given up.
  for (double now = 0.2; now < 1 && !job.rootCause(); now += 0.05) {
    job.recordActivity(0, now);
    job.tick(now, nullptr, now + limit);
  }
  ASSERT_TRUE(job.rootCause());
  EXPECT_EQ(job.rootCause()->cause, Failure::NotJoined);
  EXPECT_EQ(job.rootCause()->rank, 1u);
}

TEST(ControlJob, TheHostOfTheCoordinatorIsToldWhenTheOthersKnow) {
  struct Recorder final : Outbox {
    void send(uint32_t rank, const SharedFrame &frame, bool) override {
      Message message;
      ASSERT_TRUE(
          message.ParseFromArray(frame->data() + kLengthBytes, int(frame->size() - kLengthBytes)));
      if (message.has_root_cause())
        told.push_back(rank);
    }
    void giveUp(uint32_t) override {}
    std::vector<uint32_t> told;
  };
  for (bool confirmed : {true, false}) {
    Recorder recorder;
    Job job({3, Simulation::times(), /*host=*/0, {}}, recorder);
    for (uint32_t rank = 0; rank < 3; ++rank)
      job.joined(rank, "", 0);
    job.processEnded(2, true, "exited with code 1", 1, 0.1);
    job.closed(2, "closed", 0.1);
    EXPECT_EQ(recorder.told, std::vector<uint32_t>{1});
    job.tick(0.2);
    EXPECT_EQ(recorder.told, std::vector<uint32_t>{1});
    EXPECT_FALSE(job.isOver());
    Message heard;
    heard.mutable_root_cause_acknowledged();
    if (confirmed)
      job.received(1, heard, 0.25);
    job.tick(confirmed ? 0.26 : 0.45); // it does not wait forever
    EXPECT_EQ(recorder.told, (std::vector<uint32_t>{1, 0}));
  }
}

TEST(ControlJob, ARankThatWasStoppedBeforeItJoinedIsNoInternalError) {
  struct Quiet final : Outbox {
    void send(uint32_t, const SharedFrame &, bool) override {}
    void giveUp(uint32_t) override {}
  } quiet;
  Job job({2, Simulation::times(), kNoRank, {}}, quiet);
  job.joined(0, "a", 0);
  Message contribution;
  contribution.mutable_contribution()->set_name("hello");
  job.received(0, contribution, 0.1);
  job.processEnded(1, false, "ended with exit code 130", 130, 0.2);
  ASSERT_TRUE(job.rootCause());
  EXPECT_EQ(job.rootCause()->exitCode, 130);
  EXPECT_EQ(job.rootCause()->message,
            "rank 1 ended without taking part in the exchange 'hello', in which rank 0 (device a) "
            "waits for it: the run was asked to end");
}

TEST(ControlJob, StallNamesTheEarliestEntryOfAll) {
  struct Quiet final : Outbox {
    void send(uint32_t, const SharedFrame &, bool) override {}
    void giveUp(uint32_t) override {}
  } quiet;
  auto heartbeat = [](uint64_t counter, bool underWay, uint64_t step, uint32_t instruction,
                      const std::string &where) {
    Message message;
    Progress &progress = *message.mutable_heartbeat()->mutable_progress();
    progress.set_counter(counter);
    progress.set_in_progress(underWay);
    progress.set_step(step);
    progress.set_instruction(instruction);
    progress.set_where(where);
    return message;
  };
  auto run = [&](auto counterOf, bool underWay) {
    Job job({3, Simulation::times(), kNoRank, {}}, quiet);
    for (uint32_t rank = 0; rank < 3; ++rank)
      job.joined(rank, "cpu:" + std::to_string(rank), 0);
    double now = 0;
    for (; now < 6 && !job.rootCause(); now += 0.05) {
      for (uint32_t rank = 0; rank < 3; ++rank) {
        job.recordActivity(rank, now);
        job.received(rank,
                     heartbeat(counterOf(rank, now), underWay, rank == 0 ? 5 : 4,
                               rank == 1 ? 17 : 30,
                               rank == 1 ? "is in instruction 17 (receive from cpu:2) of step 4"
                                         : "is elsewhere"),
                     now);
      }
      job.tick(now);
    }
    return std::make_pair(job.rootCause(), now);
  };
  auto [stalled, when] =
      run([](uint32_t, double now) { return now < 1 ? uint64_t(now * 100) : 7; }, true);
  ASSERT_TRUE(stalled);
  EXPECT_EQ(stalled->cause, Failure::Stalled);
  EXPECT_EQ(stalled->rank, 1u);
  EXPECT_NEAR(when, 3.1, 0.2);
  EXPECT_TRUE(stalled->message.find("step 4, where rank 1 (device cpu:1) is in instruction 17 "
                                    "(receive from cpu:2) of step 4") != std::string::npos)
      << stalled->message;
  // One active rank is enough. Without work in progress, no activity is required.
  EXPECT_FALSE(
      run([](uint32_t rank, double now) { return rank == 2 ? uint64_t(now * 10) : 7; }, true)
          .first);
  EXPECT_FALSE(run([](uint32_t, double) { return 7; }, false).first);
}

/// A job of three ranks that all send heartbeats. The test chooses which peers each rank reports as
/// silent.
class Hearing final : public Outbox {
public:
  Hearing() : job({3, Simulation::times(), kNoRank, {"a", "b", "c"}}, *this) {
    for (uint32_t rank = 0; rank < 3; ++rank)
      job.joined(rank, "", 0);
  }
  void send(uint32_t, const SharedFrame &, bool) override {}
  void giveUp(uint32_t) override {}

  /// Runs until there is a verdict, at most until `end`. \param since  (listener, speaker) -> time
  /// from which the listener has not heard the speaker
  std::optional<Failure> run(const std::map<std::pair<uint32_t, uint32_t>, double> &since,
                             double end, const std::map<uint32_t, double> &silent = {}) {
    for (double now = 0; now < end && !job.rootCause(); now += 0.05) {
      for (uint32_t rank = 0; rank < 3; ++rank) {
        if (auto from = silent.find(rank); from != silent.end() && now >= from->second)
          continue;
        Message message;
        message.mutable_heartbeat();
        for (const auto &[pair, from] : since)
          if (pair.first == rank && now > from + 0.1) {
            UnresponsiveRank &silence = *message.mutable_heartbeat()->add_unresponsive();
            silence.set_rank(pair.second);
            silence.set_seconds(now - from);
          }
        job.recordActivity(rank, now);
        job.received(rank, message, now);
      }
      job.tick(now);
    }
    return job.rootCause();
  }

  Job job;
};

bool says(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

TEST(ControlLinks, TheOneWhoFellSilentFirstIsNamed) {
  // Packets from rank 1 to rank 2 are lost. Without acknowledgements, rank 1 stops hearing rank 2
  // shortly afterwards.
  std::optional<Failure> rootCause = Hearing().run({{{2, 1}, 1.0}, {{1, 2}, 1.3}}, 4);
  ASSERT_TRUE(rootCause);
  EXPECT_EQ(rootCause->rank, 1u);
  EXPECT_EQ(rootCause->exitCode, 2);
  EXPECT_TRUE(says(rootCause->message, "rank 1 (device b) is cut off from rank 2 (device c)"))
      << rootCause->message;
  EXPECT_TRUE(says(rootCause->message, "it has not heard rank 2 (device c)")) << rootCause->message;
}

TEST(ControlLinks, TheOneWhomMostDoNotHearIsNamed) {
  std::optional<Failure> rootCause =
      Hearing().run({{{2, 1}, 1.0}, {{1, 2}, 1.2}, {{0, 2}, 1.2}}, 4);
  ASSERT_TRUE(rootCause);
  EXPECT_EQ(rootCause->rank, 2u) << rootCause->message;
  EXPECT_TRUE(says(rootCause->message, "and 1 more")) << rootCause->message;
}

TEST(ControlLinks, AnOutageBelowTheDeadlineIsNothing) {
  Hearing hearing;
  EXPECT_FALSE(hearing.run({{{2, 1}, 1.0}}, 1.4)); // the deadline is 0.5
  EXPECT_FALSE(hearing.run({}, 4));
}

TEST(ControlLinks, TheCoordinatorsOwnSilenceComesFirst) {
  std::optional<Failure> rootCause = Hearing().run({{{2, 1}, 1.0}, {{0, 1}, 1.0}}, 4, {{1, 1.0}});
  ASSERT_TRUE(rootCause);
  EXPECT_EQ(rootCause->rank, 1u);
  EXPECT_TRUE(says(rootCause->message, "rank 1 (device b) is lost: nothing was heard of it"))
      << rootCause->message;
}

TEST(ControlLinks, AnInnocentCoordinatorIsNotBlamed) {
  for (bool stopped : {false, true}) {
    Hearing hearing;
    hearing.job.paused(stopped ? 3 : 0.01);
    Message message;
    message.mutable_coordinator_lost()->set_seconds(0.5);
    hearing.job.received(1, message, 1);
    hearing.job.tick(1);
    ASSERT_TRUE(hearing.job.rootCause());
    EXPECT_EQ(hearing.job.rootCause()->rank, stopped ? kNoRank : 1u);
    EXPECT_EQ(hearing.job.rootCause()->exitCode, 2);
    EXPECT_TRUE(says(hearing.job.rootCause()->message,
                     stopped ? "was stopped or starved" : "rank 1 (device b) is cut off"))
        << hearing.job.rootCause()->message;
  }
}

} // namespace
