// The state machine of the coordinator, without sockets, threads or clocks. The caller passes
// events with their times; the job sends messages to ranks through an Outbox.
//
//   absent --join--> working --leave--> left
//
// A job fails when a rank is lost while it works. It is over when all ranks have left. Times are
// seconds of a PauseTolerantClock.
#pragma once

#include "Frames.h"
#include "RootCauseFinder.h"

#include "zorse/runtime/Control.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace zorse::control {

struct JobSettings {
  uint32_t worldSize = 1;
  runtime::ControlTimes times;
  uint32_t host = runtime::kNoRank;
  std::vector<std::string> devices;
};

/// Queues messages on the connections of the ranks.
class Outbox {
public:
  virtual ~Outbox() = default;
  /// \param lasting  false: the message may be dropped when the job has failed
  virtual void send(uint32_t rank, const SharedFrame &frame, bool lasting) = 0;
  /// Drops the unsent frames of `rank` that are not lasting.
  virtual void giveUp(uint32_t rank) = 0;
  /// Whether the host of `rank` does not acknowledge sent data. The network may then be the cause,
  /// not the process alone.
  virtual bool isSendingAgain(uint32_t) { return false; }
};

class Job {
public:
  Job(JobSettings settings, Outbox &outbox);

  // ---- events ----
  /// The rank has been admitted and welcomed. Only for absent ranks (`isAbsent`) of a job that has
  /// not failed.
  void joined(uint32_t rank, const std::string &device, double now);
  /// Data was received from the rank.
  void recordActivity(uint32_t rank, double now) {
    ranks_[rank].lastHeardSeconds = now;
    rootCauseFinder_.recordActivity(rank, now);
  }
  /// \param seconds  longest pause of the coordinator itself since the start
  void paused(double seconds) { paused_ = seconds; }
  /// A message of the stage Work was received.
  void received(uint32_t rank, const Message &message, double now);
  /// The connection of the rank has ended.
  void closed(uint32_t rank, const std::string &why, double now);
  /// The rank sent an invalid message.
  void broken(uint32_t rank, const std::string &why, double now);
  void processEnded(uint32_t rank, bool failed, const std::string &how, int exitCode, double now);
  void requestStop(double now);
  /// Must be called regularly: checks all timeouts.
  /// \param refused  describes the rejected connections; called if ranks are missing
  /// \param elapsed  seconds since the start, including pauses of this process, which `now`
  ///   excludes. Ranks that are still to join count the same seconds.
  void tick(double now, const std::function<std::string()> &refused = nullptr, double elapsed = 0);

  // ---- state ----
  bool isAbsent(uint32_t rank) const { return ranks_[rank].state == State::Absent; }
  bool isConnected(uint32_t rank) const { return ranks_[rank].connected; }
  const std::string &deviceOf(uint32_t rank) const { return ranks_[rank].device; }
  std::string nameOf(uint32_t rank) const { return rootCauseFinder_.nameOf(rank); }
  const std::optional<runtime::Failure> &rootCause() const { return rootCause_; }
  /// Every rank has left, or the job has failed and every living rank has acknowledged the verdict.
  bool isOver() const { return over_; }
  /// A decision is pending: call `tick` often.
  bool isUrgent() const { return !over_ && (rootCause_ || rootCauseFinder_.any()); }
  /// An early stop has been decided.
  std::optional<uint64_t> lastStep() const {
    return stop_ == Stop::Decided ? std::optional<uint64_t>(lastStep_) : std::nullopt;
  }

private:
  enum class State : uint8_t { Absent, Working, Left, Failed };
  enum class Stop : uint8_t { None, Asking, Decided };

  struct Rank {
    State state = State::Absent;
    bool connected = false;
    bool answered = false;     ///< the question of an early stop
    bool acknowledged = false; ///< has acknowledged the verdict
    bool sentRootCause = false;
    bool silent = false;  ///< missed heartbeats
    bool stopped = false; ///< its process ended because it was asked to
    uint64_t highest = 0; ///< last step entered
    std::string device;
    double lastHeardSeconds = 0;
    std::map<uint32_t, double> unresponsive; ///< peers from which the rank receives nothing, and
                                             ///< since when
    std::map<uint32_t, double> undelivered;  ///< peers whose hosts do not acknowledge the rank's
                                             ///< data, and since when
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
  /// Fails the job if a rank waits in an exchange for a rank that has left.
  void checkExchanges(double now);
  void decideStop();
  void coordinatorLost(uint32_t rank, double seconds, double now);
  // JobTimeouts.cpp
  void checkJoined(double elapsed, double now, const std::function<std::string()> &refused);
  void checkHeartbeats(double now);
  void checkLinks(double now);
  void checkDelivery(double now);
  void checkProgress(double now);
  // Job.cpp
  void decide(double now);
  void notify(double now);
  void updateOver(double now);
  void sendTo(uint32_t rank, const Message &message, bool lasting = true);

  JobSettings settings_;
  Outbox &outbox_;
  RootCauseFinder rootCauseFinder_;
  std::vector<Rank> ranks_;
  std::map<std::string, Exchange> exchanges_;
  std::vector<SharedFrame> early_; ///< reports received before rank 0 joined
  size_t earlyBytes_ = 0;
  double progressAt_ = 0, paused_ = 0;
  Stop stop_ = Stop::None;
  uint64_t lastStep_ = 0;
  std::optional<runtime::Failure> rootCause_;
  double rootCauseAt_ = 0;
  bool over_ = false;
};

FailureReport toMessage(const runtime::Failure &failure);
runtime::Failure fromMessage(const FailureReport &failure);
/// Returns a failure that the coordinator found itself.
runtime::Failure foundBy(runtime::Failure::Cause cause, runtime::ErrorKind kind, uint32_t rank,
                         const std::string &device, std::string message);
/// "2.5 s", "60 s"
std::string durationText(double seconds);
/// Removes the leading "is in " or "in " of RankProgress::where.
std::string withoutIs(const std::string &where);

} // namespace zorse::control
