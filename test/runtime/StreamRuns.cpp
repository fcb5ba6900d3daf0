// Tests stream order on emulated GPUs. Runs a bundle repeatedly with streams that are delayed at
// random, and with changed waits, events and streams.
//
//   stream-runs BUNDLE DATA [DELAYS] [MUTANTS] [FIRST SEED]
//
// The stand-in for libcuda (test/emulator) must report no finding in the first run, and every run
// with random delays must produce the same bits. Each mutant must be detected: a wait of the
// program left out, the n-th wait of a stream or record of an event left out, the n-th work item
// put on another stream. Prints how many mutants of each kind were detected and lists the others;
// fails if there are any.
#include "zorse/runtime/Data.h"
#include "zorse/runtime/DeviceTransport.h"
#include "zorse/runtime/State.h"
#include "zorse/runtime/Training.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

using namespace zorse;
using namespace zorse::runtime;

namespace {

/// Number of GPUs before `device`: every GPU device of the bundle gets a separate GPU here.
int gpusBefore(const Bundle &bundle, uint32_t device) {
  int count = 0;
  for (uint32_t before = 0; before < device; ++before)
    count += bundle.devices[before].kind == "cuda" && bundle.devices[device].kind == "cuda";
  return count;
}

constexpr uint64_t kSteps = 2;

[[noreturn]] void fail(const std::string &what) {
  std::fprintf(stdout, "stream-runs: %s\n", what.c_str());
  std::exit(1);
}

template <typename T> T must(Result<T> result) {
  if (result.failed())
    fail(result.message());
  return std::move(*result);
}

/// A test function of the stand-in.
template <typename Function> Function *standIn(const char *name) {
  static void *library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  void *found = library ? ::dlsym(library, name) : nullptr;
  if (!found)
    fail("libcuda.so.1 is not the stand-in of test/emulator: put it first in LD_LIBRARY_PATH");
  return reinterpret_cast<Function *>(found);
}
void hostAccess(const void *data, size_t bytes, bool write) {
  static auto *access = standIn<void(const void *, size_t, int)>("zorseStandInHostAccess");
  if (data && bytes)
    access(data, bytes, write);
}

/// Reports to the stand-in which memory a device's transport reads and writes, and adds random
/// delays.
class WatchedTransport final : public Transport {
public:
  WatchedTransport(std::unique_ptr<Transport> inner, uint32_t device, double max, uint64_t seed)
      : inner_(std::move(inner)), device_(device), max_(max), seed_(seed) {}
  std::string name() const override { return inner_->name(); }
  Status send(Operation operation, uint32_t peer, const void *data, size_t bytes) override {
    dawdle(operation);
    hostAccess(data, bytes, false);
    return inner_->send(operation, peer, data, bytes);
  }
  Status receive(Operation operation, uint32_t peer, void *data, size_t bytes) override {
    dawdle(operation);
    hostAccess(data, bytes, true);
    return inner_->receive(operation, peer, data, bytes);
  }
  Status allGather(Operation operation, const AllGatherArguments &a) override {
    dawdle(operation);
    const auto *full = static_cast<const std::byte *>(a.full);
    for (const Shard &shard : a.shards) {
      const size_t bytes = size_t(shard.end - shard.begin) * a.elementBytes;
      const std::byte *place = full ? full + size_t(shard.begin) * a.elementBytes : nullptr;
      if (place && place != a.shard)
        hostAccess(place, bytes, true);
      else if (place)
        hostAccess(place, bytes, false);
    }
    for (const Shard &shard : a.shards)
      if (!full && shard.device == device_)
        hostAccess(a.shard, size_t(shard.end - shard.begin) * a.elementBytes, false);
    return inner_->allGather(operation, a);
  }
  Status reduceScatter(Operation operation, const ReduceScatterArguments &a) override {
    dawdle(operation);
    const size_t size = bytesOf(a.type);
    int64_t elements = 0, own = 0;
    for (const Shard &shard : a.shards)
      elements = std::max(elements, shard.end);
    for (const Shard &shard : a.shards)
      if (shard.device == device_)
        own = shard.end - shard.begin;
    hostAccess(a.full, size_t(elements) * size, false);
    hostAccess(a.shard, size_t(own) * size, true);
    return inner_->reduceScatter(operation, a);
  }
  Status allReduce(Operation operation, const AllReduceArguments &a) override {
    dawdle(operation);
    hostAccess(a.data, size_t(a.count) * bytesOf(a.type), true);
    return inner_->allReduce(operation, a);
  }
  uint64_t moved() const override { return inner_->moved(); }
  void abort(const Error &why) override { inner_->abort(why); }

private:
  void dawdle(Operation operation) const {
    std::mt19937_64 random(seed_ * 31 + operation.instruction * 7919 + operation.step);
    if (max_ > 0 && random() % 2)
      std::this_thread::sleep_for(
          std::chrono::duration<double>(max_ * double(random() % 1024) / 1024));
  }
  std::unique_ptr<Transport> inner_;
  const uint32_t device_;
  const double max_;
  const uint64_t seed_;
};

/// Programs declare that a gather reads its device's shard and that a reduction writes it. If the
/// shard is in place and no other device reads or contributes to it, the transport does not access
/// it, and only later readers need the wait. This class reports such accesses to the stand-in, so
/// that it also detects when these waits are missing.
class WatchedDirect final : public DeviceTransport {
public:
  WatchedDirect(std::unique_ptr<DeviceTransport> inner, uint32_t device)
      : inner_(std::move(inner)), device_(device) {}
  Status send(uint32_t peer, DeviceAddress data, size_t bytes, WorkStream &stream) override {
    return inner_->send(peer, data, bytes, stream);
  }
  Status receive(uint32_t peer, DeviceAddress data, size_t bytes, WorkStream &stream) override {
    return inner_->receive(peer, data, bytes, stream);
  }
  Status allGather(const DeviceAllGather &gather, WorkStream &stream) override {
    touch(stream, gather.shards, gather.shard, gather.elementBytes, false);
    return inner_->allGather(gather, stream);
  }
  Status reduceScatter(const DeviceReduction &reduction, WorkStream &stream) override {
    Status status = inner_->reduceScatter(reduction, stream);
    touch(stream, reduction.shards, reduction.shard, bytesOf(reduction.type), true);
    return status;
  }
  Status allReduce(const DeviceSum &sum, WorkStream &stream) override {
    return inner_->allReduce(sum, stream);
  }
  uint64_t moved() const override { return inner_->moved(); }
  void onFailure(std::function<void(const Error &)> told) override {
    inner_->onFailure(std::move(told));
  }
  void abort(const Error &why) override { inner_->abort(why); }

private:
  void touch(WorkStream &stream, const std::vector<Shard> &shards, DeviceAddress own,
             size_t elementBytes, bool write) const {
    static auto *access = standIn<void(void *, uint64_t, size_t, int)>("zorseStandInStreamAccess");
    for (const Shard &shard : shards)
      if (shard.device == device_ && own)
        access(stream.handle(), own.value, size_t(shard.end - shard.begin) * elementBytes, write);
  }
  std::unique_ptr<DeviceTransport> inner_;
  const uint32_t device_;
};

struct Outcome {
  std::string error; ///< "": none
  std::string bits;  ///< bits of losses and state
};

/// Connects GPUs with direct transfers, as zorse-run does.
Status connectDirectly(const Bundle &bundle, std::vector<LocalDevice> &locals) {
  if (bundle.hostStaged.empty())
    return Status::success();
  DeviceTransportOptions options;
  options.plan = deviceTransferPlan(bundle);
  options.sums = deviceSums(bundle.summary);
  for (const BundleDevice &device : bundle.devices)
    options.names.push_back(device.name);
  std::vector<DeviceTransportMember> members;
  for (const std::vector<uint32_t> &group : options.plan.groups)
    for (uint32_t device : group)
      if (std::none_of(members.begin(), members.end(), [&](const DeviceTransportMember &member) {
            return member.device == device;
          }))
        members.push_back({device, locals[device].device.get()});
  auto solo = makeSingleProcessGroup();
  auto made = connectNccl(members, *solo, options);
  if (made.failed())
    return made.error();
  for (size_t i = 0; i < members.size(); ++i)
    locals[members[i].device].deviceTransport =
        std::make_unique<WatchedDirect>(std::move((*made)[i]), members[i].device);
  return Status::success();
}

/// Trains from the first step on new devices.
Outcome run(const Bundle &bundle, const char *data, double delays, uint64_t seed) {
  std::vector<std::unique_ptr<Transport>> transports =
      makeLocalTransports(uint32_t(bundle.devices.size()));
  std::vector<LocalDevice> locals;
  for (uint32_t d = 0; d < bundle.devices.size(); ++d) {
    std::unique_ptr<Transport> transport = std::move(transports[d]);
    if (bundle.devices[d].kind == "cuda")
      transport =
          std::make_unique<WatchedTransport>(std::move(transport), d, delays, seed * 17 + d);
    locals.push_back(
        {d, must(makeDevice(bundle, d, gpusBefore(bundle, d), int(bundle.devices.size()))),
         std::move(transport)});
  }
  if (Status status = connectDirectly(bundle, locals); status.failed())
    return {status.message(), ""};
  ExecutorOptions options;
  options.watchdogTimeoutSeconds = 20;
  Outcome outcome;
  Result<std::unique_ptr<Executor>> executor = Executor::create(bundle, std::move(locals), options);
  if (executor.failed())
    return {executor.message(), ""};
  static auto *loads = standIn<uint64_t()>("zorseStandInLoadCount"),
              *pageable = standIn<uint64_t()>("zorseStandInPageableCopies"),
              *connections = standIn<uint64_t()>("zorseStandInConnectionCount");
  const uint64_t loaded = loads(), copied = pageable(), connected = connections();
  if (Status status = loadState(**executor, bundle, ""); status.failed())
    return {status.message(), ""};
  std::unique_ptr<DataSource> source = must(DataSource::open(bundle, data, std::nullopt));
  TrainingRun training;
  training.steps = kSteps;
  training.options = bundle.summary.training();
  training.data = source.get();
  training.report = [&](const StepReport &report) {
    outcome.bits.append(reinterpret_cast<const char *>(&report.loss), sizeof report.loss);
  };
  if (auto result = runtime::train(**executor, bundle, training); result.failed())
    return {result.message(), ""};
  if (loads() != loaded)
    return {"libraries load " + std::to_string(loads() - loaded) +
                " kernels within steps: each waits for the whole GPU",
            ""};
  if (connections() != connected)
    return {"NCCL connects " + std::to_string(connections() - connected) +
                " pairs of GPUs within steps: each takes memory, and waits for its peer",
            ""};
  if (pageable() != copied)
    return {std::to_string(pageable() - copied) + " copies of steps are to or from memory that is "
                                                  "not page-locked: each waits for its stream",
            ""};
  for (uint32_t device = 0; device < bundle.programs.size(); ++device)
    for (const bundle::PersistentState &state : bundle.programs[device].state()) {
      std::string bytes(state.region().bytes(), 0);
      if (Status status = (*executor)->read(device, state.region(), 0, bytes.data(), bytes.size());
          status.failed())
        return {status.message(), ""};
      outcome.bits += bytes;
    }
  return outcome;
}

/// Discards standard error while it lives: findings are expected from mutants.
class Quiet {
public:
  Quiet() : kept_(::dup(2)) {
    const int nowhere = ::open("/dev/null", O_WRONLY);
    ::dup2(nowhere, 2);
    ::close(nowhere);
  }
  ~Quiet() {
    ::dup2(kept_, 2);
    ::close(kept_);
  }

private:
  int kept_;
};

/// Waits of GPU programs, within a step or for the step before.
struct ProgramWait {
  int device, instruction, wait;
};
std::vector<ProgramWait> waitsOf(const Bundle &bundle) {
  std::vector<ProgramWait> all;
  for (int d = 0; d < int(bundle.programs.size()); ++d)
    for (int e = 0; bundle.devices[size_t(d)].kind == "cuda" &&
                    e < bundle.programs[size_t(d)].instructions_size();
         ++e)
      for (int w = 0; w < bundle.programs[size_t(d)].instructions(e).waits_size(); ++w)
        all.push_back({d, e, w});
  return all;
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 3)
    fail("expects BUNDLE DATA [DELAYS] [MUTANTS] [FIRST SEED]");
  const auto number = [&](int i, unsigned otherwise) {
    return argc > i ? unsigned(std::atoi(argv[i])) : otherwise;
  };
  const unsigned delays = number(3, 10), mutants = number(4, 20), first = number(5, 0);
  Bundle bundle = must(loadBundle(argv[1]));
  auto *mutate = standIn<void(int, uint64_t)>("zorseStandInMutate");
  auto *calls = standIn<uint64_t(int)>("zorseStandInCalls");
  auto *findings = standIn<uint64_t()>("zorseStandInFindings");
  auto *dawdle = standIn<void(uint64_t, double)>("zorseStandInDelays");

  mutate(0, 0);
  const Outcome plain = run(bundle, argv[2], 0, 0);
  if (!plain.error.empty())
    fail("without delays: " + plain.error);

  constexpr const char *kinds[] = {"waits of programs", "waits of streams", "records of events",
                                   "works on another stream"};
  uint64_t counts[4] = {waitsOf(bundle).size(), calls(1), calls(2), calls(3)};
  unsigned tried[4] = {}, found[4] = {};
  std::string missed;
  for (unsigned n = 0; n < mutants; ++n) {
    std::mt19937_64 random(first * 1000 + n);
    const unsigned kind = n % 4;
    if (counts[kind] == 0)
      continue;
    const uint64_t index = random() % counts[kind];
    Bundle changed = bundle;
    std::string what = std::string(kinds[kind]) + ", " + std::to_string(index);
    if (kind == 0) {
      const ProgramWait at = waitsOf(bundle)[index];
      bundle::Instruction &instruction =
          *changed.programs[size_t(at.device)].mutable_instructions(at.instruction);
      what = changed.programs[size_t(at.device)].device_name() + ", instruction " +
             std::to_string(instruction.id()) + " without wait for position " +
             std::to_string(instruction.waits(at.wait).position()) + " of queue " +
             std::to_string(instruction.waits(at.wait).queue()) +
             (instruction.waits(at.wait).previous_step() ? " of the step before" : "");
      instruction.mutable_waits()->DeleteSubrange(at.wait, 1);
    }
    mutate(int(kind), index);
    Outcome outcome;
    const uint64_t before = findings();
    {
      Quiet quiet;
      outcome = run(changed, argv[2], 0, 0);
    }
    mutate(0, 0);
    ++tried[kind];
    if (findings() > before)
      ++found[kind];
    else
      missed += "  not found: " + what + (outcome.error.empty() ? "" : " (" + outcome.error + ")") +
                "\n";
  }
  for (unsigned n = 0; n < delays; ++n) {
    dawdle(first + n, 2e-3);
    const Outcome delayed = run(bundle, argv[2], 2e-3, first + n);
    if (!delayed.error.empty() || delayed.bits != plain.bits)
      fail("delays of seed " + std::to_string(first + n) + ": " +
           (delayed.error.empty() ? "other bits" : delayed.error));
  }
  std::printf("%s%u runs at random delays: no finding, the same bits; mutants found:",
              missed.c_str(), delays);
  for (int kind = 0; kind < 4; ++kind)
    std::printf("%s %u of %u %s", kind ? "," : "", found[kind], tried[kind], kinds[kind]);
  std::printf("\n");
  return missed.empty() ? 0 : 1;
}
