// Descriptions of several machines in one: as a rank of a job, or by starting one process per host.
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
  std::function<void(const std::string &)> say; ///< lines for people; null: silent
};

/// This process is a rank. \returns the whole cluster on rank 0, an empty one on others. A failed job ends the process.
runtime::Result<planning::Cluster> gather(const runtime::Place &place, const Description &mine, const GatherOptions &options);

struct HostsOptions {
  std::vector<std::string> hosts;
  std::vector<std::string> shell = {"ssh", "-o", "BatchMode=yes"}; ///< words before the host's name
  std::string command = "zorse-cluster";                           ///< on the hosts
  std::vector<std::string> more;                                   ///< options for it
};

/// Starts `zorse-cluster` as one rank per host and returns what rank 0 writes. The job's secret goes through standard input.
runtime::Result<std::string> gatherFromHosts(const HostsOptions &options);

} // namespace zorse::cluster
