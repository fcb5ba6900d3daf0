// The control plane of a job: a coordinator (in the launcher, or in rank 0 where there is no launcher of ours) and one connection from every rank. It
// admits ranks that know the job's secret, carries exchanges (Group.h), heartbeats, step reports, the agreement on an early stop, and failures:
//
//   rank 2 --failure--> coordinator --first cause--> every rank      each exits after it has heard (or after kVerdictSeconds)
//
// A rank counts as lost when its connection ends without a goodbye, or when nothing was heard from it for `deadlineSeconds`: a stopped process misses
// heartbeats, a slow one does not. The job counts as stalled when no rank has made progress for `stallSeconds` while a step is under way.
//
// The wire is runtime/schema/control.proto in frames with a length that is checked before anything is allocated. Before a peer has proved the secret
// (HMAC-SHA256 over both sides' nonces, the job, the generation and the role, in both directions) frames are at most kGreetingBytes.
#pragma once

#include "zorse/runtime/Group.h"
#include "zorse/runtime/Status.h"
#include "zorse/runtime/Unheard.h"

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

/// What ranks of one job share and others do not know.
struct JobKey {
  std::string job;    ///< names the job among others of the same user: jobs of different names never meet, even with one secret.
  std::string secret; ///< at least 16 bytes
};

/// The secret: from ZORSE_SECRET, from the file that `file` or ZORSE_SECRET_FILE names, else from ~/.config/zorse/secret, which is made (mode 0600,
/// random) when it is not there. A file that others may read is an error. ZORSE_SECRET leaves the environment when it is read: neither programs that
/// this process starts nor the machine code of a bundle find it there. So it is asked for once.
Result<std::string> jobSecret(const std::string &file);

/// Removes ZORSE_SECRET from the environment, for a process that needs none, and returns it.
std::string takeSecretFromEnvironment();

inline constexpr uint32_t kNoRank = UINT32_MAX;
inline constexpr double kVerdictSeconds = 1.0;
inline constexpr double kLateSeconds = 5.0;

/// Why a job ended; and what a rank reports of itself with Member::fail.
///
/// A rank that reports an OwnError without a peer is believed. One that blames a peer, or that lost a transfer without knowing by whom (Disconnected,
/// no peer), shows a symptom: the coordinator waits a moment for what the peer says or what became of it, follows blame from rank to rank, and
/// reports the end of that chain.
struct Failure {
  enum Cause : uint8_t {
    OwnError,         ///< of `rank`: its own error
    Died,             ///< the process of `rank` ended (kNoRank: the launcher)
    MissedHeartbeats, ///< nothing was heard of `rank` (kNoRank: of the launcher) for deadlineSeconds
    Stalled,          ///< no progress anywhere; `rank` is in the earliest unfinished entry
    Disconnected,     ///< a connection of `rank` ended and nobody knows more
    NotJoined,        ///< `rank` (the lowest of those missing) did not join within joinSeconds
  };
  Cause cause = OwnError;
  ErrorKind kind = ErrorKind::User;
  uint32_t rank = kNoRank; ///< whose failure it is
  uint32_t peer = kNoRank; ///< whom that rank blames (a transfer's other end): the coordinator prefers what it knows of the peer itself.
  std::string device;      ///< of `rank`; Member::fail fills it in
  std::string message;     ///< of a verdict: for people, names rank, device, task and peer. Of a report: what went wrong, without the rank's name.
  std::string where;       ///< "entry 17 (receive from b) of step 4"; empty: as the rank's progress says, or outside of any
  int exitCode = 2;        ///< of the job
};

/// What a rank whose work ended with `error` reports of itself.
Failure failureOf(const Error &error);

/// What a rank says of itself in every heartbeat.
struct RankProgress {
  uint64_t counter = 0;  ///< grows whenever anything was done: entries finished, pieces of transfers moved.
  bool underWay = false; ///< a step has been submitted and is not done.
  std::string where;     ///< "is in entry 17 (receive from b) of step 4": the earliest unfinished entry
  uint64_t step = 0;     ///< of that entry
  uint32_t entry = 0;
  std::vector<Unheard> unheard; ///< peers that this rank does not hear
};

struct ControlTimes {
  double heartbeatSeconds = 0.25;
  double deadlineSeconds = 10; ///< nothing heard of a rank for so long: it is lost.
  double stallSeconds = 300;   ///< no progress anywhere for so long although steps are under way: the job is given up.
  double joinSeconds = 60;     ///< all ranks must have joined so long after the coordinator's start; a rank tries so long to reach it.
};

struct CoordinatorOptions {
  JobKey key;
  uint32_t world = 1;
  uint64_t generation = 1;
  std::string listenAddress = "127.0.0.1";
  std::vector<uint16_t> ports = {0}; ///< the first free one is taken; 0: any
  ControlTimes times;                ///< also of the members, but for joinSeconds: they learn them when they join.
  uint32_t rank = kNoRank;           ///< the rank whose process this is; kNoRank: a launcher's
  std::vector<std::string> devices;  ///< by rank, for messages about ranks that have not joined; may be empty
};

class Coordinator {
public:
  static Result<std::unique_ptr<Coordinator>> start(const CoordinatorOptions &options);
  /// Ends its thread and closes all connections: to ranks that have not left yet the coordinator has died. See waitUntilOver.
  ~Coordinator();

  uint16_t port() const;

  /// A launcher saw the process of a rank end: more precise than its closed connection. Ends the job if that was a failure, or if others still wait
  /// for the rank.
  /// \param how  goes on after the rank's name: "was killed by signal 9 (Killed)", "exited with code 3"
  void processEnded(uint32_t rank, bool failed, const std::string &how, int exitCode);
  /// Ends the run early, as StepGate::requestStop of a rank does.
  void requestStop();
  /// The first cause, once there is one.
  std::optional<Failure> failure() const;
  /// Waits until every rank has left or the job has failed and every living rank has been told, or `seconds` have passed. True: it is over.
  bool waitUntilOver(double seconds);
  /// Of a job that has failed, before its process ends: waits until those that had not joined have come and heard why, at most `seconds`. Otherwise
  /// they would look for a coordinator as long as they may. Returns at once when the failure is that ranks did not come.
  void waitForLateRanks(double seconds = kLateSeconds);

private:
  class Implementation;
  explicit Coordinator(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

struct MemberOptions {
  JobKey key;
  uint32_t rank = 0, world = 1;
  uint64_t generation = 0;         ///< 0: whatever the coordinator's is. Otherwise one that differs is refused by both sides.
  std::vector<Endpoint> endpoints; ///< tried in turn until one is this job's coordinator
  std::string device;              ///< for messages: "a100:0"
  ControlTimes times;
  std::function<RankProgress()> progress; ///< called by the control thread and by `fail`; may be null until `setProgress`
  std::function<void(const Failure &)>
      failed; ///< the job has failed; once, in the control thread, also for failures of this rank. It may _exit. Not after leave().
  std::function<void(const std::string &)> reported; ///< what `report` of some rank said to this one; in order, in the control thread.
};

class Member : public Group, public StepGate {
public:
  /// Connects, proves the secret both ways and joins. Returns once the coordinator has admitted this rank (others may still be missing).
  static Result<std::unique_ptr<Member>> join(MemberOptions options);
  ~Member() override;

  uint32_t rank() const override;
  uint32_t size() const override;
  uint64_t generation() const override;
  Result<std::vector<std::string>> exchange(const std::string &name, const std::string &mine) override;
  bool enter(uint64_t turn) override;
  void requestStop() override;

  /// When it returns the former function is not running and is not called again. Not from within one of the callbacks.
  void setProgress(std::function<RankProgress()> progress);

  /// To rank 0's `reported`, or to every rank's, this one's included. Does not block on the peer.
  void report(const std::string &bytes, bool toAll = false);

  /// Tells the job that this rank has failed, waits for the verdict (at most kVerdictSeconds) and for the end of `failed`, and returns it: the first
  /// cause, which may be another's. From one of the callbacks: returns `mine` at once, the verdict follows through `failed`. After leave(): returns
  /// `mine`.
  Failure fail(const Failure &mine);

  /// Says goodbye after the last exchange and waits until the coordinator knows: a connection that ends after it is no failure. Does nothing when the
  /// job has failed. A rank that hosts the coordinator leaves, waits for Coordinator::waitUntilOver and only then destroys the coordinator.
  void leave();

private:
  class Implementation;
  explicit Member(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

} // namespace zorse::runtime
