// Tests rank environments as real launchers set them (torchrun of PyTorch 2.15, mpirun 4.1.4, srun
// and sbatch 22.05.8), and refusals.
#include "zorse/runtime/Launch.h"

#include "launch/HostList.h"
#include "launch/Listen.h"

#include <gtest/gtest.h>

using namespace zorse::runtime;

namespace {

Environment with(Environment environment, const Environment &more) {
  for (const auto &[name, value] : more)
    environment[name] = value;
  return environment;
}

Environment without(Environment environment, std::initializer_list<const char *> names) {
  for (const char *name : names)
    environment.erase(name);
  return environment;
}

Result<PmixInfo> noPmix() { return userError("PMIx_Init: UNREACHABLE"); }

RankEnvironment environment(const Environment &environment, const AskPmix &pmix = noPmix) {
  Result<std::optional<RankEnvironment>> found = readRankEnvironment(environment, pmix);
  EXPECT_FALSE(found.failed()) << (found.failed() ? found.message() : "");
  EXPECT_TRUE(found.failed() || found->has_value());
  return !found.failed() && *found ? **found : RankEnvironment();
}

std::string refusal(const Environment &environment, const AskPmix &pmix = noPmix) {
  Result<std::optional<RankEnvironment>> found = readRankEnvironment(environment, pmix);
  EXPECT_TRUE(found.failed());
  EXPECT_TRUE(!found.failed() || found.error().kind == ErrorKind::User);
  return found.failed() ? found.message() : "";
}

bool alone(const Environment &environment) {
  Result<std::optional<RankEnvironment>> found = readRankEnvironment(environment, noPmix);
  return !found.failed() && !*found;
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

const Environment kZorse = {{"ZORSE_RANK", "2"},
                            {"ZORSE_WORLD_SIZE", "4"},
                            {"ZORSE_LOCAL_RANK", "1"},
                            {"ZORSE_STORE", "node1:29600"}};

const Environment kTorchrun = {{"GROUP_RANK", "0"},
                               {"GROUP_WORLD_SIZE", "1"},
                               {"LOCAL_RANK", "1"},
                               {"LOCAL_WORLD_SIZE", "2"},
                               {"MASTER_ADDR", "localhost"},
                               {"MASTER_PORT", "35035"},
                               {"OMP_NUM_THREADS", "1"},
                               {"RANK", "1"},
                               {"ROLE_RANK", "1"},
                               {"ROLE_WORLD_SIZE", "2"},
                               {"TORCHELASTIC_MAX_RESTARTS", "0"},
                               {"TORCHELASTIC_RESTART_COUNT", "0"},
                               {"TORCHELASTIC_RUN_ID", "f34672e6-2cc5-4bb1-bb2e-e0f2754db7ce"},
                               {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"},
                               {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                               {"WORLD_SIZE", "2"}};

const Environment kMpirun = {{"OMPI_APP_CTX_NUM_PROCS", "3"},
                             {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                             {"OMPI_COMM_WORLD_NODE_RANK", "1"},
                             {"OMPI_COMM_WORLD_RANK", "1"},
                             {"OMPI_COMM_WORLD_SIZE", "3"},
                             {"OMPI_FILE_LOCATION", "/tmp/ompi.vm.0/pid.14745/0/0"},
                             {"OMPI_FIRST_RANKS", "0"},
                             {"OMPI_MCA_ess_base_jobid", "1432813569"},
                             {"OMPI_MCA_ess_base_vpid", "1"},
                             {"OMPI_MCA_orte_num_nodes", "1"},
                             {"OMPI_UNIVERSE_SIZE", "2"},
                             {"PMIX_HOSTNAME", "vm"},
                             {"PMIX_ID", "1432813569.1"},
                             {"PMIX_NAMESPACE", "1432813569"},
                             {"PMIX_RANK", "1"},
                             {"PMIX_VERSION", "4.2.2rc2"}};

const Environment kSrun = {{"SLURMD_NODENAME", "zn1"},
                           {"SLURM_CLUSTER_NAME", "loopback"},
                           {"SLURM_JOBID", "1"},
                           {"SLURM_JOB_ID", "1"},
                           {"SLURM_JOB_NODELIST", "zn[1-2]"},
                           {"SLURM_JOB_NUM_NODES", "2"},
                           {"SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"},
                           {"SLURM_LOCALID", "2"},
                           {"SLURM_NNODES", "2"},
                           {"SLURM_NODEID", "0"},
                           {"SLURM_NODELIST", "zn[1-2]"},
                           {"SLURM_NPROCS", "5"},
                           {"SLURM_NTASKS", "5"},
                           {"SLURM_PROCID", "2"},
                           {"SLURM_STEPID", "0"},
                           {"SLURM_STEP_ID", "0"},
                           {"SLURM_STEP_NODELIST", "zn[1-2]"},
                           {"SLURM_STEP_NUM_NODES", "2"},
                           {"SLURM_STEP_NUM_TASKS", "5"},
                           {"SLURM_STEP_TASKS_PER_NODE", "4,1"},
                           {"SLURM_TASKS_PER_NODE", "4,1"}};

const Environment kPmi2 = with(without(kSrun, {"SLURM_LOCALID"}), {{"PMI_FD", "13"},
                                                                   {"PMI_JOBID", "1.0"},
                                                                   {"PMI_RANK", "2"},
                                                                   {"PMI_SIZE", "5"},
                                                                   {"SLURM_LOCALID", "1"}});

/// The process of the batch script: Slurm's variables without a step.
const Environment kBatch = with(
    without(kSrun, {"SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_NODES",
                    "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"}),
    {{"ENVIRONMENT", "BATCH"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}});

const Environment kPet = {{"PET_NNODES", "2"},
                          {"PET_NODE_RANK", "1"},
                          {"PET_NPROC_PER_NODE", "4"},
                          {"PET_MASTER_ADDR", "job-node-0-0.job"},
                          {"PET_MASTER_PORT", "29400"}};
const Environment kPyTorchJob = {
    {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "job-master-0"}, {"MASTER_PORT", "23456"}};
const Environment kLws = {{"LWS_LEADER_ADDRESS", "gpt-0.gpt.default"},
                          {"LWS_GROUP_SIZE", "3"},
                          {"LWS_WORKER_INDEX", "2"}};
const Environment kJobSet = {{"JOB_COMPLETION_INDEX", "1"},
                             {"NNODES", "2"},
                             {"JOBSET_NAME", "gpt"},
                             {"REPLICATED_JOB_NAME", "ranks"},
                             {"JOBSET_RESTART_ATTEMPT", "3"}};

} // namespace

TEST(LaunchPlace, NobodyLaunchedUs) {
  EXPECT_TRUE(alone({}));
  EXPECT_TRUE(alone({{"HOME", "/root"},
                     {"MASTER_ADDR", "node1"},
                     {"WORLD_SIZE", "1"},
                     {"ZORSE_SECRET", "0123456789abcdef"}}));
  EXPECT_TRUE(alone({{"RANK", ""}, {"ZORSE_RANK", ""}})); // an empty variable counts as unset
  EXPECT_TRUE(alone(kBatch));
  // A shell of salloc.
  EXPECT_TRUE(alone(without(kBatch, {"ENVIRONMENT", "SLURM_PROCID", "SLURM_LOCALID"})));
  EXPECT_TRUE(alone(with(kSrun, {{"SLURM_STEP_ID", "4294967290"}}))); // an interactive step
  EXPECT_TRUE(alone({{"PET_NNODES", "1"}}));
  for (const Environment &environment : {kZorse, kTorchrun, kMpirun, kSrun, kPet, kLws, kJobSet})
    EXPECT_TRUE(alone(with(environment, {{"ZORSE_LAUNCHER", "none"}})));
  EXPECT_HAS(refusal({{"ZORSE_LAUNCHER", "slurm"}}), "ZORSE_LAUNCHER=slurm: expects 'none'");
}

TEST(LaunchPlace, OwnVariables) {
  RankEnvironment p = environment(kZorse);
  EXPECT_EQ(p.rank, 2u);
  EXPECT_EQ(p.worldSize, 4u);
  EXPECT_EQ(p.localRank, 1u);
  EXPECT_FALSE(p.isNode || p.coordinatorElsewhere || p.oneHost);
  EXPECT_EQ(endpointsText(p.coordinator), "node1:29600");
  EXPECT_FALSE(p.job.empty());
  p = environment(with(kZorse, {{"ZORSE_COORDINATOR", "launcher"},
                                {"ZORSE_GENERATION", "7"},
                                {"ZORSE_RESTARTS", "2"},
                                {"ZORSE_JOB", "mine"},
                                {"ZORSE_LOCAL_WORLD_SIZE", "4"},
                                {"ZORSE_STORE", "127.0.0.1:4000"}}));
  EXPECT_TRUE(p.coordinatorElsewhere && p.oneHost);
  EXPECT_EQ(p.generation, 7u);
  EXPECT_EQ(p.attempt, 2u);
  EXPECT_EQ(p.job, "mine");
  // Ranks on one of two nodes that our launcher started reach it on loopback, but the job has other
  // hosts.
  EXPECT_FALSE(environment(with(kZorse, {{"ZORSE_STORE", "127.0.0.1:4000"},
                                         {"ZORSE_LOCAL_WORLD_SIZE", "2"}}))
                   .oneHost);
  EXPECT_TRUE(environment(with(kZorse, {{"ZORSE_STORE", "127.0.0.1:4000"}})).oneHost);
}

TEST(LaunchPlace, Torchrun) {
  RankEnvironment p = environment(kTorchrun);
  EXPECT_EQ(p.source, "torchrun");
  EXPECT_EQ(p.rank, 1u);
  EXPECT_EQ(p.worldSize, 2u);
  EXPECT_EQ(p.localRank, 1u);
  EXPECT_TRUE(p.oneHost);
  EXPECT_FALSE(p.isNode || p.coordinatorElsewhere);
  EXPECT_EQ(endpointsText(p.coordinator),
            "localhost:35036-35043"); // torchrun's store uses the port itself
  EXPECT_HAS(p.job, "f34672e6-2cc5-4bb1-bb2e-e0f2754db7ce");
  p = environment(with(kTorchrun, {{"WORLD_SIZE", "4"},
                                   {"RANK", "3"},
                                   {"TORCHELASTIC_RESTART_COUNT", "2"},
                                   {"MASTER_ADDR", "10.0.0.7"}}));
  EXPECT_FALSE(p.oneHost);
  EXPECT_EQ(p.attempt, 2u);
  // Jobs without an id are distinguished by their stores.
  EXPECT_NE(
      environment(with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "none"}})).job,
      environment(with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "none"}, {"MASTER_PORT", "29500"}}))
          .job);
  EXPECT_EQ(endpointsText(environment(with(kTorchrun, {{"MASTER_PORT", "65534"}})).coordinator),
            "localhost:65535");
}

TEST(LaunchPlace, OpenMpi) {
  RankEnvironment p = environment(kMpirun);
  EXPECT_EQ(p.source, "Open MPI (PMIx)");
  EXPECT_EQ(p.rank, 1u);
  EXPECT_EQ(p.worldSize, 3u);
  EXPECT_EQ(p.localRank, 1u);
  EXPECT_TRUE(p.oneHost);
  ASSERT_EQ(p.coordinator.size(), 8u);
  EXPECT_EQ(p.coordinator[0].host, "127.0.0.1");
  EXPECT_GE(p.coordinator[0].port, 20000);
  EXPECT_LT(p.coordinator[7].port, 28000);
  // Other ranks of the job get the same ports; other jobs have another name.
  RankEnvironment other = environment(with(
      kMpirun,
      {{"PMIX_RANK", "0"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}));
  EXPECT_EQ(endpointsText(other.coordinator), endpointsText(p.coordinator));
  EXPECT_EQ(other.job, p.job);
  EXPECT_NE(environment(with(kMpirun, {{"PMIX_NAMESPACE", "1432813570"}})).job, p.job);
  // Without PMIx
  p = environment(without(kMpirun, {"PMIX_RANK", "PMIX_NAMESPACE"}));
  EXPECT_EQ(p.source, "Open MPI");
  EXPECT_TRUE(p.oneHost);
  EXPECT_HAS(p.job, "1432813569");
}

TEST(LaunchPlace, SeveralHostsAskPmix) {
  Environment two = with(kMpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  RankEnvironment p = environment(two, [] { return PmixInfo{3, 1, 2, "node7"}; });
  EXPECT_FALSE(p.oneHost);
  EXPECT_EQ(p.coordinator.at(0).host, "node7");
  std::string error = refusal(two);
  EXPECT_HAS(error, "PMIx_Init: UNREACHABLE");
  EXPECT_HAS(error, "Set ZORSE_STORE=host:port");
  EXPECT_HAS(refusal(two, [] { return PmixInfo{3, 1, 2, ""}; }), "Set ZORSE_STORE=host:port");
  EXPECT_HAS(refusal(without(two, {"PMIX_RANK", "PMIX_NAMESPACE"})), "Set ZORSE_STORE=host:port");
  p = environment(with(two, {{"ZORSE_STORE", "node3:5000"}}));
  EXPECT_EQ(endpointsText(p.coordinator), "node3:5000");
  // PMIx alone does not give the world size.
  Environment bare = {{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "prterun-17@1"}};
  p = environment(bare, [] { return PmixInfo{3, 2, 3, "node7"}; });
  EXPECT_EQ(p.source, "PMIx");
  EXPECT_EQ(p.worldSize, 3u);
  EXPECT_EQ(p.localRank, 2u);
  EXPECT_TRUE(p.oneHost);
  EXPECT_EQ(p.coordinator.at(0).host, "127.0.0.1");
  EXPECT_HAS(
      refusal(bare),
      "PMIX_RANK=2 shows that PMIx started this process, but the number of ranks is not set");
  EXPECT_HAS(refusal(bare, [] { return PmixInfo{2, 0, 2, "node7"}; }),
             "PMIX_RANK=2: expects less than the 2 ranks");
}

TEST(LaunchPlace, Pmi) {
  Environment mpich = {{"PMI_RANK", "1"},        {"PMI_SIZE", "4"},        {"PMI_FD", "9"},
                       {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "4"}, {"ZORSE_JOB", "run-17"}};
  RankEnvironment p = environment(mpich);
  EXPECT_EQ(p.source, "PMI");
  EXPECT_EQ(p.rank, 1u);
  EXPECT_TRUE(p.oneHost);
  EXPECT_EQ(p.job, "run-17");
  EXPECT_HAS(refusal(without(mpich, {"ZORSE_JOB"})), "Set ZORSE_JOB");
  EXPECT_HAS(refusal(with(mpich, {{"MPI_LOCALNRANKS", "2"}})), "Set ZORSE_STORE=host:port");
  EXPECT_FALSE(
      environment(with(mpich, {{"MPI_LOCALNRANKS", "2"}, {"ZORSE_STORE", "n1:99"}})).oneHost);
  // srun --mpi=pmi2: Slurm knows the hosts.
  p = environment(kPmi2);
  EXPECT_EQ(p.source, "Slurm (PMI)");
  EXPECT_EQ(p.rank, 2u);
  EXPECT_EQ(p.worldSize, 5u);
  EXPECT_EQ(p.coordinator.at(0).host, "zn1");
}

TEST(LaunchPlace, Slurm) {
  RankEnvironment p = environment(kSrun);
  EXPECT_EQ(p.source, "Slurm");
  EXPECT_EQ(p.rank, 2u);
  EXPECT_EQ(p.worldSize, 5u);
  EXPECT_EQ(p.localRank, 2u);
  EXPECT_FALSE(p.oneHost || p.isNode);
  EXPECT_EQ(p.coordinator.size(), 8u);
  EXPECT_EQ(p.coordinator.at(0).host, "zn1");
  EXPECT_EQ(p.job, "slurm/loopback/1.0");
  EXPECT_NE(environment(with(kSrun, {{"SLURM_STEP_ID", "1"}})).job, p.job); // two steps of one job
  // The nodes of the step count, not those of the job. A job on one node uses loopback.
  p = environment(with(kSrun, {{"SLURM_STEP_NODELIST", "zn2"}, {"SLURM_RESTART_COUNT", "4"}}));
  EXPECT_TRUE(p.oneHost);
  EXPECT_EQ(p.coordinator.at(0).host, "127.0.0.1");
  EXPECT_EQ(p.attempt, 4u);
  // Only the variables with the facts.
  p = environment({{"SLURM_PROCID", "1"},
                   {"SLURM_NTASKS", "2"},
                   {"SLURM_LOCALID", "0"},
                   {"SLURM_NODEID", "1"},
                   {"SLURM_JOB_NODELIST", "gpu[08-10],cpu1"},
                   {"SLURM_JOB_ID", "77"}});
  EXPECT_EQ(p.coordinator.at(0).host, "gpu08");
  // Rank 0 is on another host than the one the other ranks connect to.
  EXPECT_HAS(refusal(with(kSrun, {{"SLURM_PROCID", "0"}, {"SLURMD_NODENAME", "zn2"}})),
             "SLURMD_NODENAME=zn2");
  // srun --mpi=pmix
  p = environment(with(kSrun, {{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "slurm.pmix.1.0"}}));
  EXPECT_EQ(p.source, "Slurm (PMIx)");
  EXPECT_EQ(p.worldSize, 5u);
  EXPECT_EQ(p.coordinator.at(0).host, "zn1");
}

TEST(LaunchPlace, NodeLevel) {
  RankEnvironment p = environment(kPet);
  EXPECT_TRUE(p.isNode);
  EXPECT_EQ(p.rank, 1u);
  EXPECT_EQ(p.worldSize, 2u);
  EXPECT_EQ(endpointsText(p.coordinator), "job-node-0-0.job:29400-29407");
  p = environment(with(kPet, {{"PET_NNODES", "2:2"}}));
  EXPECT_EQ(p.worldSize, 2u);
  p = environment(with(kPet, {{"PET_NNODES", "1"}, {"PET_NODE_RANK", "0"}}));
  EXPECT_TRUE(p.isNode && p.oneHost);

  p = environment(kPyTorchJob);
  EXPECT_TRUE(p.isNode);
  EXPECT_EQ(p.rank, 1u);
  EXPECT_EQ(p.worldSize, 2u);
  EXPECT_EQ(endpointsText(p.coordinator), "job-master-0:23456-23463");

  p = environment(kLws);
  EXPECT_TRUE(p.isNode);
  EXPECT_EQ(p.rank, 2u);
  EXPECT_EQ(p.worldSize, 3u);
  EXPECT_EQ(endpointsText(p.coordinator), "gpt-0.gpt.default:29600-29607");
  EXPECT_NE(environment(with(kLws, {{"LWS_LEADER_ADDRESS", "gpt-1.gpt.default"}})).job,
            p.job); // another group of the set

  p = environment(kJobSet);
  EXPECT_TRUE(p.isNode);
  EXPECT_EQ(p.rank, 1u);
  EXPECT_EQ(p.worldSize, 2u);
  EXPECT_EQ(p.attempt, 3u);
  EXPECT_EQ(endpointsText(p.coordinator), "gpt-ranks-0-0.gpt:29600-29607");
  EXPECT_EQ(environment(with(kJobSet, {{"JOB_INDEX", "2"}, {"JOBSET_SUBDOMAIN", "net"}}))
                .coordinator.at(0)
                .host,
            "gpt-ranks-2-0.net");
  EXPECT_EQ(
      endpointsText(environment(with(kJobSet, {{"MASTER_ADDR", "first"}, {"MASTER_PORT", "4000"}}))
                        .coordinator),
      "first:4000-4007");
}

TEST(LaunchPlace, Order) {
  // Adds sources in increasing order of precedence.
  Environment all;
  std::vector<std::pair<Environment, const char *>> order = {
      {kJobSet, "JobSet (node level)"},
      {kLws, "LeaderWorkerSet (node level)"},
      {kPyTorchJob, "RANK without LOCAL_RANK (node level)"},
      {kPet, "PET_NNODES (node level)"},
      {kSrun, "Slurm"},
      {{{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}, "PMI"},
      {without(kMpirun, {"PMIX_RANK", "PMIX_NAMESPACE"}), "Open MPI"},
      {kMpirun, "Open MPI (PMIx)"},
      {kTorchrun, "torchrun"},
      {kZorse, "ZORSE_RANK"}};
  for (const auto &[variables, source] : order) {
    all = with(all, variables);
    EXPECT_EQ(environment(all).source, source);
  }
}

TEST(LaunchPlace, ContradictionsAreRefused) {
  struct {
    Environment environment;
    std::vector<const char *> parts;
  } const cases[] = {
      {with(kZorse, {{"ZORSE_RANK", "4"}}), {"ZORSE_RANK=4: expects less than ZORSE_WORLD_SIZE=4"}},
      {without(kZorse, {"ZORSE_STORE"}),
       {"ZORSE_RANK=2, ZORSE_WORLD_SIZE=4, ZORSE_LOCAL_RANK=1 are set, but ZORSE_STORE is not",
        "expects all of"}},
      {without(kZorse, {"ZORSE_RANK"}), {"ZORSE_RANK is not"}},
      {{{"ZORSE_RANK", "1"}},
       {"ZORSE_RANK=1 is set, but ZORSE_WORLD_SIZE, ZORSE_LOCAL_RANK, ZORSE_STORE are not"}},
      {with(kZorse, {{"ZORSE_STORE", "node1"}}), {"ZORSE_STORE=node1: expects host:port"}},
      {with(kZorse, {{"ZORSE_STORE", "node1:0"}}), {"ZORSE_STORE=node1:0: expects host:port"}},
      {with(kZorse, {{"ZORSE_STORE", "node1:29600x"}}), {"expects host:port"}},
      {with(kZorse, {{"ZORSE_COORDINATOR", "node2"}}),
       {"ZORSE_COORDINATOR=node2: expects 'launcher'"}},
      {with(kZorse, {{"ZORSE_LOCAL_WORLD_SIZE", "5"}}),
       {"ZORSE_LOCAL_WORLD_SIZE=5: expects at most the 4"}},
      {with(kZorse, {{"ZORSE_GENERATION", "-1"}}), {"ZORSE_GENERATION=-1: expects a whole number"}},
      {with(kTorchrun, {{"RANK", "2"}}), {"RANK=2: expects less than WORLD_SIZE=2", "Correct"}},
      {with(kTorchrun, {{"RANK", "one"}}), {"RANK=one: expects a whole number from 0 to"}},
      {with(kTorchrun, {{"RANK", "0x1"}}), {"RANK=0x1: expects a whole number"}},
      {with(kTorchrun, {{"RANK", " 1"}}), {"expects a whole number"}},
      {with(kTorchrun, {{"RANK", "-1"}}), {"RANK=-1: expects a whole number"}},
      {with(kTorchrun, {{"WORLD_SIZE", "0"}}), {"WORLD_SIZE=0: expects a whole number from 1"}},
      {with(kTorchrun, {{"WORLD_SIZE", "99999999999999999999"}}),
       {"expects a whole number from 1"}},
      {with(kTorchrun, {{"LOCAL_RANK", "2"}}), {"LOCAL_RANK=2: expects less than the 2 ranks"}},
      {with(kTorchrun, {{"LOCAL_WORLD_SIZE", "1"}}),
       {"LOCAL_RANK=1: expects less than LOCAL_WORLD_SIZE=1"}},
      {with(kTorchrun, {{"LOCAL_WORLD_SIZE", "3"}}), {"LOCAL_WORLD_SIZE=3: expects at most the 2"}},
      {with(kTorchrun, {{"MASTER_PORT", "70000"}}),
       {"MASTER_PORT=70000: expects a whole number from 1 to 65534"}},
      {without(kTorchrun, {"MASTER_ADDR"}), {"MASTER_ADDR is not"}},
      {without(kTorchrun, {"WORLD_SIZE"}), {"WORLD_SIZE is not"}},
      {without(kTorchrun, {"RANK"}), {"RANK is not", "unset the others"}},
      {{{"WORLD_SIZE", "4"}}, {"WORLD_SIZE=4 is set, but RANK is not"}},
      {{{"RANK", "1"}}, {"RANK=1 is set, but WORLD_SIZE, MASTER_ADDR, MASTER_PORT are not"}},
      {with(kPyTorchJob, {{"RANK", "2"}}), {"RANK=2: expects less than WORLD_SIZE=2"}},
      {{{"PMIX_RANK", "1"}}, {"PMIX_NAMESPACE is not"}},
      {with(kMpirun, {{"PMIX_RANK", "2"}}), {"PMIX_RANK=2 and OMPI_COMM_WORLD_RANK=1 contradict"}},
      {without(kMpirun, {"OMPI_COMM_WORLD_LOCAL_SIZE"}), {"OMPI_COMM_WORLD_LOCAL_SIZE is not"}},
      {with(kMpirun, {{"OMPI_COMM_WORLD_LOCAL_RANK", "x"}}),
       {"OMPI_COMM_WORLD_LOCAL_RANK=x: expects a whole number"}},
      {{{"PMI_RANK", "1"}}, {"PMI_SIZE is not"}},
      {{{"PMI_RANK", "4"}, {"PMI_SIZE", "4"}}, {"PMI_RANK=4: expects less than PMI_SIZE=4"}},
      {with(kSrun, {{"SLURM_PROCID", "5"}}),
       {"SLURM_PROCID=5: expects less than SLURM_STEP_NUM_TASKS=5"}},
      {without(kSrun, {"SLURM_LOCALID"}), {"SLURM_LOCALID is not"}},
      {{{"SLURM_PROCID", "0"}}, {"SLURM_NTASKS is not"}},
      {with(kSrun, {{"SLURM_STEP_NODELIST", "zn[1-"}}),
       {"SLURM_STEP_NODELIST=zn[1-: expects a list of hosts", "ZORSE_STORE"}},
      {{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "0"}},
       {"does not tell where rank 0 is"}},
      {without(kPet, {"PET_NODE_RANK"}), {"PET_NODE_RANK is not"}},
      {without(kPet, {"PET_NNODES"}), {"PET_NNODES is not"}},
      {without(kPet, {"PET_MASTER_ADDR"}), {"PET_MASTER_ADDR is not"}},
      {with(kPet, {{"PET_NNODES", "1:4"}}), {"PET_NNODES=1:4: expects a fixed number of nodes"}},
      {with(kPet, {{"PET_NODE_RANK", "2"}}), {"PET_NODE_RANK=2: expects less than PET_NNODES=2"}},
      {with(kPet, {{"PET_NNODES", "two"}}), {"PET_NNODES=two: expects a whole number"}},
      {without(kLws, {"LWS_GROUP_SIZE"}), {"LWS_GROUP_SIZE is not"}},
      {with(kLws, {{"LWS_WORKER_INDEX", "3"}}),
       {"LWS_WORKER_INDEX=3: expects less than LWS_GROUP_SIZE=3"}},
      {{{"JOB_COMPLETION_INDEX", "0"}},
       {"JOB_COMPLETION_INDEX=0", "NNODES", "ZORSE_LAUNCHER=none"}},
      {without(kJobSet, {"REPLICATED_JOB_NAME"}), {"REPLICATED_JOB_NAME"}},
      {with(kJobSet, {{"JOB_COMPLETION_INDEX", "2"}}),
       {"JOB_COMPLETION_INDEX=2: expects less than NNODES=2"}},
      {with(kJobSet, {{"JOB_INDEX", "a"}}), {"JOB_INDEX=a: expects a whole number"}},
  };
  for (const auto &[environment, parts] : cases)
    for (const char *part : parts)
      EXPECT_HAS(refusal(environment), part);
}

TEST(LaunchPlace, Endpoints) {
  auto read = [](const std::string &text) {
    Result<std::vector<Endpoint>> endpoints = parseEndpoints("ZORSE_STORE", text);
    return endpoints.failed() ? "refused" : endpointsText(*endpoints);
  };
  EXPECT_EQ(read("a:1"), "a:1");
  EXPECT_EQ(read("a:1,a:2,a:3,b:7"), "a:1-3,b:7");
  EXPECT_EQ(read("[::1]:29600-29602,10.0.0.1:65535"), "[::1]:29600-29602,10.0.0.1:65535");
  for (const char *bad :
       {"", "a", ":1", "a:", "a:0", "a:65536", "a:1,", ",a:1", "a:2-1", "a:1-", "::1:5", "[]:5",
        "[::1:5", "a b:5", "http://a:5", "a:1-65535", "a:99999999999"})
    EXPECT_EQ(read(bad), "refused") << bad;
}

TEST(LaunchPlace, HostLists) {
  auto expand = [](const std::string &list) {
    Result<std::vector<std::string>> hosts = launching::expandHostList("SLURM_JOB_NODELIST", list);
    std::string text;
    if (hosts.failed())
      return std::string("refused");
    for (const std::string &host : *hosts)
      text += (text.empty() ? "" : " ") + host;
    return text;
  };
  EXPECT_EQ(expand("n1"), "n1");
  EXPECT_EQ(expand("n[1-3,7]"), "n1 n2 n3 n7");
  EXPECT_EQ(expand("gpu[08-11]"), "gpu08 gpu09 gpu10 gpu11");
  EXPECT_EQ(expand("gpu[008-010,2]-ib"), "gpu008-ib gpu009-ib gpu010-ib gpu2-ib");
  EXPECT_EQ(expand("a,b[1-2],c-d.example.org"), "a b1 b2 c-d.example.org");
  EXPECT_EQ(expand("rack[0-1]node[1-2]"), "rack0node1 rack0node2 rack1node1 rack1node2");
  EXPECT_EQ(expand("x[9-10,099-100]"), "x9 x10 x099 x100");
  for (const char *bad : {"", ",", "n[", "n[]", "n[1", "n1]", "n[a-b]", "n[3-1]", "n[1-]",
                          "n[1,,2]", "a,,b", "n[1-99999999]", "n[0-999]m[0-999]", "n[[1]]", "a b"})
    EXPECT_EQ(expand(bad), "refused") << bad;
}

TEST(LaunchPlace, ListenOn) {
  using launching::OwnAddress;
  std::vector<OwnAddress> own = {{"lo", "127.0.0.1", true},
                                 {"eth0", "192.168.7.3", false},
                                 {"ib0", "10.1.0.3", false},
                                 {"eth0", "fd00::3", false}};
  auto choose = [&](const std::string &asked) {
    Result<std::string> address = launching::chooseAddress(asked, own);
    return address.failed() ? "refused: " + address.message() : *address;
  };
  EXPECT_EQ(choose("ib0"), "10.1.0.3");
  EXPECT_EQ(choose("10.1.0.0/16"), "10.1.0.3");
  EXPECT_EQ(choose("192.168.7.3"), "192.168.7.3");
  EXPECT_EQ(choose("fd00::/16"), "fd00::3");
  EXPECT_EQ(choose("127.0.0.2"), "127.0.0.2");
  EXPECT_HAS(choose("10.2.0.0/16"),
             "this host has no address in it; expects an address of this host");
  EXPECT_HAS(choose("10.2.0.0/16"), "this host has lo 127.0.0.1, eth0 192.168.7.3");
  EXPECT_HAS(choose("192.168.7.4"), "is no address of this host");
  EXPECT_HAS(choose("0.0.0.0"), "is no address of this host"); // peers need a specific address
  EXPECT_HAS(choose("eth1"), "is neither an address nor an interface");
  for (const char *bad : {"10.1.0.0/", "10.1.0.0/33", "10.1.0.0/x", "/16", "eth0/16"})
    EXPECT_HAS(choose(bad), "is no network");

  auto coordinator = [&](const std::vector<std::string> &addresses, const std::string &asked,
                         const std::vector<OwnAddress> &all) {
    Result<std::string> address =
        launching::chooseCoordinatorAddress("node1", addresses, asked, all);
    return address.failed() ? "refused: " + address.message() : *address;
  };
  EXPECT_EQ(coordinator({"192.168.7.3"}, "", own), "192.168.7.3");
  EXPECT_EQ(coordinator({"192.168.7.3"}, "ib0", own),
            "192.168.7.3"); // the other ranks connect to the address they were given
  EXPECT_EQ(coordinator({"127.0.0.2"}, "", own), "127.0.0.2"); // a cluster on loopback
  // A host name that resolves to 127.0.1.1 or to the address of a service.
  std::vector<OwnAddress> plain = {{"lo", "127.0.0.1", true}, {"eth0", "192.168.7.3", false}};
  EXPECT_EQ(coordinator({"127.0.1.1"}, "", plain), "192.168.7.3");
  EXPECT_EQ(coordinator({"10.96.0.17"}, "", plain), "192.168.7.3");
  EXPECT_EQ(coordinator({"127.0.1.1"}, "ib0", own), "10.1.0.3");
  EXPECT_HAS(coordinator({"127.0.1.1"}, "", own),
             "as 'node1', which is 127.0.1.1 here, and no other host can reach that; this host has "
             "lo 127.0.0.1, eth0 192.168.7.3, ib0 10.1.0.3");
  EXPECT_HAS(coordinator({}, "", own), "which has no address here");

  RankEnvironment place;
  place.worldSize = 2;
  place.oneHost = true;
  EXPECT_EQ(*coordinatorAddress(place, ""), "127.0.0.1");
  place.oneHost = false;
  place.coordinator = {{"127.0.0.1", 29600}};
  EXPECT_EQ(*coordinatorAddress(place, ""), "127.0.0.1");
  EXPECT_EQ(*rankAddress(place, ""), "127.0.0.1");
  EXPECT_EQ(*rankAddress(place, "lo"), "127.0.0.1");
  place.coordinator = {{"no-such-host.invalid", 29600}};
  EXPECT_TRUE(rankAddress(place, "").failed());
}
