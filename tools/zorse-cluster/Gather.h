// Collects descriptions of several machines into one cluster: as a rank of a job, or by starting
// one process per host.
#pragma once

#include "Describe.h"

#include "zorse/runtime/Launch.h"

#include <functional>
#include <string>
#include <vector>

namespace zorse::cluster {

struct GatherOptions {
  std::string name;
  bool measure = false;
  double linkSeconds = 1, joinSeconds = 60;
  std::string secretFile, listen;
  std::function<void(const std::string &)> say; ///< receives progress lines; null: silent
};

/// Called by every rank. Returns the whole cluster on rank 0 and an empty one on other ranks. If
/// the job fails, the process exits.
runtime::Result<planning::Cluster> gather(const runtime::RankEnvironment &environment,
                                          const Description &mine, const GatherOptions &options);

struct HostsOptions {
  std::vector<std::string> hosts;
  std::vector<std::string> shell = {"ssh", "-o", "BatchMode=yes"}; ///< words before the host's name
  std::string command = "zorse-cluster";                           ///< command on the remote hosts
  std::vector<std::string> more; ///< additional options for the command
};

/// Starts `zorse-cluster` as one rank per host and returns the output of rank 0. The job's secret
/// is sent through standard input.
runtime::Result<std::string> gatherFromHosts(const HostsOptions &options);

} // namespace zorse::cluster
