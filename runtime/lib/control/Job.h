// What the coordinator knows and decides, without sockets, threads or clocks: events go in with the time at which they happened, messages to ranks
// come out.
//
//   absent --join--> working --leave--> left          a job fails when a rank is lost in between, and is over when all have left.
//
// Times are seconds of a FairClock.
#pragma once

#include "Evidence.h"
#include "Frames.h"

#include "zorse/runtime/Control.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace zorse::control {

struct JobSettings {
  uint32_t world = 1;
  runtime::ControlTimes times;
  uint32_t host = runtime::kNoRank;
  std::vector<std::string> devices;
};

/// How a job hands messages to the connections of its ranks.
class Outbox {
public:
  virtual ~Outbox() = default;
  /// \param lasting  false: need not arrive when the job has failed.
  virtual void send(uint32_t rank, const SharedFrame &frame, bool lasting) = 0;
  /// Frames of `rank` that are not lasting and were not sent are given up.
  virtual void giveUp(uint32_t rank) = 0;
  /// What was sent to `rank` is not acknowledged by its host: the network is in doubt, not the process alone.
  virtual bool isSendingAgain(uint32_t) { return false; }
};

class Job {
public:
  Job(JobSettings settings, Outbox &outbox);

  // ---- what happens ----
  /// The rank has been admitted and welcomed. Only for ranks that are absent (`isAbsent`) of a job that has not failed.
  void joined(uint32_t rank, const std::string &device, double now);
  /// Anything was received of the rank.
  void heard(uint32_t rank, double now) {
    ranks_[rank].heardAt = now;
    evidence_.heard(rank, now);
  }
  /// The longest time for which the coordinator itself stood still so far.
  void paused(double seconds) { paused_ = seconds; }
  /// A message of the stage Work.
  void received(uint32_t rank, const Message &message, double now);
  /// Its connection has ended.
  void closed(uint32_t rank, const std::string &why, double now);
  /// It sent what is no message.
  void broken(uint32_t rank, const std::string &why, double now);
  void processEnded(uint32_t rank, bool failed, const std::string &how, int exitCode, double now);
  void requestStop(double now);
  /// Time has passed.
  /// \param refused  what to say of peers that were turned away, if ranks are missing
  /// \param elapsed  since the start, pauses of this process included, which `now` leaves out: ranks that are still to join count theirs so too.
  void tick(double now, const std::function<std::string()> &refused = nullptr, double elapsed = 0);

  // ---- what is so ----
  bool isAbsent(uint32_t rank) const { return ranks_[rank].state == State::Absent; }
  bool isConnected(uint32_t rank) const { return ranks_[rank].connected; }
  const std::string &deviceOf(uint32_t rank) const { return ranks_[rank].device; }
  std::string nameOf(uint32_t rank) const { return evidence_.nameOf(rank); }
  const std::optional<runtime::Failure> &verdict() const { return verdict_; }
  /// Every rank has left, or the job has failed and every living rank has been told.
  bool isOver() const { return over_; }
  /// Something is to be decided soon: `tick` often.
  bool isUrgent() const { return !over_ && (verdict_ || evidence_.any()); }
  /// An early stop has been decided.
  std::optional<uint64_t> lastStep() const { return stop_ == Stop::Decided ? std::optional<uint64_t>(lastStep_) : std::nullopt; }

private:
  enum class State : uint8_t { Absent, Working, Left, Lost };
  enum class Stop : uint8_t { None, Asking, Decided };

  struct Rank {
    State state = State::Absent;
    bool connected = false;
    bool answered = false; ///< the question of an early stop
    bool told = false;     ///< has confirmed the verdict
    bool sentVerdict = false;
    bool silent = false;  ///< missed heartbeats
    bool stopped = false; ///< its process ended because it was asked to
    uint64_t highest = 0; ///< step entered
    std::string device;
    double heardAt = 0;
    std::map<uint32_t, double> unheard;     ///< peers that it does not hear, and since when
    std::map<uint32_t, double> undelivered; ///< peers whose hosts do not acknowledge what it sent, and since when
    runtime::RankProgress progress;
  };

  struct Exchange {
    std::vector<std::optional<std::string>> values;
    uint32_t count = 0;
  };

  void progressed(uint32_t rank, const Progress &progress, double now);
  void contributed(uint32_t rank, const Contribution &contribution, double now);
  void completed(const std::string &name, const Exchange &exchange);
  void report(uint32_t rank, const Message &message, double now);
  void left(uint32_t rank, double now);
  /// Nobody waits for a rank that will not come.
  void checkExchanges(double now);
  void decideStop();
  void checkHeartbeats(double now);
  void checkLinks(double now);
  void checkDelivery(double now);
  void coordinatorLost(uint32_t rank, double seconds, double now);
  void checkProgress(double now);
  void checkJoined(double elapsed, double now, const std::function<std::string()> &refused);
  void decide(double now);
  void tell(double now);
  void updateOver(double now);
  void sendTo(uint32_t rank, const Message &message, bool lasting = true);

  JobSettings settings_;
  Outbox &outbox_;
  Evidence evidence_;
  std::vector<Rank> ranks_;
  std::map<std::string, Exchange> exchanges_;
  std::vector<SharedFrame> early_; ///< reports from before rank 0 joined
  size_t earlyBytes_ = 0;
  double progressAt_ = 0, paused_ = 0;
  Stop stop_ = Stop::None;
  uint64_t lastStep_ = 0;
  std::optional<runtime::Failure> verdict_;
  double verdictAt_ = 0;
  bool over_ = false;
};

FailureReport toMessage(const runtime::Failure &failure);
runtime::Failure fromMessage(const FailureReport &failure);
/// A place without the verb that RankProgress::where begins with.
std::string withoutIs(const std::string &where);

} // namespace zorse::control
