// Fuzzes the readers of rank environments, host lists and endpoints. An input has one NAME=value
// per line.
#include "Fuzz.h"

#include "launch/HostList.h"
#include "zorse/runtime/Launch.h"

using namespace zorse;
using namespace zorse::runtime;

bool fuzz::readOne(std::string_view bytes) {
  Environment environment;
  bool good = false;
  for (size_t begin = 0; begin < bytes.size();) {
    size_t end = std::min(bytes.find('\n', begin), bytes.size());
    std::string line(bytes.substr(begin, end - begin));
    begin = end + 1;
    size_t equals = std::min(line.find('='), line.size());
    std::string name = line.substr(0, equals),
                value = line.substr(std::min(equals + 1, line.size()));
    environment[name] = value;
    Result<std::vector<std::string>> hosts = launching::expandHostList(name, value);
    ZORSE_FUZZ_EXPECT(hosts.failed() || (!hosts->empty() && hosts->size() <= launching::kMaxHosts));
    Result<std::vector<Endpoint>> endpoints = parseEndpoints(name, value);
    if (!endpoints.failed()) {
      Result<std::vector<Endpoint>> again = parseEndpoints(name, endpointsText(*endpoints));
      ZORSE_FUZZ_EXPECT(!again.failed() && again->size() == endpoints->size());
    }
  }
  Result<std::optional<RankEnvironment>> place =
      readRankEnvironment(environment, [] { return Result<PmixInfo>(PmixInfo{4, 1, 2, "n1"}); });
  if (place.failed()) {
    ZORSE_FUZZ_EXPECT(!place.message().empty());
  } else if (*place) {
    ZORSE_FUZZ_EXPECT((*place)->worldSize >= 1 && (*place)->rank < (*place)->worldSize);
    good = true;
  }
  return good;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize,
                                          unsigned seed) {
  static const std::vector<const char *> words = {
      "RANK",
      "WORLD_SIZE",
      "LOCAL_RANK",
      "MASTER_ADDR",
      "MASTER_PORT",
      "ZORSE_RANK",
      "ZORSE_WORLD",
      "ZORSE_STORE",
      "ZORSE_JOB",
      "ZORSE_LAUNCHER",
      "SLURM_PROCID",
      "SLURM_NTASKS",
      "SLURM_LOCALID",
      "SLURM_JOB_ID",
      "SLURM_STEP_NODELIST",
      "SLURM_JOB_NODELIST",
      "SLURM_NODELIST",
      "PMIX_RANK",
      "PMI_RANK",
      "PMI_SIZE",
      "OMPI_COMM_WORLD_RANK",
      "OMPI_COMM_WORLD_SIZE",
      "OMPI_COMM_WORLD_LOCAL_RANK",
      "PET_NNODES",
      "PET_NODE_RANK",
      "PET_MASTER_ADDR",
      "LWS_LEADER_ADDRESS",
      "LWS_GROUP_SIZE",
      "LWS_WORKER_INDEX",
      "JOB_COMPLETION_INDEX",
      "JOBSET_NAME",
      "JOBSET_REPLICATED_JOB_NAME",
      "[0-9]",
      "[00-99999]",
      "[",
      "]",
      ",",
      "-",
      ":",
      "=",
      "\n",
      "localhost",
      "::1",
      "65535",
      "none",
  };
  fuzz::Random random(seed);
  return fuzz::put(fuzz::mutateText({reinterpret_cast<char *>(data), size}, words, random), data,
                   maxSize);
}
