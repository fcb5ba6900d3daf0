// Collects reports about failures of a job and finds the root cause.
//
// Reports arrive in any order. Rank 1 may report "rank 2 closed the connection" before rank 2
// reports "disk full" or the launcher reports "was killed by signal 9". The search starts at the
// earliest report and follows reports that blame a peer, from rank to rank. The last rank of the
// chain is the cause.
//
// - The cause is final if that rank reported its own error, or if no better report can
//   arrive. Otherwise the search waits kGraceSeconds for better reports.
// - A rank that blames a peer may itself be cut off from the network, or the peer may be. If blame
//   is the only evidence, the verdict names the peer that is not reached. It is then never an error
//   in the input: the exit code is 2, so that a restart is tried.
// - Reports about one rank, best first: its own report, the exit status of its process, its closed
//   connection, blame by other ranks.
#pragma once

#include "zorse/runtime/Control.h"

#include <optional>
#include <string>
#include <vector>

namespace zorse::control {

inline constexpr double kGraceSeconds = 0.25;

class RootCauseFinder {
public:
  RootCauseFinder(uint32_t worldSize, std::vector<std::string> devices);

  /// The device of the rank's Join message.
  void setDevice(uint32_t rank, const std::string &device) { ranks_[rank].device = device; }
  /// Data was received from the rank.
  void recordActivity(uint32_t rank, double now) { ranks_[rank].lastHeardSeconds = now; }
  /// The rank's location in its last heartbeat, if it was inside a step: "instruction 12 (forward
  /// of ...) of step 4".
  void setWhere(uint32_t rank, const std::string &where) { ranks_[rank].where = where; }

  /// The rank's report about itself; only the first counts. `now` here and below: the coordinator's
  /// clock.
  void reported(const runtime::Failure &failure, double now);
  void processEnded(uint32_t rank, const std::string &how, int exitCode, bool hadJoined,
                    double now);
  void closed(uint32_t rank, const std::string &why, double now);
  /// The rank's connection, if it had one, has ended: the rank can send no more reports.
  void cannotReport(uint32_t rank) { ranks_[rank].mute = true; }
  /// Records a failure that the coordinator found itself (heartbeats, stall, joining). It is final
  /// immediately.
  void found(const runtime::Failure &failure, double now);

  bool any() const { return first_ != runtime::kNoRank || found_; }
  /// The root cause, once it is certain or kGraceSeconds have passed.
  std::optional<runtime::Failure> rootCause(double now) const;

  /// "rank 2 (device t4:0)"
  std::string nameOf(uint32_t rank) const;

private:
  struct Rank {
    std::string device, where;
    std::optional<runtime::Failure> own;
    bool ended = false, isClosed = false, mute = false, hadJoined = true;
    std::string how, why;
    int exitCode = 2;
    double since = 0; ///< time of the first report about the rank
    std::optional<double> lastHeardSeconds;
    bool known() const { return own || ended || isClosed; }
  };
  struct FailureChain {
    uint32_t end = runtime::kNoRank;  ///< the last rank of the chain
    uint32_t from = runtime::kNoRank; ///< the rank that blamed `end`
    bool final = false;
  };

  static bool accusesPeer(const runtime::Failure &own) {
    return own.peer != runtime::kNoRank || own.cause == runtime::Failure::Disconnected;
  }
  void note(uint32_t rank, double now);
  /// The rank whose own failure (no blame) was noted first, or kNoRank.
  uint32_t earliestTrouble(uint32_t except) const;
  FailureChain follow() const;
  runtime::Failure describe(const FailureChain &chain, double now) const;
  runtime::Failure describeUnreached(uint32_t rank, const runtime::Failure &blame,
                                     double now) const;
  std::string noticedBy(uint32_t rank, uint32_t from) const;

  std::vector<Rank> ranks_;
  uint32_t first_ = runtime::kNoRank;
  double firstAt_ = 0;
  std::optional<runtime::Failure> found_;
};

} // namespace zorse::control
