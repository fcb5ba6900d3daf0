// Reads the variables of launchers that start one process per rank, and tries all launchers in
// order.
#include "LauncherEnvironments.h"
#include "HostList.h"

using namespace zorse::runtime;
using namespace zorse::runtime::launching;

namespace {

bool isLoopback(const std::string &host) {
  return host.rfind("127.", 0) == 0 || host == "localhost" || host == "::1";
}

/// Reads the number of ranks on this host from `name`, if it is set: at least one, at most the
/// world size.
Status setOneHost(const Variables &v, const std::string &name, RankEnvironment &environment) {
  if (name.empty())
    return Status::success();
  Result<uint64_t> local = v.number(name, 1, kMaxRanks);
  if (local.failed())
    return local.error();
  if (*local > environment.worldSize)
    return userError(shown(name, v.text(name)) + ": expects at most the " +
                     std::to_string(environment.worldSize) +
                     " ranks of the job. Correct the one that is wrong where the job is launched");
  environment.oneHost = *local == environment.worldSize;
  return Status::success();
}

Status setLocalRank(const Variables &v, const std::string &name, RankEnvironment &environment) {
  if (name.empty())
    return Status::success();
  Result<uint64_t> local = v.number(name, 0, kMaxRanks - 1);
  if (local.failed())
    return local.error();
  if (*local >= environment.worldSize)
    return userError(shown(name, v.text(name)) + ": expects less than the " +
                     std::to_string(environment.worldSize) +
                     " ranks of the job. Correct the one that is wrong where the job is launched");
  environment.localRank = uint32_t(*local);
  return Status::success();
}

Status setAttempt(const Variables &v, const std::string &name, RankEnvironment &environment) {
  if (!v.has(name))
    return Status::success();
  Result<uint64_t> attempt = v.number(name, 0, uint64_t(1) << 40);
  if (attempt.failed())
    return attempt.error();
  environment.attempt = *attempt;
  return Status::success();
}

/// Ranks on one host meet on the loopback interface, at ports that are derived from the job's name.
void meetOnLoopback(RankEnvironment &environment) {
  environment.coordinator = portsFrom("127.0.0.1", portOfJob(environment.job));
}

/// Whether an srun step started this process. A batch script's own process and a shell in an
/// allocation also have Slurm's variables.
bool inSlurmStep(const Variables &v) {
  if (!v.has("SLURM_PROCID"))
    return false;
  std::string step = v.firstOf({"SLURM_STEP_ID", "SLURM_STEPID"});
  if (step.empty())
    return v.text("ENVIRONMENT") != "BATCH";
  Result<uint64_t> id = v.number(step, 0, UINT32_MAX);
  return id.failed() || *id < 0xfffffff0; // larger ids: batch scripts, interactive shells and
                                          // others that are not tasks of srun
}

std::string slurmTasks(const Variables &v) {
  return v.firstOf({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"});
}

/// Whether Slurm's variables describe the same rank of the same world. srun is then the launcher
/// behind PMI or PMIx.
bool isSlurmsRank(const Variables &v, const RankEnvironment &environment) {
  return inSlurmStep(v) && v.text("SLURM_PROCID") == std::to_string(environment.rank) &&
         v.text(slurmTasks(v)) == std::to_string(environment.worldSize);
}

Error tellStore(const RankEnvironment &environment, const std::string &why) {
  return userError(environment.source + " started " + std::to_string(environment.worldSize) +
                   " ranks on several hosts and does not tell where rank 0 is" + why +
                   ". Set ZORSE_STORE=host:port for all ranks: a host of rank 0's machine that the "
                   "others reach, and a free port (mpirun -x "
                   "ZORSE_STORE=node1:29600 ...)");
}

} // namespace

MaybeEnvironment launching::readZorseEnvironment(const Variables &v) {
  if (!v.has("ZORSE_RANK") && !v.has("ZORSE_WORLD_SIZE") && !v.has("ZORSE_LOCAL_RANK"))
    return std::optional<RankEnvironment>();
  if (Status status = v.complete("ZORSE_* variables", {"ZORSE_RANK", "ZORSE_WORLD_SIZE",
                                                       "ZORSE_LOCAL_RANK", "ZORSE_STORE"});
      status.failed())
    return status;
  RankEnvironment environment;
  environment.source = "ZORSE_RANK";
  if (Status status =
          v.rankAndWorld("ZORSE_RANK", "ZORSE_WORLD_SIZE", environment.rank, environment.worldSize);
      status.failed())
    return status;
  if (Status status = setLocalRank(v, "ZORSE_LOCAL_RANK", environment); status.failed())
    return status;
  Result<std::vector<Endpoint>> store = parseEndpoints("ZORSE_STORE", v.text("ZORSE_STORE"));
  if (store.failed())
    return store.error();
  environment.oneHost = true;
  for (const Endpoint &endpoint : *store)
    environment.oneHost = environment.oneHost && isLoopback(endpoint.host);
  if (Status status = setOneHost(v, v.firstOf({"ZORSE_LOCAL_WORLD_SIZE"}), environment);
      status.failed())
    return status;
  if (v.has("ZORSE_COORDINATOR") && v.text("ZORSE_COORDINATOR") != "launcher" &&
      v.text("ZORSE_COORDINATOR") != "rank0")
    return userError(shown("ZORSE_COORDINATOR", v.text("ZORSE_COORDINATOR")) +
                     ": expects 'launcher' (another process listens at ZORSE_STORE) or 'rank0', "
                     "which is the default");
  environment.coordinatorElsewhere = v.text("ZORSE_COORDINATOR") == "launcher";
  if (environment.coordinatorElsewhere)
    environment.source = "zorse-run";
  environment.job = "zorse/" + v.text("ZORSE_STORE");
  if (Status status = setAttempt(v, "ZORSE_RESTARTS", environment); status.failed())
    return status;
  if (v.has("ZORSE_GENERATION")) {
    Result<uint64_t> generation = v.number("ZORSE_GENERATION", 0, uint64_t(1) << 56);
    if (generation.failed())
      return generation.error();
    environment.generation = *generation;
  }
  return std::optional<RankEnvironment>(environment);
}

MaybeEnvironment launching::readTorchrunEnvironment(const Variables &v) {
  if (!v.has("RANK") || !v.has("LOCAL_RANK")) // RANK without LOCAL_RANK is a node's:
                                              // readRankOfNodeEnvironment
    return std::optional<RankEnvironment>();
  if (Status status = v.complete(
          "torchrun", {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"});
      status.failed())
    return status;
  RankEnvironment environment;
  environment.source = "torchrun";
  if (Status status = v.rankAndWorld("RANK", "WORLD_SIZE", environment.rank, environment.worldSize);
      status.failed())
    return status;
  if (Status status = setLocalRank(v, "LOCAL_RANK", environment); status.failed())
    return status;
  if (Status status = setOneHost(v, v.firstOf({"LOCAL_WORLD_SIZE"}), environment); status.failed())
    return status;
  if (v.has("LOCAL_WORLD_SIZE") &&
      environment.localRank >= *v.number("LOCAL_WORLD_SIZE", 1, kMaxRanks))
    return userError(shown("LOCAL_RANK", v.text("LOCAL_RANK")) + ": expects less than " +
                     shown("LOCAL_WORLD_SIZE", v.text("LOCAL_WORLD_SIZE")) +
                     ". Correct the one that is wrong where the job is launched");
  Result<uint64_t> port = v.number("MASTER_PORT", 1, 65534);
  if (port.failed())
    return port.error();
  // The port itself belongs to torchrun's store.
  environment.coordinator = portsFrom(v.text("MASTER_ADDR"), uint32_t(*port) + 1);
  environment.job = "torchrun/" + v.text("TORCHELASTIC_RUN_ID") + "/" + v.text("MASTER_ADDR") +
                    ":" + v.text("MASTER_PORT");
  if (Status status = setAttempt(v, "TORCHELASTIC_RESTART_COUNT", environment); status.failed())
    return status;
  return std::optional<RankEnvironment>(environment);
}

MaybeEnvironment launching::readPmixEnvironment(const Variables &v, const AskPmix &pmix) {
  if (!v.has("PMIX_RANK") && !v.has("PMIX_NAMESPACE"))
    return std::optional<RankEnvironment>();
  if (Status status = v.complete("PMIx", {"PMIX_RANK", "PMIX_NAMESPACE"}); status.failed())
    return status;
  RankEnvironment environment;
  environment.source = "PMIx";
  Result<uint64_t> rank = v.number("PMIX_RANK", 0, kMaxRanks - 1);
  if (rank.failed())
    return rank.error();
  environment.rank = uint32_t(*rank);
  environment.job = "pmix/" + v.text("PMIX_NAMESPACE");

  // PMIx's own variables do not contain the world size. Open MPI's and Slurm's do if they started
  // this process.
  std::optional<PmixInfo> info;
  auto ask = [&]() -> Status {
    Result<PmixInfo> answer = pmix ? pmix() : Result<PmixInfo>(userError("PMIx is not asked here"));
    if (answer.failed())
      return answer.error();
    info = *answer;
    return Status::success();
  };
  if (v.has("OMPI_COMM_WORLD_SIZE")) {
    MaybeEnvironment open = readOpenMpiEnvironment(v);
    if (open.failed())
      return open.error();
    if ((*open)->rank != environment.rank)
      return userError(shown("PMIX_RANK", v.text("PMIX_RANK")) + " and " +
                       shown("OMPI_COMM_WORLD_RANK", v.text("OMPI_COMM_WORLD_RANK")) +
                       " contradict each other: expects the same rank. Unset those that an outer "
                       "launcher left behind");
    std::string job = environment.job;
    environment = **open;
    environment.source = "Open MPI (PMIx)";
    environment.job = job;
  } else if (inSlurmStep(v) && v.text("SLURM_PROCID") == v.text("PMIX_RANK")) {
    MaybeEnvironment slurm = readSlurmEnvironment(v);
    if (slurm.failed())
      return slurm.error();
    environment = **slurm;
    environment.source = "Slurm (PMIx)";
    return std::optional<RankEnvironment>(environment);
  } else {
    if (Status status = ask(); status.failed())
      return userError(shown("PMIX_RANK", v.text("PMIX_RANK")) +
                       " shows that PMIx started this process, but the number of ranks is not set, "
                       "and the PMIx query failed: " +
                       status.message() +
                       ". Set ZORSE_RANK, ZORSE_WORLD_SIZE, ZORSE_LOCAL_RANK and ZORSE_STORE, or "
                       "unset PMIX_RANK and PMIX_NAMESPACE to run without a launcher");
    environment.worldSize = info->worldSize;
    environment.localRank = info->localRank;
    environment.oneHost = info->localRanks == info->worldSize;
    if (environment.rank >= environment.worldSize)
      return userError(shown("PMIX_RANK", v.text("PMIX_RANK")) + ": expects less than the " +
                       std::to_string(environment.worldSize) + " ranks that PMIx counts");
  }
  if (environment.oneHost) {
    meetOnLoopback(environment);
  } else if (!v.has("ZORSE_STORE")) {
    if (!info)
      if (Status status = ask(); status.failed())
        return tellStore(environment, "; asking PMIx failed: " + status.message());
    if (info->firstHost.empty())
      return tellStore(environment, "; PMIx does not know either");
    environment.coordinator = portsFrom(info->firstHost, portOfJob(environment.job));
  }
  return std::optional<RankEnvironment>(environment);
}

MaybeEnvironment launching::readOpenMpiEnvironment(const Variables &v) {
  if (!v.has("OMPI_COMM_WORLD_RANK") && !v.has("OMPI_COMM_WORLD_SIZE"))
    return std::optional<RankEnvironment>();
  if (Status status =
          v.complete("Open MPI", {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                  "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"});
      status.failed())
    return status;
  RankEnvironment environment;
  environment.source = "Open MPI";
  if (Status status = v.rankAndWorld("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                     environment.rank, environment.worldSize);
      status.failed())
    return status;
  if (Status status = setLocalRank(v, "OMPI_COMM_WORLD_LOCAL_RANK", environment); status.failed())
    return status;
  if (Status status = setOneHost(v, "OMPI_COMM_WORLD_LOCAL_SIZE", environment); status.failed())
    return status;
  environment.job =
      "openmpi/" +
      v.text(v.firstOf({"OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid",
                        "OMPI_MCA_orte_precondition_transports", "OMPI_FILE_LOCATION"}));
  if (environment.oneHost)
    meetOnLoopback(environment);
  return std::optional<RankEnvironment>(environment); // the address for several hosts comes from
                                                      // readPmixEnvironment, if at all
}

MaybeEnvironment launching::readPmiEnvironment(const Variables &v) {
  if (!v.has("PMI_RANK") && !v.has("PMI_SIZE"))
    return std::optional<RankEnvironment>();
  if (Status status = v.complete("PMI", {"PMI_RANK", "PMI_SIZE"}); status.failed())
    return status;
  RankEnvironment environment;
  environment.source = "PMI";
  if (Status status =
          v.rankAndWorld("PMI_RANK", "PMI_SIZE", environment.rank, environment.worldSize);
      status.failed())
    return status;
  if (isSlurmsRank(v, environment)) {
    MaybeEnvironment slurm = readSlurmEnvironment(v);
    if (slurm.failed())
      return slurm.error();
    environment = **slurm;
    environment.source = "Slurm (PMI)";
    return std::optional<RankEnvironment>(environment);
  }
  // MPICH's and Intel's mpiexec.
  if (Status status =
          setLocalRank(v, v.firstOf({"MPI_LOCALRANKID", "PMI_LOCAL_RANK"}), environment);
      status.failed())
    return status;
  if (Status status = setOneHost(v, v.firstOf({"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}), environment);
      status.failed())
    return status;
  environment.oneHost = environment.oneHost || environment.worldSize == 1;
  std::string id = v.firstOf({"PMI_JOBID", "PMI_KVSNAME"});
  environment.job = "pmi/" + v.text(id);
  if (id.empty() && !v.has("ZORSE_STORE") && !v.has("ZORSE_JOB") && environment.worldSize > 1)
    return userError("PMI: " + shown("PMI_RANK", v.text("PMI_RANK")) + " and " +
                     shown("PMI_SIZE", v.text("PMI_SIZE")) +
                     " are set, but nothing distinguishes this job from another one. Set ZORSE_JOB "
                     "to the same unique name for all ranks (mpiexec -genv "
                     "ZORSE_JOB run-17 ...), or ZORSE_STORE=host:port");
  if (v.has("ZORSE_JOB"))
    environment.job = v.text("ZORSE_JOB");
  if (environment.oneHost)
    meetOnLoopback(environment);
  return std::optional<RankEnvironment>(environment);
}

Status launching::addSlurmAddress(const Variables &v, RankEnvironment &environment) {
  environment.job = "slurm/" + v.text("SLURM_CLUSTER_NAME") + "/" +
                    v.text(v.firstOf({"SLURM_JOB_ID", "SLURM_JOBID"})) + "." +
                    v.text(v.firstOf({"SLURM_STEP_ID", "SLURM_STEPID"}));
  std::string listName = v.firstOf({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  if (listName.empty()) {
    environment.oneHost = environment.worldSize == 1;
    if (environment.oneHost)
      meetOnLoopback(environment);
    return Status::success();
  }
  Result<std::vector<std::string>> hosts = expandHostList(listName, v.text(listName));
  if (hosts.failed())
    return hosts.error();
  environment.oneHost = hosts->size() == 1;
  if (environment.oneHost) {
    meetOnLoopback(environment);
    return Status::success();
  }
  const std::string &first = hosts->front();
  if (environment.rank == 0 && v.has("SLURMD_NODENAME") && v.text("SLURMD_NODENAME") != first &&
      !v.has("ZORSE_STORE"))
    return userError(shown("SLURM_PROCID", v.text("SLURM_PROCID")) + " runs on " +
                     shown("SLURMD_NODENAME", v.text("SLURMD_NODENAME")) +
                     ", but the others look for it on the first host of " +
                     shown(listName, v.text(listName)) +
                     ". Set ZORSE_STORE=host:port for all ranks, with a host of rank 0's machine");
  environment.coordinator = portsFrom(first, portOfJob(environment.job));
  return Status::success();
}

MaybeEnvironment launching::readSlurmEnvironment(const Variables &v) {
  if (!inSlurmStep(v))
    return std::optional<RankEnvironment>();
  std::string tasks = slurmTasks(v);
  if (tasks.empty())
    return v.complete("Slurm", {"SLURM_PROCID", "SLURM_NTASKS"});
  RankEnvironment environment;
  environment.source = "Slurm";
  if (Status status =
          v.rankAndWorld("SLURM_PROCID", tasks, environment.rank, environment.worldSize);
      status.failed())
    return status;
  if (environment.worldSize > 1)
    if (Status status = v.complete("Slurm", {"SLURM_PROCID", "SLURM_LOCALID"}); status.failed())
      return status;
  if (Status status = setLocalRank(v, v.firstOf({"SLURM_LOCALID"}), environment); status.failed())
    return status;
  if (Status status = addSlurmAddress(v, environment); status.failed())
    return status;
  if (Status status = setAttempt(v, "SLURM_RESTART_COUNT", environment); status.failed())
    return status;
  return std::optional<RankEnvironment>(environment);
}

MaybeEnvironment zorse::runtime::readRankEnvironment(const Environment &environment,
                                                     const AskPmix &pmix) {
  Variables v(environment);
  if (v.has("ZORSE_LAUNCHER")) {
    if (v.text("ZORSE_LAUNCHER") != "none")
      return userError(
          shown("ZORSE_LAUNCHER", v.text("ZORSE_LAUNCHER")) +
          ": expects 'none', which ignores every launcher's variables, or not to be set");
    return std::optional<RankEnvironment>();
  }
  std::optional<RankEnvironment> place;
  for (const std::function<MaybeEnvironment()> &tried :
       std::initializer_list<std::function<MaybeEnvironment()>>{
           [&] { return readZorseEnvironment(v); }, [&] { return readTorchrunEnvironment(v); },
           [&] { return readPmixEnvironment(v, pmix); }, [&] { return readOpenMpiEnvironment(v); },
           [&] { return readPmiEnvironment(v); }, [&] { return readSlurmEnvironment(v); },
           [&] { return readPetEnvironment(v); }, [&] { return readRankOfNodeEnvironment(v); },
           [&] { return readLeaderWorkerSetEnvironment(v); },
           [&] { return readJobSetEnvironment(v); }}) {
    MaybeEnvironment found = tried();
    if (found.failed())
      return found.error();
    place = std::move(*found);
    if (place)
      break;
  }
  if (!place) {
    // Incomplete variables of a launcher are an error: otherwise every process would run alone.
    if (v.has("LOCAL_RANK"))
      return v.complete("torchrun",
                        {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"});
    if (v.has("WORLD_SIZE") && v.text("WORLD_SIZE") != "1")
      return v.complete("torchrun", {"RANK", "WORLD_SIZE"});
    return place;
  }
  if (v.has("ZORSE_JOB"))
    place->job = v.text("ZORSE_JOB");
  if (v.has("ZORSE_STORE")) {
    Result<std::vector<Endpoint>> store = parseEndpoints("ZORSE_STORE", v.text("ZORSE_STORE"));
    if (store.failed())
      return store.error();
    place->coordinator = std::move(*store);
  }
  if (place->coordinator.empty() && place->worldSize > 1)
    return tellStore(*place, "");
  return place;
}
