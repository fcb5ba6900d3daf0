// Measuring where a process runs: what control groups leave it, what links between the ranks of a job reach, and a job of ranks that only measure.
#pragma once

#include "zorse/runtime/Control.h"
#include "zorse/runtime/Launch.h"
#include "zorse/runtime/Transport.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace zorse::runtime {

/// What control groups allow a process, the narrowest of its own group and those above it.
struct CpuQuota {
  double processors = 0; ///< 0: not limited
  double period = 0;     ///< seconds between two fillings; the longest of the groups that limit
};
/// \param root  "" but in tests: where /proc and /sys are.
CpuQuota cpuQuota(const std::string &root = "");

/// Runs `work`, which says how many units of work it did, in samples: a sample lasts `seconds` or longer, so that pauses that a quota forces are part
/// of it in their proportion.
/// \returns seconds per unit of work of one sample.
double timedSample(double seconds, const std::function<int64_t()> &work);

/// Median; 0 of nothing. \param spread  receives the distance of the quartiles over the median.
double median(std::vector<double> values, double *spread = nullptr);

struct LinkTimes {
  double latency = 0;   ///< seconds one way: half a round trip of the smallest messages
  double bandwidth = 0; ///< bytes/s of one stream of large messages
  double halfSize = 0;  ///< bytes of the message that reaches half of it, by what smaller ones take beyond a trip and their bytes
};

/// Between ranks `a` and `b`: both call it together, with the same `entry` (two numbers from there on are used), others do not. Takes about
/// `seconds`.
Result<LinkTimes> measureLink(Transport &transport, uint32_t me, uint32_t a, uint32_t b, uint32_t entry, double seconds);

/// One link that was measured: between ranks.
struct RankLink {
  uint32_t a = 0, b = 0;
  LinkTimes alone;     ///< one pair of ranks
  double together = 0; ///< bytes/s of as many pairs as the two nodes have, at once; 0: they have one
};

/// All ranks of a job measure the links between their nodes, one pair of nodes after the other, and inside each node. All call it together.
/// Up to eight nodes every pair; of more, each with its neighbour and with the one half way round.
/// \param nodes  by rank. \returns on every rank all links.
Result<std::vector<RankLink>> measureLinks(Group &group, Transport &transport, const std::vector<uint32_t> &nodes, double seconds,
                                           const std::function<void(const std::string &)> &progress);

/// What messages cost the processors of a rank.
struct MovingWork {
  double perByte = 0, perMessage = 0; ///< processor seconds, of sending and receiving alike
  double delay = 0;                   ///< seconds by which an answer is later while the rank computes
};

/// Measures `subject` with `driver`'s help; both call it together, with the same `entry` (two numbers from there on are used). Takes about three
/// times `seconds`.
/// \param threads  that compute at the subject while the delay is measured. \returns the delay at the driver, the rest at the subject.
Result<MovingWork> measureMoving(Transport &transport, uint32_t me, uint32_t driver, uint32_t subject, uint32_t entry, double seconds, int threads);

/// All ranks of a job, each with help of the one before it. All call it together, from one thread, with the same `entry` (16 for every rank are
/// used).
/// \param threads  by rank, that compute; 0: this rank is left out and has zeros. \returns on every rank all of them.
Result<std::vector<MovingWork>> measureMovingOfAll(Group &group, Transport &transport, uint32_t entry, double seconds,
                                                   const std::vector<int> &threads);

/// A job of ranks that agree and measure, for tools: the coordinator where this rank hosts it, and its member.
struct JobOptions {
  std::string secretFile, listen;
  ControlTimes times;
  std::vector<std::string> names; ///< by rank, for messages; may be empty
};
class Job {
public:
  /// A failure of another rank ends this process with a message.
  static Result<std::unique_ptr<Job>> join(const Place &place, const JobOptions &options);
  Member &member() { return *member_; }
  /// Connects this rank to all others.
  Result<std::unique_ptr<Transport>> connect(const std::vector<uint32_t> &nodes, uint32_t connections);
  /// Says goodbye and waits until the others have, too, where this rank hosts the coordinator.
  void leave();
  /// Tells the job why this rank cannot go on, and ends the process.
  [[noreturn]] void fail(const Error &error);

private:
  Place place_;
  JobOptions options_;
  JobKey key_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Member> member_;
};

} // namespace zorse::runtime
