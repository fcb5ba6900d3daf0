// How processes of a job come to be: places from a launcher's environment, and our own launcher.
//
// Environments are tried in this order (docs/launching.md): ZORSE_*; torchrun; PMIx; Open MPI and PMI; Slurm; then node-level ones, where this
// process starts the ranks of its node: PET_*, RANK without LOCAL_RANK, LeaderWorkerSet, JobSet.
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

/// Where this process stands in a job that somebody else launched.
struct Place {
  std::string source;  ///< "torchrun", "Slurm", ...: printed
  bool isNode = false; ///< true: `rank` and `world` count nodes, and this process starts its node's ranks.
  uint32_t rank = 0, world = 1, localRank = 0;
  uint64_t attempt = 0;              ///< restarts before this one, as far as the launcher counts them
  uint64_t generation = 0;           ///< as our launcher told; 0: not told
  std::string job;                   ///< the launcher's name of the job
  std::vector<Endpoint> coordinator; ///< where rank 0 (or the launcher) may be reached, in the order to try
  bool coordinatorElsewhere = false; ///< our launcher is the coordinator: rank 0 starts none.
  bool oneHost = false;              ///< all ranks are on this host: listen on loopback only.
};

/// What PMIx knows of this process's job and environment variables do not say.
struct PmixFacts {
  uint32_t world = 0, localRank = 0, localRanks = 0;
  std::string firstHost; ///< of rank 0
};
using AskPmix = std::function<Result<PmixFacts>()>;
/// Asks the launcher through libpmix, loaded when needed. An error where the library or a server is missing.
Result<PmixFacts> askPmix();

/// nullopt: not launched by anybody, or told so by ZORSE_LAUNCHER=none. An error names the variables that contradict each other or lack their
/// partners. `pmix` is asked only where the environment leaves something open that PMIx knows.
Result<std::optional<Place>> placeFromEnvironment(const Environment &environment, const AskPmix &pmix = askPmix);

/// "host:port", "[::1]:port", "host:first-last", several separated by commas. `name` is the variable or option, for the error.
Result<std::vector<Endpoint>> parseEndpoints(const std::string &name, const std::string &text);
/// What parseEndpoints reads.
std::string endpointsText(const std::vector<Endpoint> &endpoints);

/// Where the coordinator listens, on its own host: loopback for jobs of one host, else the address by which the others know this host, if it has it.
/// `asked` is --listen: an address of this host, the name of a network interface or a network ("10.1.0.0/16", the same word for all hosts); may be
/// empty.
Result<std::string> coordinatorAddress(const Place &place, const std::string &asked);
/// Where a rank listens for other ranks: loopback for jobs of one host, else `asked`, else the address through which this host reaches the
/// coordinator.
Result<std::string> rankAddress(const Place &place, const std::string &asked);

/// A key for a job of this machine alone that nobody else can know or guess.
JobKey randomJobKey();

/// Signals that come so soon after the first are the same request: `timeout`, torchrun and terminals send one to a process and to its group. A later
/// one insists.
inline constexpr double kOneRequestSeconds = 0.5;

struct LaunchOptions {
  std::vector<std::string> command;       ///< argv of a rank
  std::string program;                    ///< its path; empty: command[0], as a shell finds it
  uint32_t world = 1;                     ///< ranks of the job
  uint32_t firstRank = 0, localRanks = 1; ///< those of this node
  JobKey key;
  std::string listenAddress = "127.0.0.1"; ///< of the coordinator, where it is this launcher
  std::vector<uint16_t> ports = {0};       ///< likewise: the first free one is taken; 0: any
  std::vector<Endpoint> coordinator;       ///< of another node's launcher; empty: this launcher is the coordinator.
  uint64_t restarts = 0;
  std::function<uint64_t()> nextGeneration; ///< asked before every start where this launcher is the coordinator; null: 1, 2, ...
  std::function<std::string()> startsFrom;  ///< where a restart begins, for its line: "snapshot step-00000120"; null or empty: not said
  std::vector<std::string> deviceNames;     ///< by rank; the prefix of its lines
  bool plainRankZero = true;                ///< lines of rank 0's standard output go unprefixed: they are the job's progress.
  ControlTimes times;
  std::function<void()> onSignal; ///< null: SIGINT and SIGTERM ask the ranks to stop after their steps.
  int out = 1, err = 2;           ///< where lines go
};

/// Starts the ranks as processes in groups of their own, passes their lines on with prefixes, and waits. When one fails the others are told through
/// the coordinator, get SIGTERM after half a second and SIGKILL two seconds after the failure. Returns the exit code of the first failure (128 + n
/// for signal n), 0 when all succeeded, 130 when stopped early. Nobody outlives it, even if it is killed; a process that does not end within
/// times.deadlineSeconds after all have left the job is killed with a warning.
///
/// SIGINT, SIGTERM or SIGHUP once: an orderly stop; twice: at once. SIGUSR1, which some launchers pass on where they end ranks after SIGTERM: an
/// orderly stop. A rank that exits with 130 stopped early, which is no failure.
///
/// After a failure all ranks are started again, `restarts` times in all, but not when the first failure has exit code 1 (an error in the input, which
/// a restart does not mend), 126 or 127 (the program cannot be run), or when a stop was asked for. Ranks find how many restarts there were in
/// ZORSE_RESTARTS (Place::attempt).
///
/// Call it from a thread that lives as long as it runs (the kernel ends the ranks with the thread that started them), and before others are started:
/// it blocks signals, and a thread that does not would take them.
int launch(const LaunchOptions &options);

} // namespace zorse::runtime
