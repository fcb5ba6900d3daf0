// What is known about failures of a job, and which of them is the first cause.
//
// Evidence arrives in any order: rank 1 says "rank 2 closed the connection" before rank 2's own "disk full" or the launcher's "was killed by signal
// 9" is heard. So blame is followed from rank to rank, starting at the earliest evidence, and the end of the chain is the cause. It is final when its
// rank said itself what is wrong, or when nothing better can come; otherwise a moment (kGraceSeconds) is left for better evidence. A rank that blames
// a peer may live on the wrong side of a broken network, or its peer may: where blame is all there is, the verdict is about the peer that is not
// reached, and never an error in the input (exit code 2), so that a restart is tried. Of one rank, in this order: its own report, how its process
// ended, its closed connection, others' blame.
#pragma once

#include "zorse/runtime/Control.h"

#include <optional>
#include <string>
#include <vector>

namespace zorse::control {

inline constexpr double kGraceSeconds = 0.25;

class Evidence {
public:
  Evidence(uint32_t world, std::vector<std::string> devices);

  /// From the rank's Join.
  void setDevice(uint32_t rank, const std::string &device) { ranks_[rank].device = device; }
  /// Anything came from the rank.
  void heard(uint32_t rank, double now) { ranks_[rank].heardAt = now; }
  /// Of its last heartbeat, when it was under way: "entry 12 (forward of ...) of step 4".
  void setWhere(uint32_t rank, const std::string &where) { ranks_[rank].where = where; }

  /// What a rank reports of itself; only the first counts. `now` here and below: the coordinator's clock.
  void reported(const runtime::Failure &failure, double now);
  void processEnded(uint32_t rank, const std::string &how, int exitCode, bool hadJoined, double now);
  void closed(uint32_t rank, const std::string &why, double now);
  /// Its connection, if it had one, is over: no report of its own can come any more.
  void cannotReport(uint32_t rank) { ranks_[rank].mute = true; }
  /// Final at once: found by the coordinator itself (heartbeats, stall, joining).
  void found(const runtime::Failure &failure, double now);

  bool any() const { return first_ != runtime::kNoRank || found_; }
  /// The first cause, as soon as it is certain or the moment has passed.
  std::optional<runtime::Failure> verdict(double now) const;

  /// "rank 2 (device t4:0)"
  std::string nameOf(uint32_t rank) const;

private:
  struct Rank {
    std::string device, where;
    std::optional<runtime::Failure> own;
    bool ended = false, isClosed = false, mute = false, hadJoined = true;
    std::string how, why;
    int exitCode = 2;
    double since = 0; ///< of the first evidence about it
    std::optional<double> heardAt;
    bool known() const { return own || ended || isClosed; }
  };
  struct Chain {
    uint32_t end = runtime::kNoRank;  ///< whose story it is
    uint32_t from = runtime::kNoRank; ///< who blamed `end`
    bool final = false;
  };

  static bool isBlame(const runtime::Failure &own) { return own.peer != runtime::kNoRank || own.cause == runtime::Failure::Disconnected; }
  void note(uint32_t rank, double now);
  /// The rank with evidence of its own trouble (no blame) that has it longest; kNoRank: none.
  uint32_t earliestTrouble(uint32_t except) const;
  Chain follow() const;
  runtime::Failure tell(const Chain &chain, double now) const;
  runtime::Failure tellUnreached(uint32_t rank, const runtime::Failure &blame, double now) const;
  std::string noticedBy(uint32_t rank, uint32_t from) const;

  std::vector<Rank> ranks_;
  uint32_t first_ = runtime::kNoRank;
  double firstAt_ = 0;
  std::optional<runtime::Failure> found_;
};

} // namespace zorse::control
