// Reads the variables of launchers that start one process per node.
#include "LauncherEnvironments.h"

using namespace zorse::runtime;
using namespace zorse::runtime::launching;

namespace {

/// The first port of the coordinator: `name` if it is set. The port is free, because torchrun does
/// not listen on it.
Result<uint32_t> firstPort(const Variables &v, const std::string &name) {
  if (!v.has(name))
    return uint32_t(kDefaultPort);
  Result<uint64_t> port = v.number(name, 1, 65535);
  if (port.failed())
    return port.error();
  return uint32_t(*port);
}

RankEnvironment nodeEnvironment(const std::string &source) {
  RankEnvironment environment;
  environment.source = source;
  environment.isNode = true;
  return environment;
}

void meet(RankEnvironment &environment, const std::string &host, uint32_t port) {
  environment.oneHost = environment.worldSize == 1;
  environment.coordinator = portsFrom(environment.oneHost ? "127.0.0.1" : host, port);
}

} // namespace

MaybeEnvironment launching::readPetEnvironment(const Variables &v) {
  if (!v.has("PET_NNODES") && !v.has("PET_NODE_RANK"))
    return std::optional<RankEnvironment>();
  // "2:2" also means two nodes; "1:4" is torchrun's notation for a variable number of nodes.
  std::string nodes = v.text("PET_NNODES");
  if (size_t colon = nodes.find(':'); colon != std::string::npos) {
    if (nodes.substr(0, colon) != nodes.substr(colon + 1))
      return userError(shown("PET_NNODES", nodes) +
                       ": expects a fixed number of nodes, as a bundle is compiled for its "
                       "devices. Write PET_NNODES=" +
                       nodes.substr(colon + 1) + " and compile for that many nodes");
    nodes = nodes.substr(0, colon);
  }
  // No other variables are needed for one node.
  if (nodes == "1" && !v.has("PET_NODE_RANK") && !v.has("PET_MASTER_ADDR"))
    return std::optional<RankEnvironment>();
  bool several = nodes != "1";
  if (Status status = several ? v.complete("PET_* variables",
                                           {"PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR"})
                              : v.complete("PET_* variables", {"PET_NNODES", "PET_NODE_RANK"});
      status.failed())
    return status;
  Environment plain = {{"PET_NNODES", nodes}, {"PET_NODE_RANK", v.text("PET_NODE_RANK")}};
  RankEnvironment environment = nodeEnvironment("PET_NNODES (node level)");
  if (Status status = Variables(plain).rankAndWorld("PET_NODE_RANK", "PET_NNODES", environment.rank,
                                                    environment.worldSize);
      status.failed())
    return status;
  Result<uint32_t> port = firstPort(v, "PET_MASTER_PORT");
  if (port.failed())
    return port.error();
  meet(environment, v.text("PET_MASTER_ADDR"), *port);
  environment.job = "pet/" + v.text("PET_RDZV_ID") + "/" + v.text("PET_MASTER_ADDR") + ":" +
                    std::to_string(*port);
  return std::optional<RankEnvironment>(environment);
}

MaybeEnvironment launching::readRankOfNodeEnvironment(const Variables &v) {
  if (!v.has("RANK"))
    return std::optional<RankEnvironment>();
  if (Status status = v.complete("RANK without LOCAL_RANK, the index of a node",
                                 {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"});
      status.failed())
    return status;
  RankEnvironment environment = nodeEnvironment("RANK without LOCAL_RANK (node level)");
  if (Status status = v.rankAndWorld("RANK", "WORLD_SIZE", environment.rank, environment.worldSize);
      status.failed())
    return status;
  Result<uint32_t> port = firstPort(v, "MASTER_PORT");
  if (port.failed())
    return port.error();
  meet(environment, v.text("MASTER_ADDR"), *port);
  environment.job = "nodes/" + v.text("MASTER_ADDR") + ":" + v.text("MASTER_PORT");
  return std::optional<RankEnvironment>(environment);
}

MaybeEnvironment launching::readLeaderWorkerSetEnvironment(const Variables &v) {
  if (!v.has("LWS_LEADER_ADDRESS") && !v.has("LWS_GROUP_SIZE") && !v.has("LWS_WORKER_INDEX"))
    return std::optional<RankEnvironment>();
  if (Status status = v.complete("LeaderWorkerSet",
                                 {"LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX"});
      status.failed())
    return status;
  RankEnvironment environment = nodeEnvironment("LeaderWorkerSet (node level)");
  if (Status status = v.rankAndWorld("LWS_WORKER_INDEX", "LWS_GROUP_SIZE", environment.rank,
                                     environment.worldSize);
      status.failed())
    return status;
  meet(environment, v.text("LWS_LEADER_ADDRESS"), kDefaultPort);
  environment.job = "lws/" + v.text("LWS_LEADER_ADDRESS"); // the leader's name distinguishes the
                                                           // groups of the set
  return std::optional<RankEnvironment>(environment);
}

MaybeEnvironment launching::readJobSetEnvironment(const Variables &v) {
  if (!v.has("JOB_COMPLETION_INDEX"))
    return std::optional<RankEnvironment>();
  // Kubernetes sets only the index; the manifest adds the other variables
  // (docs/guides/clusters.md).
  const char *wanted = "expects NNODES, the Job's completions, and JOBSET_NAME and "
                       "REPLICATED_JOB_NAME (or MASTER_ADDR, the first pod's host name) to be set";
  if (!v.has("NNODES") ||
      !(v.has("MASTER_ADDR") || (v.has("JOBSET_NAME") && v.has("REPLICATED_JOB_NAME"))))
    return userError(shown("JOB_COMPLETION_INDEX", v.text("JOB_COMPLETION_INDEX")) +
                     " shows that this is a pod of an indexed Job, but neither the number of pods "
                     "nor the address of the first one is set: " +
                     wanted +
                     ". Add them to the manifest, or set ZORSE_LAUNCHER=none to start a separate "
                     "run in every pod");
  RankEnvironment environment = nodeEnvironment("JobSet (node level)");
  if (Status status =
          v.rankAndWorld("JOB_COMPLETION_INDEX", "NNODES", environment.rank, environment.worldSize);
      status.failed())
    return status;
  std::string host = v.text("MASTER_ADDR");
  if (host.empty()) {
    // Pod 0 of this replica of the Job, in the headless service that has the JobSet's name.
    std::string job = v.has("JOB_INDEX") ? v.text("JOB_INDEX") : "0";
    if (v.has("JOB_INDEX"))
      if (Result<uint64_t> index = v.number("JOB_INDEX", 0, kMaxRanks); index.failed())
        return index.error();
    host = v.text("JOBSET_NAME") + "-" + v.text("REPLICATED_JOB_NAME") + "-" + job + "-0." +
           (v.has("JOBSET_SUBDOMAIN") ? v.text("JOBSET_SUBDOMAIN") : v.text("JOBSET_NAME"));
  }
  Result<uint32_t> port = firstPort(v, "MASTER_PORT");
  if (port.failed())
    return port.error();
  meet(environment, host, *port);
  environment.job = "jobset/" + v.text("JOBSET_NAME") + "/" + host;
  if (v.has("JOBSET_RESTART_ATTEMPT")) {
    Result<uint64_t> attempt = v.number("JOBSET_RESTART_ATTEMPT", 0, uint64_t(1) << 40);
    if (attempt.failed())
      return attempt.error();
    environment.attempt = *attempt;
  }
  return std::optional<RankEnvironment>(environment);
}
