// How processes of a job come to be: places from a launcher's environment, and our own launcher.
//
// Environments are tried in this order (docs/launching.md): ZORSE_*; torchrun; PMIx; Open MPI and PMI; Slurm; then node-level ones, where this process starts the ranks of its
// node: PET_*, LeaderWorkerSet, JobSet.
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
  std::string source;                    ///< "torchrun", "Slurm", ...: printed
  bool isNode = false;                   ///< true: `rank` and `world` count nodes, and this process starts its node's ranks.
  uint32_t rank = 0, world = 1, localRank = 0;
  uint64_t attempt = 0;                  ///< restarts before this one, as far as the launcher counts them
  std::string job;                       ///< the launcher's name of the job
  std::vector<Endpoint> coordinator;     ///< where rank 0 (or the launcher) may be reached, in the order to try
  bool coordinatorElsewhere = false;     ///< our launcher is the coordinator: rank 0 starts none.
  bool oneHost = false;                  ///< all ranks are on this host: listen on loopback only.
};

/// nullopt: not launched by anybody. An error names the variables that contradict each other or lack their partners.
Result<std::optional<Place>> placeFromEnvironment(const Environment &environment);

struct LaunchOptions {
  std::vector<std::string> command;      ///< argv of a rank
  uint32_t world = 1;                    ///< ranks of the job
  uint32_t firstRank = 0, localRanks = 1; ///< those of this node
  JobKey key;
  std::string listenAddress = "127.0.0.1";
  std::vector<Endpoint> coordinator;     ///< of another node's launcher; empty: this launcher is the coordinator.
  uint64_t restarts = 0;
  std::function<uint64_t()> nextGeneration; ///< asked before every start
  std::vector<std::string> deviceNames;  ///< by rank; the prefix of its lines
  ControlTimes times;
  std::function<void()> onSignal;        ///< null: SIGINT and SIGTERM ask the ranks to stop after their steps.
};

/// Starts the ranks as processes in groups of their own, passes their lines on with prefixes, and waits. When one fails the others are told, get SIGTERM and after
/// two seconds SIGKILL. Returns the exit code of the first failure, 0 when all succeeded, 130 when stopped early. Nobody outlives it, even if it is killed.
int launch(const LaunchOptions &options);

} // namespace zorse::runtime
