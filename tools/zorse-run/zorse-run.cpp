// zorse-run: trains from a bundle, as threads of one process, as processes that it starts, or as a
// rank that another launcher started.
#include "DirectTransfers.h"
#include "ElasticJob.h"
#include "JobOutput.h"
#include "NewestState.h"
#include "Options.h"
#include "Rank.h"
#include "Signals.h"
#include "Simulate.h"
#include "Train.h"

#include "zorse/runtime/Checkpoint.h"
#include "zorse/runtime/CheckpointFiles.h"
#include "zorse/runtime/Control.h"
#include "zorse/runtime/Data.h"
#include "zorse/runtime/Hardware.h"
#include "zorse/runtime/Launch.h"
#include "zorse/runtime/MappedFile.h"
#include "zorse/runtime/StandardStreams.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <thread>

#include <unistd.h>

using namespace zorse;
using namespace zorse::run;
using namespace zorse::runtime;

namespace {

/// Runs all devices as threads of this process.
Status runThreads(const Options &o, bool &finished) {
  takeSecretFromEnvironment(); // not needed without other ranks; the bundle's machine code must not
                               // see it
  if (Status status = checkOutputs(o); status.failed())
    return status;
  Result<Bundle> bundle = openBundle(o);
  if (bundle.failed())
    return bundle.error();
  if (Status status = verifyBundle(*bundle, std::thread::hardware_concurrency()); status.failed())
    return status;
  if (!o.cluster.empty())
    if (Status status = checkCluster(*bundle, o.cluster); status.failed())
      return status;
  Result<std::unique_ptr<DataSource>> data = DataSource::open(
      *bundle, o.data, o.shuffle, o.dataType, o.evaluate ? DataUse::Evaluation : DataUse::Training);
  if (data.failed())
    return data.error();

  std::vector<RankHardware> hardware;
  for (uint32_t device = 0; device < bundle->devices.size(); ++device) {
    hardware.push_back(hardwareOfThisProcess(bundle->devices[device].kind));
    addD2dHardware(hardware.back(), *bundle, device);
    hardware.back().throttled = !o.throttle.empty();
  }
  std::string note;
  if (Status status = assignUnits(*bundle, hardware, o.shareGpus); status.failed())
    return status;
  if (Status status = checkHardware(*bundle, hardware, &note); status.failed())
    return status;
  if (const std::string gpus = describeUnits(*bundle, hardware); !gpus.empty() && !o.quiet)
    printf("GPUs: %s\n", gpus.c_str());
  std::vector<int> ordinals;
  ordinals.reserve(hardware.size());
  for (const RankHardware &fact : hardware)
    ordinals.push_back(fact.ordinal);
  chooseTransfers(o, *bundle, hardware, /*speaks=*/true);

  uint64_t generation = 1;
  std::string fingerprint;
  if (!o.checkpointDirectory.empty()) {
    Result<uint64_t> newest = newestGeneration(o.checkpointDirectory);
    if (newest.failed())
      return newest.error();
    generation = *newest + 1;
    Result<std::string> print = dataFingerprint(o.data, tokenReading(*bundle, o.dataType));
    if (print.failed())
      return print.error();
    fingerprint = *print;
  }
  std::unique_ptr<ProcessGroup> group = makeSingleProcessGroup(generation);
  std::unique_ptr<StopCoordinator> stopCoordinator = makeLocalStopCoordinator();
  onSignals([stopCoordinator = stopCoordinator.get()](int) { stopCoordinator->requestStop(); });
  JobOutput output(o, *bundle);
  ProcessContext process(*group, *stopCoordinator);
  process.output = &output;
  process.resume = o.resume;
  process.fingerprint = fingerprint;
  process.makeDevices = [&](const std::vector<double> &shares) {
    return makeLocalDevices(*bundle, ordinals, shares);
  };
  process.failed = [](const Error &error) { endProcess(error.kind, error.text(), error.code()); };
  uint64_t stepsDone = 0;
  Status status = trainHere(o, *bundle, **data, process, stepsDone);
  finished = stepsDone >= o.steps || (*data)->isStream();
  return status;
}

/// Starts ranks as processes: for all devices of the bundle, or for the devices of the node given
/// by `environment`.
Result<int> runLauncher(const Options &o, int argc, char **argv,
                        const std::optional<RankEnvironment> &environment) {
  if (Status status = checkOutputs(o); status.failed())
    return status;
  Result<Bundle> bundle = openBundle(o);
  if (bundle.failed())
    return bundle.error();
  LaunchOptions launching;
  launching.command.assign(argv, argv + argc);
  launching.program = "/proc/self/exe"; // also names this program in a rank, until it calls exec
  launching.worldSize = uint32_t(bundle->devices.size());
  launching.localRanks = launching.worldSize;
  for (const BundleDevice &device : bundle->devices)
    launching.deviceNames.push_back(device.name);
  launching.restarts = o.restarts;
  launching.times = controlTimes(o);
  if (environment) {
    Result<std::vector<uint32_t>> nodes = nodesOfDevices(*bundle);
    if (nodes.failed())
      return nodes.error();
    uint32_t count = nodes->empty() ? 1 : nodes->back() + 1;
    if (environment->worldSize != count)
      return userError(o.bundle + ": has " + std::to_string(count) + " node" +
                       (count == 1 ? "" : "s") + ", but " + environment->source + " started " +
                       std::to_string(environment->worldSize) + "; start " + std::to_string(count) +
                       ", or compile the model for this cluster");
    launching.firstRank = uint32_t(
        std::lower_bound(nodes->begin(), nodes->end(), environment->rank) - nodes->begin());
    launching.localRanks =
        uint32_t(std::upper_bound(nodes->begin(), nodes->end(), environment->rank) -
                 nodes->begin()) -
        launching.firstRank;
    if (!o.quiet) {
      printf("node %u of %u, by %s: ranks %u to %u\n", environment->rank, environment->worldSize,
             environment->source.c_str(), launching.firstRank,
             launching.firstRank + launching.localRanks - 1);
      fflush(stdout);
    }
    Result<std::string> secret = jobSecret(o.secretFile);
    if (secret.failed())
      return secret.error();
    launching.key = {environment->job, *secret};
    if (environment->rank == 0) {
      Result<std::string> address = coordinatorAddress(*environment, o.listen);
      if (address.failed())
        return address.error();
      launching.listenAddress = *address;
      launching.ports.clear();
      for (const Endpoint &endpoint : environment->coordinator)
        launching.ports.push_back(endpoint.port);
    } else {
      launching.coordinator = environment->coordinator;
    }
  } else {
    launching.key = randomJobKey();
  }
  if (!o.checkpointDirectory.empty())
    launching.startsFrom = [&o] { return newestState(o); };
  launching.nextGeneration = [&o, last = uint64_t(0)]() mutable {
    uint64_t newest = 0;
    if (!o.checkpointDirectory.empty())
      if (Result<uint64_t> found = newestGeneration(o.checkpointDirectory); !found.failed())
        newest = *found;
    return last = std::max(last, newest) + 1;
  };
  std::optional<ElasticJob> elastic;
  if (o.elastic) {
    launching.reconfiguration = &elastic.emplace(o, *bundle);
    if (Status status = elastic->prepare(launching); status.failed())
      return status.error();
  }
  Result<int> code = launch(launching);
  if (code.failed() || *code != 0)
    describeMemoryLeft(o);
  else if (elastic)
    elastic->removeMemoryOfOthers();
  return code;
}

/// In a rank of an elastic job: takes the bundle of the devices that take part now.
void adoptElasticBundle(Options &o) {
  const char *bundle = std::getenv("ZORSE_BUNDLE");
  if (!bundle || !std::getenv("ZORSE_RANK") || o.bundle == bundle)
    return;
  o.bundle = bundle;
  o.expect.clear(); // the launcher compiled it from the bundle with that digest
}

Result<int> start(const Options &o, int argc, char **argv) {
  if (o.simulate) {
    Status status = runSimulation(o);
    return status.failed() ? Result<int>(status.error()) : Result<int>(0);
  }
  std::optional<RankEnvironment> environment;
  if (!o.threads) {
    Result<std::optional<RankEnvironment>> found = readRankEnvironment(currentEnvironment());
    if (found.failed())
      return found.error();
    environment = *found;
  }
  if (environment && environment->isNode)
    return runLauncher(o, argc, argv, environment);
  // `srun --pty`, `mpirun -n 1`: a launcher that started one process started no ranks.
  if (environment && environment->worldSize == 1 && !std::getenv("ZORSE_RANK"))
    environment = std::nullopt;
  // With --spawn, only a process that our own launcher started is a rank: the environment of a
  // batch script may look like a launcher's.
  if (environment && (!o.processes || std::getenv("ZORSE_RANK")))
    return run::runRank(o, *environment);
  if (o.processes)
    return runLauncher(o, argc, argv, std::nullopt);
  bool finished = false;
  if (Status status = runThreads(o, finished); status.failed())
    return status;
  return finished ? 0 : 130;
}

} // namespace

int main(int argc, char **argv) {
  openStandardStreams();
  std::signal(SIGXFSZ, SIG_IGN); // a file that exceeds ulimit -f is reported as a write error
  try {
    Options options;
    if (std::optional<int> code = parseOptions(argc, argv, options))
      return *code;
    adoptElasticBundle(options);
    explainUnreadableMappings();
    Result<int> code = start(options, argc, argv);
    if (!code.failed())
      return *code;
    endProcess(code.error().kind, code.message(), code.error().code());
  } catch (const std::bad_alloc &) {
    endProcess(ErrorKind::User, "out of memory", 1);
  }
}
