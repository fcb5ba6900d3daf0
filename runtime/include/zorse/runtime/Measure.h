// Measurements of the environment of a process: CPU quotas, links between the ranks of a job, and a
// job of ranks that only measure.
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

/// The tightest CPU quota among a process's control group and its ancestors.
struct CpuQuota {
  double cpus = 0;   ///< number of CPUs; 0: no limit
  double period = 0; ///< seconds between two refills; the longest among the groups that limit
};
/// \param root  directory that contains /proc and /sys; "" except in tests
CpuQuota cpuQuota(const std::string &root = "");

/// Runs `work` repeatedly and measures it in samples. `work` returns the units of work that it did.
/// A sample lasts at least `seconds`, so that it includes its share of the pauses that a quota
/// forces.
/// \returns seconds per unit of work, one value per sample.
double timedSample(double seconds, const std::function<int64_t()> &work);

/// Returns the median; 0 for an empty list. \param spread  receives the interquartile range divided
/// by the median
double median(std::vector<double> values, double *spread = nullptr);

struct LinkTimes {
  double latency = 0;   ///< seconds in one direction: half a round trip of the smallest messages
  double bandwidth = 0; ///< bytes/s of one stream of large messages
  double halfBandwidthBytes = 0; ///< message size in bytes that reaches half the bandwidth, from
                                 ///< the time of smaller messages minus latency and transfer
};

/// Measures the link between ranks `a` and `b`. Both call it together with the same `instruction`
/// (`instruction` and `instruction` + 1 are used); other ranks do not. Takes about `seconds`.
Result<LinkTimes> measureLink(Transport &transport, uint32_t me, uint32_t a, uint32_t b,
                              uint32_t instruction, double seconds);

/// One measured link between two ranks.
struct RankLink {
  uint32_t a = 0, b = 0;
  LinkTimes alone;     ///< one pair of ranks
  double together = 0; ///< bytes/s of all pairs of the two nodes at the same time; 0: there is only
                       ///< one pair
};

/// Measures the links between the nodes of a job, one pair of nodes at a time, and the links inside
/// each node. All ranks call it together. Up to eight nodes, every pair is measured; with more
/// nodes, each node with its neighbor and with the node halfway around the ring.
/// \param nodes  by rank. \returns all links, on every rank.
Result<std::vector<RankLink>>
measureLinks(ProcessGroup &group, Transport &transport, const std::vector<uint32_t> &nodes,
             double seconds, const std::function<void(const std::string &)> &progress);

/// CPU cost of messages on a rank.
struct CommunicationWork {
  double perByte = 0, perMessage = 0; ///< CPU seconds, equal for sending and receiving
  double delay = 0; ///< seconds by which replies are later while the rank computes
};

/// Measures `subject` with the help of `driver`. Both call it together with the same `instruction`
/// (`instruction` and `instruction` + 1 are used). Takes about three times `seconds`.
/// \param threads  threads that compute on the subject while the delay is measured. \returns the
///   delay on the driver, the other values on the subject.
Result<CommunicationWork> measureCommunicationCost(Transport &transport, uint32_t me,
                                                   uint32_t driver, uint32_t subject,
                                                   uint32_t instruction, double seconds,
                                                   int threads);

/// Measures all ranks of a job, each with the help of the previous one. All ranks call it together,
/// from one thread, with the same `instruction` (16 per rank are used).
/// \param threads  by rank, computing threads; 0: the rank is skipped and its values are zero.
///   \returns the values of all ranks, on every rank.
Result<std::vector<CommunicationWork>>
measureCommunicationCostOfAll(ProcessGroup &group, Transport &transport, uint32_t instruction,
                              double seconds, const std::vector<int> &threads);

/// Options of Job.
struct JobOptions {
  std::string secretFile, listen;
  ControlTimes times;
  std::vector<std::string> names; ///< by rank, for messages; may be empty
};
/// A job of ranks that communicate and measure, for tools: the coordinator, if this rank hosts
/// it, and its member.
class Job {
public:
  /// Joins the job. A failure of another rank ends this process with a message.
  static Result<std::unique_ptr<Job>> join(const RankEnvironment &environment,
                                           const JobOptions &options);
  Member &member() { return *member_; }
  /// Connects this rank to all others.
  Result<std::unique_ptr<Transport>> connect(const std::vector<uint32_t> &nodes,
                                             uint32_t connections);
  /// Leaves the job. If this rank hosts the coordinator, waits until all other ranks have left.
  void leave();
  /// Reports to the job why this rank cannot continue, and ends the process.
  [[noreturn]] void fail(const Error &error);

private:
  RankEnvironment environment_;
  JobOptions options_;
  JobKey key_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Member> member_;
};

} // namespace zorse::runtime
