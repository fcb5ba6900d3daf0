#include "zorse/runtime/Executor.h"

#include "DeviceProgram.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <list>
#include <mutex>
#include <thread>

using namespace zorse;
using namespace zorse::runtime;
using bundle::Entry;

namespace {

using Clock = std::chrono::steady_clock;

/// A thread's work: all entries of some queues of one device, in list order.
struct Server {
  DeviceProgram *program;
  Transport *transport;
  std::vector<PreparedEntry *> entries;
  std::vector<TraceEvent> trace;
  std::thread thread;

  // Read by the watchdog.
  enum State : int { Between, Waiting, Computing, Communicating };
  std::atomic<int> state{Between};
  std::atomic<uint32_t> at{0};          ///< index in `entries`
  std::atomic<uint64_t> finished{0};    ///< entries, over all steps
};

/// A step under way.
struct Slot {
  StepRequest request;
  StepResult result;
  size_t serversLeft = 0;
  bool started = false;
};

} // namespace

class Executor::Implementation {
public:
  Implementation(const Bundle &bundle, std::vector<std::unique_ptr<Device>> devices, std::vector<std::unique_ptr<Transport>> transports,
                 const ExecutorOptions &options)
      : bundle(bundle), devices(std::move(devices)), transports(std::move(transports)), options(options), start(Clock::now()) {}

  ~Implementation() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      stopping = true;
    }
    submitted.notify_all();
    if (waited < requested)
      fail(internalError("the run was given up"));
    for (Server &server : servers)
      if (server.thread.joinable())
        server.thread.join();
    watchdogWake.notify_all();
    if (watchdog.joinable())
      watchdog.join();
  }

  Status prepare() {
    for (uint32_t i = 0; i < devices.size(); ++i) {
      if (Status status = devices[i]->loadBodies(bundle.bodies, bundle.kernelDirectory()); status.failed())
        return status;
      Result<std::unique_ptr<DeviceProgram>> program = DeviceProgram::create(bundle, i, *devices[i], options.poison);
      if (program.failed())
        return program.error();
      programs.push_back(std::move(*program));
    }
    makeServers();
    for (Server &server : servers)
      server.thread = std::thread([this, &server] { serve(server); });
    watchdog = std::thread([this] { watch(); });
    return Status::success();
  }

  void submit(StepRequest request) {
    {
      std::lock_guard<std::mutex> lock(mutex);
      Slot &slot = ring[requested % ring.size()];
      slot.request = std::move(request);
      slot.result = {};
      slot.serversLeft = servers.size();
      slot.started = false;
      ++requested;
    }
    submitted.notify_all();
  }

  Result<StepResult> wait() {
    std::unique_lock<std::mutex> lock(mutex);
    Slot &slot = ring[waited % ring.size()];
    if (waited == requested)
      return internalError("no step is under way");
    stepDone.wait(lock, [&] { return failure || slot.serversLeft == 0; });
    if (failure)
      return *failure;
    ++waited;
    slot.request.batch.reset();
    return slot.result;
  }

  double now() const { return std::chrono::duration<double>(Clock::now() - start).count(); }

  void fail(const Error &error) {
    {
      std::lock_guard<std::mutex> lock(mutex);
      if (!failure)
        failure = error;
      stopping = true;
    }
    for (auto &transport : transports)
      transport->abort(error);
    for (auto &program : programs)
      program->progress.stop();
    submitted.notify_all();
    stepDone.notify_all();
    watchdogWake.notify_all();
  }

  const Bundle &bundle;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::unique_ptr<Transport>> transports;
  ExecutorOptions options;
  Clock::time_point start;
  std::vector<std::unique_ptr<DeviceProgram>> programs;
  std::list<Server> servers;

private:
  void makeServers() {
    for (auto &program : programs) {
      std::vector<std::vector<uint32_t>> groups(2); // queues served by one thread
      for (int q = 0; q < program->program.queues_size(); ++q) {
        bundle::QueueKind kind = program->program.queues(q).kind();
        // Handing a copy of a few bytes to another thread and back costs more than the copy.
        bool compute = kind == bundle::COMPUTE ||
                       (program->device.sharesHostMemory() && (kind == bundle::HOST_TO_DEVICE || kind == bundle::DEVICE_TO_HOST));
        if (options.oneThreadPerQueue && !compute)
          groups.push_back({uint32_t(q)});
        else
          groups[compute ? 0 : 1].push_back(q);
      }
      for (const std::vector<uint32_t> &group : groups) {
        if (group.empty())
          continue;
        Server &server = servers.emplace_back();
        server.program = program.get();
        server.transport = transports[program->index].get();
        for (PreparedEntry &entry : program->entries)
          if (std::find(group.begin(), group.end(), entry.entry->queue()) != group.end())
            server.entries.push_back(&entry);
      }
    }
  }

  void serve(Server &server) {
    for (uint64_t step = 0;; ++step) {
      Slot *slot;
      {
        std::unique_lock<std::mutex> lock(mutex);
        server.state = Server::Between;
        submitted.wait(lock, [&] { return stopping || requested > step; });
        if (requested <= step || failure)
          return;
        slot = &ring[step % ring.size()];
        if (!slot->started) {
          slot->started = true;
          slot->result.begin = now();
        }
      }
      for (size_t i = 0; i < server.entries.size(); ++i) {
        server.at.store(i, std::memory_order_relaxed);
        if (!runEntry(server, *server.entries[i], step, *slot))
          return;
        server.finished.store(server.finished.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      }
      std::lock_guard<std::mutex> lock(mutex);
      if (--slot->serversLeft == 0) {
        slot->result.end = now();
        stepDone.notify_all();
      }
    }
  }

  /// Waits for what the entry waits for, does its work unless it is left out of this kind of step, and counts it as finished. False: give up.
  bool runEntry(Server &server, PreparedEntry &entry, uint64_t step, Slot &slot) {
    DeviceProgram &program = *server.program;
    server.state.store(Server::Waiting, std::memory_order_relaxed);
    for (const PreparedWait &wait : entry.waits) {
      if (wait.previousStep && step == 0)
        continue;
      uint64_t before = (wait.previousStep ? step - 1 : step) * program.queueLength[wait.queue];
      if (!program.progress.waitFor(wait.queue, before + wait.position + 1))
        return false;
    }
    if (!slot.request.evaluation || entry.inEvaluation) {
      bool compute = entry.entry->has_compute();
      server.state.store(compute ? Server::Computing : Server::Communicating, std::memory_order_relaxed);
      bool traced = options.trace && step < options.traceSteps;
      double begin = traced ? now() : 0;
      Status status = work(server, entry, step, slot);
      if (status.failed()) {
        fail({status.error().kind, "device " + program.program.device_name() + ", entry " + std::to_string(entry.entry->id()) + " (" +
                                       describeEntry(bundle, program.index, *entry.entry) + "): " + status.message()});
        return false;
      }
      if (traced)
        server.trace.push_back({program.index, entry.index, step, begin, now()});
    }
    program.progress.finish(entry.entry->queue());
    return true;
  }

  Status work(Server &server, PreparedEntry &prepared, uint64_t step, Slot &slot) {
    DeviceProgram &program = *server.program;
    const Entry &entry = *prepared.entry;
    Operation operation{entry.id(), step};
    switch (entry.what_case()) {
    case Entry::kCompute:
      for (const PreparedCall &call : prepared.calls) {
        if (options.beforeCall)
          options.beforeCall({step, slot.request.evaluation, program.index, entry, *call.call, bundle.bodies.bodies(call.call->body()), call.slots.data()});
        Status status = program.device.runBody(call.call->body(), {call.slots.data(), call.overwrite.data(), call.call->rows(), call.call->sample_base(),
                                                                   call.call->instance_base()});
        if (status.failed())
          return status;
      }
      return Status::success();
    case Entry::kCopy:
      return program.device.copy(program.address(entry.copy().to()), program.address(entry.copy().from()), entry.copy().from().bytes());
    case Entry::kSend:
      return server.transport->send(operation, entry.send().peer(), program.address(entry.send().region()), entry.send().region().bytes());
    case Entry::kReceive:
      return server.transport->receive(operation, entry.receive().peer(), program.address(entry.receive().region()), entry.receive().region().bytes());
    case Entry::kLoadInput: {
      const bundle::LoadInput &load = entry.load_input();
      size_t row = bundle.summary.inputs(load.input()).bytes_per_row();
      const std::vector<std::byte> &data = slot.request.batch->inputs[load.input()];
      return program.device.copy(program.address(load.region()), data.data() + load.sample_base() * row, load.rows() * row);
    }
    case Entry::kLoadScalars:
      return program.device.copy(program.address(entry.load_scalars().region()), &slot.request.scalars, sizeof slot.request.scalars);
    case Entry::kAllGather:
      return server.transport->allGather(operation, prepared.gather);
    case Entry::kReduceScatter:
      return server.transport->reduceScatter(operation, prepared.reduction);
    case Entry::kAllReduce:
      return server.transport->allReduce(operation, prepared.sum);
    case Entry::kBroadcast:
      return server.transport->broadcast(operation, prepared.broadcast);
    case Entry::kReport:
      return program.device.copy(&slot.result.report, program.address(entry.report().region()), sizeof slot.result.report);
    case Entry::WHAT_NOT_SET:
      break;
    }
    return internalError("an entry of an unknown kind");
  }

  /// Gives up when nothing has finished for a long time although a step is under way and nobody computes.
  void watch() {
    std::unique_lock<std::mutex> lock(mutex);
    uint64_t before = 0;
    Clock::time_point since = Clock::now();
    while (!stopping) {
      watchdogWake.wait_for(lock, std::chrono::duration<double>(std::min(1.0, options.stallSeconds / 4)));
      uint64_t finished = requested;
      bool computing = false, underWay = waited < requested && ring[waited % ring.size()].serversLeft > 0;
      for (Server &server : servers) {
        finished += server.finished.load(std::memory_order_relaxed);
        computing = computing || server.state.load(std::memory_order_relaxed) == Server::Computing;
      }
      if (finished != before || computing || !underWay) {
        before = finished;
        since = Clock::now();
        continue;
      }
      if (std::chrono::duration<double>(Clock::now() - since).count() < options.stallSeconds)
        continue;
      std::string text = "nothing has finished for " + std::to_string(int(options.stallSeconds)) + " s:";
      for (Server &server : servers) {
        int state = server.state.load(std::memory_order_relaxed);
        if (state == Server::Between || server.entries.empty())
          continue;
        const Entry &entry = *server.entries[std::min<size_t>(server.at.load(std::memory_order_relaxed), server.entries.size() - 1)]->entry;
        text += " device " + server.program->program.device_name() + (state == Server::Waiting ? " waits before" : " is in") + " entry " +
                std::to_string(entry.id()) + " (" + describeEntry(bundle, server.program->index, entry) + ");";
      }
      text.pop_back();
      lock.unlock();
      fail(internalError(text));
      lock.lock();
    }
  }

  std::mutex mutex; ///< guards everything below
  std::condition_variable submitted, stepDone, watchdogWake;
  std::array<Slot, Executor::kStepsAhead> ring;
  uint64_t requested = 0, waited = 0;
  bool stopping = false;
  std::optional<Error> failure;
  std::thread watchdog;
};

Executor::Executor(std::unique_ptr<Implementation> implementation) : implementation_(std::move(implementation)) {}
Executor::~Executor() = default;

Result<std::unique_ptr<Executor>> Executor::create(const Bundle &bundle, std::vector<std::unique_ptr<Device>> devices,
                                                   std::vector<std::unique_ptr<Transport>> transports, const ExecutorOptions &options) {
  if (devices.size() != bundle.programs.size() || transports.size() != bundle.programs.size())
    return internalError("expects a device and a transport for each of " + std::to_string(bundle.programs.size()) + " programs");
  auto implementation = std::make_unique<Implementation>(bundle, std::move(devices), std::move(transports), options);
  if (Status status = implementation->prepare(); status.failed())
    return status;
  return std::unique_ptr<Executor>(new Executor(std::move(implementation)));
}

std::byte *Executor::address(uint32_t device, const bundle::Region &region) const { return implementation_->programs[device]->address(region); }
void Executor::submit(StepRequest request) { implementation_->submit(std::move(request)); }
Result<StepResult> Executor::wait() { return implementation_->wait(); }

std::vector<TraceEvent> Executor::takeTrace() {
  std::vector<TraceEvent> events;
  for (Server &server : implementation_->servers) {
    events.insert(events.end(), server.trace.begin(), server.trace.end());
    server.trace.clear();
  }
  return events;
}

std::vector<Executor::MemoryUse> Executor::memoryUse() const {
  std::vector<MemoryUse> uses;
  for (const auto &program : implementation_->programs)
    uses.push_back(program->memoryUse(implementation_->options.poison));
  return uses;
}
