#include "Rank.h"

#include "Collectives.h"
#include "DirectTransfers.h"
#include "JobOutput.h"
#include "Signals.h"
#include "Train.h"

#include "zorse/runtime/Checkpoint.h"
#include "zorse/runtime/Control.h"
#include "zorse/runtime/Data.h"
#include "zorse/runtime/DelayedTransport.h"
#include "zorse/runtime/GlooTransport.h"
#include "zorse/runtime/Hardware.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <thread>

#include <unistd.h>

using namespace zorse;
using namespace zorse::run;
using namespace zorse::runtime;

void zorse::run::endProcess(ErrorKind kind, const std::string &message, int exitCode) {
  static std::atomic_flag ending = ATOMIC_FLAG_INIT;
  if (ending.test_and_set())
    for (;;)
      ::pause(); // another thread is about to end the process
  fflush(stdout);
  fprintf(stderr, "%s: %s\n", kind == ErrorKind::User ? "error" : "internal error",
          message.c_str());
  ::_exit(exitCode);
}

ControlTimes zorse::run::controlTimes(const Options &o) {
  return {o.heartbeatSeconds, o.heartbeatTimeoutSeconds, o.watchdogTimeoutSeconds, o.joinSeconds};
}

namespace {

/// Returns all devices with which the device's program exchanges data other than by direct
/// transfers.
std::vector<uint32_t> peersOf(const bundle::Program &program) {
  std::set<uint32_t> peers;
  auto add = [&](const auto &list) { peers.insert(list.begin(), list.end()); };
  for (const bundle::Instruction &instruction : program.instructions()) {
    if (program.queues(int(instruction.queue())).kind() == bundle::DEVICE_TO_DEVICE)
      continue;
    if (instruction.has_send())
      peers.insert(instruction.send().peer());
    if (instruction.has_receive())
      peers.insert(instruction.receive().peer());
    add(bundle::participantsOf(instruction));
  }
  peers.erase(program.device());
  return {peers.begin(), peers.end()};
}

/// Counts turns that the job has finished. A rank without work waits for it; otherwise it would
/// finish all steps immediately.
class Turns {
public:
  void done() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ++done_;
    }
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++awaited_;
    changed_.wait(lock, [&] { return done_ >= awaited_; });
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t done_ = 0, awaited_ = 0;
};

class Rank {
public:
  Rank(const Options &options, const RankEnvironment &environment)
      : o(options), environment(environment) {}

  int run() {
    Status status = start();
    if (status.failed())
      failed(status.error());
    ProcessContext process(*member, *member);
    process.member = member.get();
    process.output = output.get();
    process.resume = o.resume || environment.attempt > 0;
    process.fingerprint = fingerprint;
    process.memoryPeers = memoryPeers;
    process.makeDevices = [this](const std::vector<double> &shares) { return makeDevices(shares); };
    process.failed = [this](const Error &error) { failed(error); };
    process.reportToAll = std::any_of(
        bundle->programs.begin(), bundle->programs.end(),
        [](const bundle::Program &program) { return program.instructions_size() == 0; });
    if (bundle->programs[environment.rank].instructions_size() == 0)
      process.pace = [this] { turns.wait(); };
    uint64_t stepsDone = 0;
    status = trainHere(o, *bundle, *data, process, stepsDone);
    if (status.failed())
      failed(status.error());
    member->leave();
    if (coordinator)
      coordinator->waitUntilOver(o.heartbeatTimeoutSeconds);
    return stepsDone >= o.steps ? 0 : leaving ? kLeavingRank : 130;
  }

private:
  Status start() {
    // An error before joining is reported to the job after joining, so that the other ranks do not
    // wait for this one.
    Status ready = load();
    if (Status status = join(); status.failed()) {
      if (ready.failed())
        return ready;
      Error error = status.error();
      // An earlier start had the right addresses and secret: the network or another rank failed,
      // and a restart may succeed.
      if (environment.attempt > 0)
        error.exitCode = 2;
      return error;
    }
    if (ready.failed())
      return ready;

    RankHardware hardware = hardwareOfThisProcess(bundle->devices[environment.rank].kind);
    addD2dHardware(hardware, *bundle, environment.rank);
    hardware.throttled = !o.throttle.empty();
    hardware.bundle = bundle->digest;
    hardware.run = runText(o, fingerprint, evaluationFingerprint);
    Result<std::vector<std::string>> texts =
        member->allGatherBytes("facts", encodeHardware(hardware));
    if (texts.failed())
      return texts.error();
    met = true;
    std::vector<RankHardware> all;
    for (const std::string &text : *texts) {
      Result<RankHardware> decoded = decodeHardware(text);
      if (decoded.failed())
        return decoded.error();
      all.push_back(std::move(*decoded));
    }
    if (Status status = assignUnits(*bundle, all, o.shareGpus); status.failed())
      return status;
    if (all.size() == bundle->devices.size())
      chooseTransfers(o, *bundle, all, environment.rank == 0);
    std::string note;
    if (Status status = checkHardware(*bundle, all, &note); status.failed())
      return status;
    ordinal = all[environment.rank].ordinal;
    if (Status status = prepareMemoryPeers(all); status.failed())
      return status;
    threadsHere = 0;
    for (size_t rank = 0; rank < all.size(); ++rank)
      if (all[rank].host == all[environment.rank].host)
        threadsHere += bundle->devices[rank].threads;
    if (environment.rank == 0) {
      if (!note.empty() && !o.quiet)
        fprintf(stderr, "note: %s\n", note.c_str());
      if (const std::string gpus = describeUnits(*bundle, all); !gpus.empty() && !o.quiet)
        printf("GPUs: %s\n", gpus.c_str());
      std::set<std::string> hosts;
      for (const RankHardware &hardware : all)
        hosts.insert(hardware.host);
      if (!o.quiet)
        printf("%u ranks on %zu host%s, started by %s, generation %llu\n", environment.worldSize,
               hosts.size(), hosts.size() == 1 ? "" : "s", environment.source.c_str(),
               (unsigned long long)member->generation());
    }
    return Status::success();
  }

  /// Ranks of one host share the checkpoints in its memory; those of other hosts need a server.
  Status prepareMemoryPeers(const std::vector<RankHardware> &all) {
    if (o.memoryInterval == 0 ||
        std::all_of(all.begin(), all.end(),
                    [&](const RankHardware &other) { return other.host == all.front().host; }))
      return Status::success();
    Result<std::string> address = rankAddress(environment, o.listen);
    if (address.failed())
      return address.error();
    memoryPeers = {*address, key.secret, o.heartbeatTimeoutSeconds, o.replicateMemory};
    return Status::success();
  }

  Status load() {
    if (environment.rank == 0)
      if (Status status = checkOutputs(o); status.failed())
        return status;
    Result<Bundle> loaded = openBundle(o);
    if (loaded.failed())
      return loaded.error();
    bundle = std::move(*loaded);
    if (environment.rank == 0) // sent to all: ranks with different digests are refused
      if (Status status = verifyBundle(*bundle, unsigned(bundle->devices[0].threads));
          status.failed())
        return status;
    if (!o.cluster.empty())
      if (Status status = checkCluster(*bundle, o.cluster); status.failed())
        return status;
    if (environment.worldSize != bundle->devices.size())
      return userError(
          o.bundle + ": has " + std::to_string(bundle->devices.size()) + " devices, but " +
          environment.source + " started " + std::to_string(environment.worldSize) +
          " processes; start one process per device, or compile the model for this cluster");
    Result<std::unique_ptr<DataSource>> opened =
        DataSource::open(*bundle, o.data, o.shuffle, o.dataType,
                         o.evaluate ? DataUse::Evaluation : DataUse::Training);
    if (opened.failed())
      return opened.error();
    data = std::move(*opened);
    if (data->isStream())
      return userError("--data " + o.data +
                       ": only a run in one process reads a stream; prepare "
                       "files for runs with a process per device");
    for (const auto &[files, text] :
         {std::pair(&o.data, &fingerprint), std::pair(&o.evaluation, &evaluationFingerprint)}) {
      if (files->empty())
        continue;
      Result<std::string> print = dataFingerprint(*files, tokenReading(*bundle, o.dataType));
      if (print.failed())
        return print.error();
      *text = *print;
    }
    if (environment.rank == 0)
      output = std::make_unique<JobOutput>(o, *bundle);
    return Status::success();
  }

  Status join() {
    Result<std::string> secret = jobSecret(o.secretFile);
    if (secret.failed())
      return secret.error();
    key = {environment.job, *secret};

    MemberOptions options;
    options.key = key;
    options.rank = environment.rank;
    options.worldSize = environment.worldSize;
    options.generation = environment.generation;
    options.endpoints = environment.coordinator;
    options.times = controlTimes(o);
    if (bundle && environment.rank < bundle->devices.size())
      options.device = bundle->devices[environment.rank].name;
    options.failed = [this](const Failure &failure) { end(failure); };
    options.reported = [this](const std::string &said) {
      if (output)
        output->take(said);
      if (isStep(said))
        turns.done();
    };
    if (environment.rank == 0 && !environment.coordinatorElsewhere) {
      CoordinatorOptions hosting;
      hosting.key = key;
      hosting.worldSize = environment.worldSize;
      hosting.rank = 0;
      hosting.generation = std::max(environment.attempt + 1, environment.generation);
      if (!o.checkpointDirectory.empty()) {
        Result<uint64_t> newest = newestGeneration(o.checkpointDirectory);
        if (newest.failed())
          return newest.error();
        hosting.generation = std::max(hosting.generation, *newest + 1);
      }
      Result<std::string> address = coordinatorAddress(environment, o.listen);
      if (address.failed())
        return address.error();
      hosting.listenAddress = *address;
      hosting.ports.clear();
      for (const Endpoint &endpoint : environment.coordinator)
        hosting.ports.push_back(endpoint.port);
      hosting.times = options.times;
      if (bundle)
        for (const BundleDevice &device : bundle->devices)
          hosting.devices.push_back(device.name);
      Result<std::unique_ptr<Coordinator>> hosted = Coordinator::start(hosting);
      if (hosted.failed())
        return hosted.error();
      coordinator = std::move(*hosted);
      options.endpoints = {{hosting.listenAddress, coordinator->port()}};
    }
    Result<std::unique_ptr<Member>> joined = Member::join(std::move(options));
    if (joined.failed())
      return joined.error();
    member = std::move(*joined);
    onSignals([this](int signal) {
      leaving = o.elastic && signal == SIGTERM; // of the launcher or of the system, to this rank
      member->requestStop();
    });
    return Status::success();
  }

  Result<std::vector<LocalDevice>> makeDevices(const std::vector<double> &shares) {
    GlooOptions options;
    Result<std::string> address = rankAddress(environment, o.listen);
    if (address.failed())
      return address.error();
    options.listenAddress = *address;
    options.job = key.job;
    options.secret = key.secret;
    options.peers = peersOf(bundle->programs[environment.rank]);
    for (const BundleDevice &device : bundle->devices)
      options.deviceNames.push_back(device.name);
    Result<std::vector<uint32_t>> nodes = nodesOfDevices(*bundle);
    if (nodes.failed())
      return nodes.error();
    options.nodes = *nodes;
    for (uint32_t peer : options.peers)
      if (!nodes->empty() && (*nodes)[peer] != (*nodes)[environment.rank])
        options.dataConnections[peer] = o.nodeConnections;
    options.heartbeatSeconds = o.heartbeatSeconds;
    options.heartbeatTimeoutSeconds = o.heartbeatTimeoutSeconds;
    options.connectSeconds = o.joinSeconds;
    Result<std::unique_ptr<Transport>> transport = makeGlooTransport(*member, options);
    if (transport.failed())
      return transport.error();
    // Tests delay transfers at random ("seed,milliseconds") to show that results do not depend on
    // timing.
    if (const char *delays = std::getenv("ZORSE_TEST_DELAYS")) {
      unsigned long long seed = 0;
      double milliseconds = 0;
      if (std::sscanf(delays, "%llu,%lf", &seed, &milliseconds) != 2 ||
          !(milliseconds >= 0 && milliseconds <= 10000))
        return userError(std::string("ZORSE_TEST_DELAYS: expected SEED,MILLISECONDS, got '") +
                         delays + "'");
      *transport =
          makeDelayedTransport(std::move(*transport), seed + environment.rank, milliseconds);
    }
    Result<std::unique_ptr<QueuedDevice>> device =
        makeDevice(*bundle, environment.rank, ordinal, threadsHere, shares[environment.rank]);
    if (device.failed())
      return device.error();
    std::vector<LocalDevice> locals;
    locals.push_back({environment.rank, std::move(*device), std::move(*transport), nullptr,
                      shares[environment.rank]});
    return locals;
  }

  /// Reports the error to the job, waits for the root cause, and ends the process.
  [[noreturn]] void failed(const Error &error) {
    if (!member) {
      waitForLateRanks(); // another rank may have joined this one's coordinator, and failed, before
                          // this one did
      endProcess(error.kind, error.text(), error.code());
    }
    Failure mine = failureOf(error);
    mine.rank = environment.rank;
    // The rank's name implies the device, unless the job has more ranks than devices, which may be
    // the error itself.
    std::string device = bundle && environment.rank < bundle->devices.size()
                             ? "device " + bundle->devices[environment.rank].name + ", "
                             : "";
    mine.where = !device.empty() && error.where.rfind(device, 0) == 0
                     ? error.where.substr(device.size())
                     : error.where;
    end(member->fail(mine));
  }

  /// Ends the process of a failed job.
  [[noreturn]] void end(const Failure &verdict) {
    waitForLateRanks();
    endProcess(verdict.kind, verdict.message, verdict.exitCode);
  }

  void waitForLateRanks() {
    if (coordinator && !met)
      coordinator->waitForLateRanks();
  }

  const Options &o;
  const RankEnvironment &environment;
  std::optional<Bundle> bundle;
  std::unique_ptr<DataSource> data;
  std::string fingerprint, evaluationFingerprint;
  JobKey key;
  std::unique_ptr<JobOutput> output; // used by the member's callbacks
  std::unique_ptr<Coordinator> coordinator;
  std::unique_ptr<Member> member;
  std::atomic<bool> met = false;     // all ranks have joined
  std::atomic<bool> leaving = false; // of an elastic job: this rank was asked to end
  CheckpointOptions::Peers memoryPeers;
  int threadsHere = 1;
  int ordinal = 0; ///< index of the device's hardware unit on this host
  Turns turns;
};

} // namespace

int zorse::run::runRank(const Options &options, const RankEnvironment &environment) {
  return Rank(options, environment).run();
}
