// Reads the variables of launchers that start one process per rank, and tries all launchers in
// order.
#include "HostList.h"
#include "Places.h"

using namespace zorse::runtime;
using namespace zorse::runtime::launching;

namespace {

bool isLoopback(const std::string &host) { return host.rfind("127.", 0) == 0 || host == "localhost" || host == "::1"; }

/// Reads the number of ranks on this host from `name`, if it is set: at least one, at most the
/// world size.
Status setOneHost(const Variables &v, const std::string &name, Place &place) {
  if (name.empty())
    return Status::success();
  Result<uint64_t> local = v.number(name, 1, kMaxRanks);
  if (local.failed())
    return local.error();
  if (*local > place.world)
    return userError(shown(name, v.text(name)) + ": expects at most the " + std::to_string(place.world) +
                     " ranks of the job. Correct the one that is wrong where the job is launched");
  place.oneHost = *local == place.world;
  return Status::success();
}

Status setLocalRank(const Variables &v, const std::string &name, Place &place) {
  if (name.empty())
    return Status::success();
  Result<uint64_t> local = v.number(name, 0, kMaxRanks - 1);
  if (local.failed())
    return local.error();
  if (*local >= place.world)
    return userError(shown(name, v.text(name)) + ": expects less than the " + std::to_string(place.world) +
                     " ranks of the job. Correct the one that is wrong where the job is launched");
  place.localRank = uint32_t(*local);
  return Status::success();
}

Status setAttempt(const Variables &v, const std::string &name, Place &place) {
  if (!v.has(name))
    return Status::success();
  Result<uint64_t> attempt = v.number(name, 0, uint64_t(1) << 40);
  if (attempt.failed())
    return attempt.error();
  place.attempt = *attempt;
  return Status::success();
}

/// Ranks on one host meet on the loopback interface, at ports that are derived from the job's name.
void meetOnLoopback(Place &place) { place.coordinator = portsFrom("127.0.0.1", portOfJob(place.job)); }

/// Whether an srun step started this process. A batch script's own process and a shell in an
/// allocation also have Slurm's variables.
bool inSlurmStep(const Variables &v) {
  if (!v.has("SLURM_PROCID"))
    return false;
  std::string step = v.firstOf({"SLURM_STEP_ID", "SLURM_STEPID"});
  if (step.empty())
    return v.text("ENVIRONMENT") != "BATCH";
  Result<uint64_t> id = v.number(step, 0, UINT32_MAX);
  return id.failed() || *id < 0xfffffff0; // larger ids: batch scripts, interactive shells and others that are not tasks of srun
}

std::string slurmTasks(const Variables &v) { return v.firstOf({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"}); }

/// Whether Slurm's variables describe the same rank of the same world. srun is then the launcher
/// behind PMI or PMIx.
bool isSlurmsRank(const Variables &v, const Place &place) {
  return inSlurmStep(v) && v.text("SLURM_PROCID") == std::to_string(place.rank) && v.text(slurmTasks(v)) == std::to_string(place.world);
}

Error tellStore(const Place &place, const std::string &why) {
  return userError(place.source + " started " + std::to_string(place.world) + " ranks on several hosts and does not tell where rank 0 is" + why +
                   ". Set ZORSE_STORE=host:port for all ranks: a host of rank 0's machine that the others reach, and a free port (mpirun -x "
                   "ZORSE_STORE=node1:29600 ...)");
}

} // namespace

MaybePlace launching::zorsePlace(const Variables &v) {
  if (!v.has("ZORSE_RANK") && !v.has("ZORSE_WORLD_SIZE") && !v.has("ZORSE_LOCAL_RANK"))
    return std::optional<Place>();
  if (Status status = v.complete("ZORSE_* variables", {"ZORSE_RANK", "ZORSE_WORLD_SIZE", "ZORSE_LOCAL_RANK", "ZORSE_STORE"}); status.failed())
    return status;
  Place place;
  place.source = "ZORSE_RANK";
  if (Status status = v.rankAndWorld("ZORSE_RANK", "ZORSE_WORLD_SIZE", place.rank, place.world); status.failed())
    return status;
  if (Status status = setLocalRank(v, "ZORSE_LOCAL_RANK", place); status.failed())
    return status;
  Result<std::vector<Endpoint>> store = parseEndpoints("ZORSE_STORE", v.text("ZORSE_STORE"));
  if (store.failed())
    return store.error();
  place.oneHost = true;
  for (const Endpoint &endpoint : *store)
    place.oneHost = place.oneHost && isLoopback(endpoint.host);
  if (Status status = setOneHost(v, v.firstOf({"ZORSE_LOCAL_WORLD_SIZE"}), place); status.failed())
    return status;
  if (v.has("ZORSE_COORDINATOR") && v.text("ZORSE_COORDINATOR") != "launcher" && v.text("ZORSE_COORDINATOR") != "rank0")
    return userError(shown("ZORSE_COORDINATOR", v.text("ZORSE_COORDINATOR")) +
                     ": expects 'launcher' (another process listens at ZORSE_STORE) or 'rank0', which is the default");
  place.coordinatorElsewhere = v.text("ZORSE_COORDINATOR") == "launcher";
  if (place.coordinatorElsewhere)
    place.source = "zorse-run";
  place.job = "zorse/" + v.text("ZORSE_STORE");
  if (Status status = setAttempt(v, "ZORSE_RESTARTS", place); status.failed())
    return status;
  if (v.has("ZORSE_GENERATION")) {
    Result<uint64_t> generation = v.number("ZORSE_GENERATION", 0, uint64_t(1) << 56);
    if (generation.failed())
      return generation.error();
    place.generation = *generation;
  }
  return std::optional<Place>(place);
}

MaybePlace launching::torchrunPlace(const Variables &v) {
  if (!v.has("RANK") || !v.has("LOCAL_RANK")) // RANK without LOCAL_RANK is a node's: rankOfNodePlace
    return std::optional<Place>();
  if (Status status = v.complete("torchrun", {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}); status.failed())
    return status;
  Place place;
  place.source = "torchrun";
  if (Status status = v.rankAndWorld("RANK", "WORLD_SIZE", place.rank, place.world); status.failed())
    return status;
  if (Status status = setLocalRank(v, "LOCAL_RANK", place); status.failed())
    return status;
  if (Status status = setOneHost(v, v.firstOf({"LOCAL_WORLD_SIZE"}), place); status.failed())
    return status;
  if (v.has("LOCAL_WORLD_SIZE") && place.localRank >= *v.number("LOCAL_WORLD_SIZE", 1, kMaxRanks))
    return userError(shown("LOCAL_RANK", v.text("LOCAL_RANK")) + ": expects less than " + shown("LOCAL_WORLD_SIZE", v.text("LOCAL_WORLD_SIZE")) +
                     ". Correct the one that is wrong where the job is launched");
  Result<uint64_t> port = v.number("MASTER_PORT", 1, 65534);
  if (port.failed())
    return port.error();
  place.coordinator = portsFrom(v.text("MASTER_ADDR"), uint32_t(*port) + 1); // the port itself belongs to torchrun's store
  place.job = "torchrun/" + v.text("TORCHELASTIC_RUN_ID") + "/" + v.text("MASTER_ADDR") + ":" + v.text("MASTER_PORT");
  if (Status status = setAttempt(v, "TORCHELASTIC_RESTART_COUNT", place); status.failed())
    return status;
  return std::optional<Place>(place);
}

MaybePlace launching::pmixPlace(const Variables &v, const AskPmix &pmix) {
  if (!v.has("PMIX_RANK") && !v.has("PMIX_NAMESPACE"))
    return std::optional<Place>();
  if (Status status = v.complete("PMIx", {"PMIX_RANK", "PMIX_NAMESPACE"}); status.failed())
    return status;
  Place place;
  place.source = "PMIx";
  Result<uint64_t> rank = v.number("PMIX_RANK", 0, kMaxRanks - 1);
  if (rank.failed())
    return rank.error();
  place.rank = uint32_t(*rank);
  place.job = "pmix/" + v.text("PMIX_NAMESPACE");

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
    MaybePlace open = openMpiPlace(v);
    if (open.failed())
      return open.error();
    if ((*open)->rank != place.rank)
      return userError(shown("PMIX_RANK", v.text("PMIX_RANK")) + " and " + shown("OMPI_COMM_WORLD_RANK", v.text("OMPI_COMM_WORLD_RANK")) +
                       " contradict each other: expects the same rank. Unset those that an outer launcher left behind");
    std::string job = place.job;
    place = **open;
    place.source = "Open MPI (PMIx)";
    place.job = job;
  } else if (inSlurmStep(v) && v.text("SLURM_PROCID") == v.text("PMIX_RANK")) {
    MaybePlace slurm = slurmPlace(v);
    if (slurm.failed())
      return slurm.error();
    place = **slurm;
    place.source = "Slurm (PMIx)";
    return std::optional<Place>(place);
  } else {
    if (Status status = ask(); status.failed())
      return userError(
          shown("PMIX_RANK", v.text("PMIX_RANK")) +
          " shows that PMIx started this process, but the number of ranks is not set, and the PMIx query failed: " + status.message() +
          ". Set ZORSE_RANK, ZORSE_WORLD_SIZE, ZORSE_LOCAL_RANK and ZORSE_STORE, or unset PMIX_RANK and PMIX_NAMESPACE to run without a launcher");
    place.world = info->world;
    place.localRank = info->localRank;
    place.oneHost = info->localRanks == info->world;
    if (place.rank >= place.world)
      return userError(shown("PMIX_RANK", v.text("PMIX_RANK")) + ": expects less than the " + std::to_string(place.world) +
                       " ranks that PMIx counts");
  }
  if (place.oneHost) {
    meetOnLoopback(place);
  } else if (!v.has("ZORSE_STORE")) {
    if (!info)
      if (Status status = ask(); status.failed())
        return tellStore(place, "; asking PMIx failed: " + status.message());
    if (info->firstHost.empty())
      return tellStore(place, "; PMIx does not know either");
    place.coordinator = portsFrom(info->firstHost, portOfJob(place.job));
  }
  return std::optional<Place>(place);
}

MaybePlace launching::openMpiPlace(const Variables &v) {
  if (!v.has("OMPI_COMM_WORLD_RANK") && !v.has("OMPI_COMM_WORLD_SIZE"))
    return std::optional<Place>();
  if (Status status =
          v.complete("Open MPI", {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"});
      status.failed())
    return status;
  Place place;
  place.source = "Open MPI";
  if (Status status = v.rankAndWorld("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", place.rank, place.world); status.failed())
    return status;
  if (Status status = setLocalRank(v, "OMPI_COMM_WORLD_LOCAL_RANK", place); status.failed())
    return status;
  if (Status status = setOneHost(v, "OMPI_COMM_WORLD_LOCAL_SIZE", place); status.failed())
    return status;
  place.job =
      "openmpi/" +
      v.text(v.firstOf({"OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid", "OMPI_MCA_orte_precondition_transports", "OMPI_FILE_LOCATION"}));
  if (place.oneHost)
    meetOnLoopback(place);
  return std::optional<Place>(place); // the address for several hosts comes from pmixPlace, if at all
}

MaybePlace launching::pmiPlace(const Variables &v) {
  if (!v.has("PMI_RANK") && !v.has("PMI_SIZE"))
    return std::optional<Place>();
  if (Status status = v.complete("PMI", {"PMI_RANK", "PMI_SIZE"}); status.failed())
    return status;
  Place place;
  place.source = "PMI";
  if (Status status = v.rankAndWorld("PMI_RANK", "PMI_SIZE", place.rank, place.world); status.failed())
    return status;
  if (isSlurmsRank(v, place)) {
    MaybePlace slurm = slurmPlace(v);
    if (slurm.failed())
      return slurm.error();
    place = **slurm;
    place.source = "Slurm (PMI)";
    return std::optional<Place>(place);
  }
  // MPICH's and Intel's mpiexec.
  if (Status status = setLocalRank(v, v.firstOf({"MPI_LOCALRANKID", "PMI_LOCAL_RANK"}), place); status.failed())
    return status;
  if (Status status = setOneHost(v, v.firstOf({"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}), place); status.failed())
    return status;
  place.oneHost = place.oneHost || place.world == 1;
  std::string id = v.firstOf({"PMI_JOBID", "PMI_KVSNAME"});
  place.job = "pmi/" + v.text(id);
  if (id.empty() && !v.has("ZORSE_STORE") && !v.has("ZORSE_JOB") && place.world > 1)
    return userError(
        "PMI: " + shown("PMI_RANK", v.text("PMI_RANK")) + " and " + shown("PMI_SIZE", v.text("PMI_SIZE")) +
        " are set, but nothing distinguishes this job from another one. Set ZORSE_JOB to the same unique name for all ranks (mpiexec -genv "
        "ZORSE_JOB run-17 ...), or ZORSE_STORE=host:port");
  if (v.has("ZORSE_JOB"))
    place.job = v.text("ZORSE_JOB");
  if (place.oneHost)
    meetOnLoopback(place);
  return std::optional<Place>(place);
}

Status launching::addSlurmAddress(const Variables &v, Place &place) {
  place.job = "slurm/" + v.text("SLURM_CLUSTER_NAME") + "/" + v.text(v.firstOf({"SLURM_JOB_ID", "SLURM_JOBID"})) + "." +
              v.text(v.firstOf({"SLURM_STEP_ID", "SLURM_STEPID"}));
  std::string listName = v.firstOf({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  if (listName.empty()) {
    place.oneHost = place.world == 1;
    if (place.oneHost)
      meetOnLoopback(place);
    return Status::success();
  }
  Result<std::vector<std::string>> hosts = expandHostList(listName, v.text(listName));
  if (hosts.failed())
    return hosts.error();
  place.oneHost = hosts->size() == 1;
  if (place.oneHost) {
    meetOnLoopback(place);
    return Status::success();
  }
  const std::string &first = hosts->front();
  if (place.rank == 0 && v.has("SLURMD_NODENAME") && v.text("SLURMD_NODENAME") != first && !v.has("ZORSE_STORE"))
    return userError(shown("SLURM_PROCID", v.text("SLURM_PROCID")) + " runs on " + shown("SLURMD_NODENAME", v.text("SLURMD_NODENAME")) +
                     ", but the others look for it on the first host of " + shown(listName, v.text(listName)) +
                     ". Set ZORSE_STORE=host:port for all ranks, with a host of rank 0's machine");
  place.coordinator = portsFrom(first, portOfJob(place.job));
  return Status::success();
}

MaybePlace launching::slurmPlace(const Variables &v) {
  if (!inSlurmStep(v))
    return std::optional<Place>();
  std::string tasks = slurmTasks(v);
  if (tasks.empty())
    return v.complete("Slurm", {"SLURM_PROCID", "SLURM_NTASKS"});
  Place place;
  place.source = "Slurm";
  if (Status status = v.rankAndWorld("SLURM_PROCID", tasks, place.rank, place.world); status.failed())
    return status;
  if (place.world > 1)
    if (Status status = v.complete("Slurm", {"SLURM_PROCID", "SLURM_LOCALID"}); status.failed())
      return status;
  if (Status status = setLocalRank(v, v.firstOf({"SLURM_LOCALID"}), place); status.failed())
    return status;
  if (Status status = addSlurmAddress(v, place); status.failed())
    return status;
  if (Status status = setAttempt(v, "SLURM_RESTART_COUNT", place); status.failed())
    return status;
  return std::optional<Place>(place);
}

MaybePlace zorse::runtime::placeFromEnvironment(const Environment &environment, const AskPmix &pmix) {
  Variables v(environment);
  if (v.has("ZORSE_LAUNCHER")) {
    if (v.text("ZORSE_LAUNCHER") != "none")
      return userError(shown("ZORSE_LAUNCHER", v.text("ZORSE_LAUNCHER")) +
                       ": expects 'none', which ignores every launcher's variables, or not to be set");
    return std::optional<Place>();
  }
  std::optional<Place> place;
  for (const std::function<MaybePlace()> &tried : std::initializer_list<std::function<MaybePlace()>>{
           [&] { return zorsePlace(v); }, [&] { return torchrunPlace(v); }, [&] { return pmixPlace(v, pmix); }, [&] { return openMpiPlace(v); },
           [&] { return pmiPlace(v); }, [&] { return slurmPlace(v); }, [&] { return petPlace(v); }, [&] { return rankOfNodePlace(v); },
           [&] { return leaderWorkerSetPlace(v); }, [&] { return jobSetPlace(v); }}) {
    MaybePlace found = tried();
    if (found.failed())
      return found.error();
    place = std::move(*found);
    if (place)
      break;
  }
  if (!place) {
    // Incomplete variables of a launcher are an error: otherwise every process would run alone.
    if (v.has("LOCAL_RANK"))
      return v.complete("torchrun", {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"});
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
  if (place->coordinator.empty() && place->world > 1)
    return tellStore(*place, "");
  return place;
}
