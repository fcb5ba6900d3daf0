// The control plane of a job: a coordinator (in our launcher, or in rank 0 if there is none) and
// one connection from every rank. The coordinator admits ranks that know the job's secret. It
// carries exchanges (ProcessGroup.h), heartbeats, step reports, the agreement on an early stop, and
// failures:
//
//   rank 2 --failure--> coordinator --root cause--> every rank
//
// Each rank exits once notified, or after kRootCauseSeconds.
//
// A rank has failed if its connection ends without an orderly close, or if no data arrived from it
// for `heartbeatTimeoutSeconds`. A suspended process misses heartbeats, a slow one does not. The
// job has stalled if no rank has made progress for `watchdogTimeoutSeconds` while a step is in
// progress.
//
// The wire format is runtime/schema/control.proto in frames. The length of a frame is checked
// before memory is allocated. Frames are at most kGreetingBytes until the peer has proved that it
// knows the secret (HMAC-SHA256 over both sides' nonces, the job, the generation and the role, in
// both directions).
#pragma once

#include "zorse/runtime/ProcessGroup.h"
#include "zorse/runtime/Status.h"
#include "zorse/runtime/UnresponsivePeer.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace zorse::runtime {

struct Endpoint {
  std::string host; ///< name or address
  uint16_t port = 0;
};

/// Name and secret that the ranks of a job share.
struct JobKey {
  std::string job; ///< identifies the job among others of the same user; jobs with different names
                   ///< never connect, even with the same secret
  std::string secret; ///< at least 16 bytes
};

/// Returns the secret: from ZORSE_SECRET, from the file that `file` or ZORSE_SECRET_FILE names,
/// otherwise from ~/.config/zorse/secret, which is created with random content and mode 0600 if it
/// does not exist. A file that other users may read is an error. ZORSE_SECRET is removed from the
/// environment when it is read, so that neither child processes nor the machine code of a bundle
/// can read it. Call it only once.
Result<std::string> jobSecret(const std::string &file);

/// Removes ZORSE_SECRET from the environment of a process that does not need it, and returns it.
std::string takeSecretFromEnvironment();

inline constexpr uint32_t kNoRank = UINT32_MAX;
inline constexpr double kRootCauseSeconds = 1.0;
inline constexpr double kLateSeconds = 5.0;

/// Why a job ended, or what a rank reports with Member::fail.
///
/// A report with OwnError and without a peer is accepted as the root cause. A report that names a
/// peer, or a lost transfer without a known peer (Disconnected), is a symptom: the coordinator
/// waits briefly for the peer's report or the exit status of its process. It follows reports that
/// name a peer from rank to rank and reports the last rank of the chain.
struct Failure {
  enum Cause : uint8_t {
    OwnError,         ///< `rank` reported that it failed
    Died,             ///< the process of `rank` ended (kNoRank: the launcher)
    MissedHeartbeats, ///< no data from `rank` (kNoRank: from the launcher) for
                      ///< heartbeatTimeoutSeconds
    Stalled,          ///< no progress on any rank; `rank` is in the earliest unfinished instruction
    Disconnected,     ///< a connection of `rank` ended; nothing more is known
    NotJoined,        ///< `rank` (the lowest missing rank) did not join within joinSeconds
  };
  Cause cause = OwnError;
  ErrorKind kind = ErrorKind::User;
  uint32_t rank = kNoRank; ///< rank that failed
  uint32_t peer = kNoRank; ///< peer that `rank` names as the cause (the other end of a transfer);
                           ///< information from the peer itself is preferred
  std::string device;      ///< device of `rank`; set by Member::fail
  std::string message; ///< in a verdict: readable, names rank, device, task and peer. In a report:
                       ///< the error, without the name of the rank
  std::string where; ///< "instruction 17 (receive from b) of step 4"; empty: as the rank's progress
                     ///< says, or not in an instruction
  int exitCode = 2;  ///< exit code of the job
};

/// Converts the error that ended the work of a rank to its report.
Failure failureOf(const Error &error);

/// Progress that a rank reports in every heartbeat.
struct RankProgress {
  uint64_t counter = 0;    ///< grows with every finished instruction and every chunk of a transfer
  bool inProgress = false; ///< a step has been submitted and is not finished
  std::string where; ///< "is in instruction 17 (receive from b) of step 4": the earliest unfinished
                     ///< instruction
  uint64_t step = 0; ///< step of that instruction
  uint32_t instruction = 0;
  std::vector<UnresponsivePeer> unresponsive; ///< peers with missed heartbeats
};

struct ControlTimes {
  double heartbeatSeconds = 0.25;
  double heartbeatTimeoutSeconds = 10; ///< a rank without data for this time has failed
  double watchdogTimeoutSeconds = 300; ///< the job fails after this time without progress on any
                                       ///< rank while steps are in progress
  double joinSeconds = 60; ///< all ranks must join within this time after the coordinator's start;
                           ///< a rank tries for this time to reach it
};

struct CoordinatorOptions {
  JobKey key;
  uint32_t worldSize = 1;
  uint64_t generation = 1;
  std::string listenAddress = "127.0.0.1";
  std::vector<uint16_t> ports = {0}; ///< the first free one is used; 0: any
  ControlTimes times; ///< also for the members, except joinSeconds; they receive them when they
                      ///< join
  uint32_t rank = kNoRank;          ///< rank of this process; kNoRank: a launcher
  std::vector<std::string> devices; ///< by rank, for messages about ranks that have not joined; may
                                    ///< be empty
};

class Coordinator {
public:
  static Result<std::unique_ptr<Coordinator>> start(const CoordinatorOptions &options);
  /// Ends its thread and closes all connections. Ranks that have not left see a failed coordinator.
  /// See waitUntilOver.
  ~Coordinator();

  uint16_t port() const;

  /// Reports the exit of a rank's process, which the launcher has seen. It is more precise than the
  /// closed connection. Ends the job if the exit was a failure, or if other ranks still wait for
  /// the rank.
  /// \param how  text after the rank's name: "was killed by signal 9 (Killed)", "exited with code
  /// 3"
  void processEnded(uint32_t rank, bool failed, const std::string &how, int exitCode);
  /// Ends the run early, as StopCoordinator::requestStop of a rank does.
  void requestStop();
  /// The root cause, if the job has failed.
  std::optional<Failure> failure() const;
  /// Waits until every rank has left, or until the job has failed and every live rank has been
  /// notified, or until `seconds` have passed. Returns false on timeout.
  bool waitUntilOver(double seconds);
  /// Call it before the process of a failed job ends. Waits, at most `seconds`, until ranks that
  /// had not joined have connected and received the cause; otherwise they would look for a
  /// coordinator until joinSeconds have passed. Returns immediately if the failure is that ranks
  /// did not join.
  void waitForLateRanks(double seconds = kLateSeconds);

private:
  class Implementation;
  explicit Coordinator(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

struct MemberOptions {
  JobKey key;
  uint32_t rank = 0, worldSize = 1;
  uint64_t generation = 0; ///< 0: accept the coordinator's; otherwise both sides refuse a different
                           ///< one
  std::vector<Endpoint> endpoints; ///< tried round-robin until one is this job's coordinator
  std::string device;              ///< for messages: "a100:0"
  ControlTimes times;
  std::function<RankProgress()> progress; ///< called by the control thread and by `fail`; may be
                                          ///< null until `setProgress`
  /// The job has failed. Called once, in the control thread, also for failures of this rank, but
  /// not after leave(). It may call _exit.
  std::function<void(const Failure &)> failed;
  std::function<void(const std::string &)> reported; ///< receives the `report` of some rank; in
                                                     ///< order, in the control thread
};

class Member : public ProcessGroup, public StopCoordinator {
public:
  /// Connects, proves the secret in both directions, and joins. Returns once the coordinator has
  /// admitted this rank; others may still be missing.
  static Result<std::unique_ptr<Member>> join(MemberOptions options);
  ~Member() override;

  uint32_t rank() const override;
  uint32_t size() const override;
  uint64_t generation() const override;
  Result<std::vector<std::string>> allGatherBytes(const std::string &name,
                                                  const std::string &mine) override;
  bool beginIteration(uint64_t iteration) override;
  void requestStop() override;

  /// Replaces the progress function. When it returns, the old function is not running and is not
  /// called again. Must not be called from a callback.
  void setProgress(std::function<RankProgress()> progress);

  /// Sends bytes to rank 0's `reported`, or to every rank's, including this one. Does not wait for
  /// the peer.
  void report(const std::string &bytes, bool toAll = false);

  /// Reports to the job that this rank has failed. Waits for the verdict (at most
  /// kRootCauseSeconds) and for the end of `failed`. Returns the root cause, which may be another
  /// rank's. In a callback it returns `mine` immediately; the verdict follows through `failed`.
  /// After leave() it returns `mine`.
  Failure fail(const Failure &mine);

  /// Leaves the job after the last exchange and waits until the coordinator has acknowledged it. A
  /// connection that ends afterwards is not a failure. Does nothing if the job has failed. A rank
  /// that hosts the coordinator calls leave, then Coordinator::waitUntilOver, and only then
  /// destroys the coordinator.
  void leave();

private:
  class Implementation;
  explicit Member(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

} // namespace zorse::runtime
