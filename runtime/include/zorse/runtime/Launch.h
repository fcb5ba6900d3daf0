// Start of a job's processes: the rank environment that a launcher sets, and the launcher of
// zorse-run.
//
// Environments are tried in this order (docs/reference/environment.md): ZORSE_*; torchrun; PMIx;
// Open MPI and PMI; Slurm; then node-level ones, in which this process starts the ranks of its
// node: PET_*, RANK without LOCAL_RANK, LeaderWorkerSet, JobSet.
#pragma once

#include "zorse/runtime/Control.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace zorse::runtime {

using Environment = std::map<std::string, std::string>;
Environment currentEnvironment();

/// Rank environment: the place of this process in a job that another launcher started.
struct RankEnvironment {
  std::string source;  ///< "torchrun", "Slurm", ...; printed
  bool isNode = false; ///< true: `rank` and `worldSize` count nodes, and this process starts the
                       ///< ranks of its node
  uint32_t rank = 0, worldSize = 1, localRank = 0;
  uint64_t attempt = 0;              ///< restarts before this one, as counted by the launcher
  uint64_t generation = 0;           ///< as set by our launcher; 0: not set
  std::string job;                   ///< job name of the launcher
  std::vector<Endpoint> coordinator; ///< addresses of rank 0 or of the launcher, in the order to
                                     ///< try
  bool coordinatorElsewhere = false; ///< our launcher is the coordinator; rank 0 starts none
  bool oneHost = false;              ///< all ranks are on this host: listen on loopback only
};

/// Facts about this process's job that PMIx provides and environment variables do not.
struct PmixInfo {
  uint32_t worldSize = 0, localRank = 0, localRanks = 0;
  std::string firstHost; ///< host of rank 0
};
using AskPmix = std::function<Result<PmixInfo>()>;
/// Queries the launcher through libpmix, which is loaded on first use. Returns an error if the
/// library or a server is missing.
Result<PmixInfo> askPmix();

/// Returns nullopt if no launcher started this process or if ZORSE_LAUNCHER=none is set. The error
/// names the variables that contradict each other or are incomplete. `pmix` is called only if the
/// environment leaves something open that PMIx provides.
Result<std::optional<RankEnvironment>> readRankEnvironment(const Environment &environment,
                                                           const AskPmix &pmix = askPmix);

/// Parses "host:port", "[::1]:port", "host:first-last", or several of them separated by commas.
/// `name` is the variable or option, for the error.
Result<std::vector<Endpoint>> parseEndpoints(const std::string &name, const std::string &text);
/// Formats endpoints in the syntax of parseEndpoints.
std::string endpointsText(const std::vector<Endpoint> &endpoints);

/// Returns the address on which the coordinator listens on its own host: loopback for jobs of one
/// host, otherwise the address by which other hosts know this host, if this host has it.
/// `asked` is --local-addr: an address of this host, the name of a network interface, or a network
/// ("10.1.0.0/16", equal on all hosts). It may be empty.
Result<std::string> coordinatorAddress(const RankEnvironment &environment,
                                       const std::string &asked);
/// Returns the address on which a rank listens for other ranks: loopback for jobs of one host,
/// otherwise `asked`, otherwise the address through which this host reaches the coordinator.
Result<std::string> rankAddress(const RankEnvironment &environment, const std::string &asked);

/// Returns a random key for a job on this machine only. No other process can know or guess it.
JobKey randomJobKey();

/// Seconds within which repeated signals count as one request: `timeout`, torchrun and terminals
/// send a signal to a process and to its group. A later signal ends the job immediately.
inline constexpr double kOneRequestSeconds = 0.5;

/// Exit code of a rank of an elastic job that was asked to end (SIGTERM), as before its node is
/// taken away. All ranks end after the current step; the others start again.
inline constexpr int kLeavingRank = 143;

/// How one start of the ranks ended.
struct LaunchOutcome {
  uint64_t start = 0; ///< number of this start, from 0
  bool failed = false;
  uint32_t rank = kNoRank; ///< rank that failed first; kNoRank: none, or it is not known
  /// Ranks that had to be killed, because they did not end after the failure, or whose start
  /// command ended with 255, as ssh does if its connection ends: their nodes may be gone.
  std::vector<uint32_t> lost;
  std::vector<uint32_t> leaving; ///< ranks that were asked to end
  double seconds = 0; ///< since the failure was noticed, or since the ranks were asked to stop
  std::string why;    ///< "rank 2 (device t4:0) was killed by signal 9 (Killed)"; empty: nothing
                      ///< happened to the ranks
};

struct LaunchOptions;

/// Decides which devices take part in an elastic job, whose ranks are started again when they
/// change.
class Reconfiguration {
public:
  virtual ~Reconfiguration() = default;

  /// Called about ten times a second while ranks run. Returns whether they should stop after their
  /// step, because other devices take part from then on.
  virtual bool shouldStop() = 0;

  struct Next {
    enum class Action : uint8_t { Wait, Start, End } action = Action::Wait;
    std::string message; ///< printed if not empty
  };
  /// Called after the ranks have ended, about a hundred times a second until it does not return
  /// Wait. Before Start, it sets worldSize, localRanks, deviceNames and environment of `options`.
  virtual Next next(const LaunchOutcome &outcome, LaunchOptions &options) = 0;
};

struct LaunchOptions {
  std::vector<std::string> command; ///< argv of a rank
  std::string program;    ///< path of the program; empty: command[0], looked up as in a shell
  uint32_t worldSize = 1; ///< ranks of the job
  uint32_t firstRank = 0, localRanks = 1; ///< ranks of this node
  JobKey key;
  std::string listenAddress = "127.0.0.1"; ///< address of the coordinator if it is this launcher
  std::vector<uint16_t> ports = {0}; ///< ports of the coordinator; the first free one is used; 0:
                                     ///< any
  std::vector<Endpoint> coordinator; ///< of another node's launcher; empty: this launcher is the
                                     ///< coordinator
  uint64_t restarts = 0;
  std::map<std::string, std::string> environment; ///< additional variables of the ranks
  /// Shell command that starts a rank on a node (StartCommand.h); empty: ranks
  /// are started on this host. It gets the ranks' environment. The command line of a rank has it,
  /// too, without ZORSE_SECRET.
  std::string startCommand;
  std::vector<std::string> nodeNames;         ///< by rank, for `startCommand`
  Reconfiguration *reconfiguration = nullptr; ///< not null: it decides about further starts instead
                                              ///< of `restarts`
  std::function<uint64_t()> nextGeneration;   ///< called before every start if this launcher is the
                                              ///< coordinator; null: 1, 2, ...
  std::function<std::string()> startsFrom;    ///< start of a restarted run, for its message:
                                           ///< "checkpoint step-00000120"; null or empty: omitted
  std::vector<std::string> deviceNames; ///< by rank; prefixes of the ranks' lines
  bool plainRankZero = true; ///< rank 0's standard output has no prefix, because it is the job's
                             ///< progress
  ControlTimes times;
  std::function<void()> onSignal; ///< null: SIGINT and SIGTERM ask the ranks to stop after their
                                  ///< steps
  int out = 1, err = 2;           ///< descriptors for the lines
};

/// Starts the ranks as processes in separate process groups, forwards their lines with prefixes,
/// and waits. If a rank fails, the coordinator notifies the others; they get SIGTERM after 0.5 s
/// and SIGKILL 2 s after the failure. Returns the exit code of the first failure (128 + n for
/// signal n), 0 if all ranks succeeded, 130 if the job stopped early. No rank outlives the
/// launcher, even if the launcher is killed. A process that does not end within
/// times.deadlineSeconds after all ranks have left the job is killed with a warning.
///
/// One SIGINT, SIGTERM or SIGHUP requests an orderly stop; a second one stops the job immediately.
/// SIGUSR1 also requests an orderly stop: some launchers forward it, but kill ranks after SIGTERM.
/// A rank that exits with 130 stopped early; that is not a failure.
///
/// After a failure all ranks are started again, at most `restarts` times. They are not restarted if
/// the first failure has exit code 1 (an error in the input, which a restart does not fix), 126 or
/// 127 (the program cannot be executed), or if a stop was requested. Ranks read the number of
/// restarts from ZORSE_RESTARTS (RankEnvironment::attempt).
///
/// Call it from a thread that lives as long as the call, because the kernel ends the ranks with the
/// thread that started them. Call it before other threads are started: it blocks signals, and a
/// thread that does not block them would receive them.
int launch(const LaunchOptions &options);

} // namespace zorse::runtime
