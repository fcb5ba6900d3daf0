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
#include <tuple>

using namespace zorse;
using namespace zorse::runtime;
using bundle::Entry;

namespace {

using Clock = std::chrono::steady_clock;

/// Whether a reader of state has a device's state for itself.
class StateHold {
public:
  void take() { held_.store(true, std::memory_order_relaxed); } ///< only the compute thread, which is also the only one to wait.

  void release() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      held_.store(false, std::memory_order_release);
    }
    changed_.notify_all();
  }

  /// False when stopped.
  bool waitUntilReleased() {
    if (!held_.load(std::memory_order_acquire))
      return true;
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return stopped_ || !held_.load(std::memory_order_relaxed); });
    return !stopped_;
  }

  void stop() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
  }

private:
  std::atomic<bool> held_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
};

/// Entries after which persistent state is no longer what the step before left.
bool changesState(const Entry &entry) {
  return entry.has_compute() && (entry.compute().task() == bundle::Compute::UPDATE_GROUP || entry.compute().task() == bundle::Compute::DECIDE);
}

/// A thread's work: all entries of some queues of one device, in list order.
struct Server {
  DeviceProgram *program;
  Transport *transport;
  StateHold *hold = nullptr;            ///< of the device: the thread that runs its compute entries has it.
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
  Implementation(const Bundle &bundle, std::vector<LocalDevice> given, const ExecutorOptions &options)
      : bundle(bundle), locals(std::move(given)), options(options), start(Clock::now()), holds(locals.size()) {
    for (const LocalDevice &local : locals)
      indices.push_back(local.index);
  }

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
    for (LocalDevice &local : locals)
      local.transport.reset(); // before the memory it may still expect bytes in.
  }

  Status prepare() {
    for (LocalDevice &local : locals) {
      if (Status status = local.device->loadBodies(bundle.bodies, bundle.kernelDirectory()); status.failed())
        return status;
      Result<std::unique_ptr<DeviceProgram>> program = DeviceProgram::create(bundle, local.index, *local.device, options.poison);
      if (program.failed())
        return program.error();
      programs.push_back(std::move(*program));
    }
    makeServers();
    for (Server &server : servers)
      server.thread = std::thread([this, &server] { serve(server); });
    if (options.stallSeconds > 0)
      watchdog = std::thread([this] { watch(); });
    return Status::success();
  }

  /// Position of a device among those of this process.
  size_t position(uint32_t device) const { return std::lower_bound(indices.begin(), indices.end(), device) - indices.begin(); }

  void submit(StepRequest request) {
    // A device that computes nothing never changes its state, and has no compute thread to say so.
    if (request.afterStep)
      for (size_t device = 0; device < programs.size(); ++device)
        if (std::none_of(servers.begin(), servers.end(), [&](const Server &server) { return server.hold == &holds[device]; }))
          request.afterStep->stateIsStill(programs[device]->index, request.scalars.step);
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
    for (LocalDevice &local : locals)
      local.transport->abort(error);
    for (auto &program : programs)
      program->progress.stop();
    for (StateHold &hold : holds)
      hold.stop();
    submitted.notify_all();
    stepDone.notify_all();
    watchdogWake.notify_all();
  }

  Executor::Progress progress() const {
    Executor::Progress result;
    {
      std::lock_guard<std::mutex> lock(mutex);
      result.underWay = underWay();
    }
    for (const LocalDevice &local : locals) {
      result.counter += local.transport->moved() + local.device->launches();
      for (const Unheard &peer : local.transport->unheard())
        result.unheard.push_back(peer);
    }
    // The earliest place in the order of the whole run where somebody is; of those who are there, whoever is in the entry and does not wait before it.
    std::tuple<uint64_t, uint32_t, bool> earliest{UINT64_MAX, 0, false};
    for (const Server &server : servers) {
      uint64_t finished = server.finished.load(std::memory_order_relaxed);
      result.counter += finished;
      int state = server.state.load(std::memory_order_relaxed);
      if (state == Server::Between || server.entries.empty())
        continue;
      const Entry &entry = *server.entries[std::min<size_t>(server.at.load(std::memory_order_relaxed), server.entries.size() - 1)]->entry;
      uint64_t step = finished / server.entries.size();
      std::string where = (state == Server::Waiting ? "waiting before entry " : "entry ") + std::to_string(entry.id()) + " (" +
                          describeEntry(bundle, server.program->index, entry) + ")";
      result.everywhere += (result.everywhere.empty() ? "device " : "; device ") + server.program->program.device_name() + ": " + where;
      if (std::tuple at(step, entry.id(), state == Server::Waiting); at < earliest) {
        earliest = at;
        result.where = where;
      }
    }
    if (std::get<0>(earliest) != UINT64_MAX)
      std::tie(result.step, result.entry, std::ignore) = earliest;
    return result;
  }

  const Bundle &bundle;
  std::vector<LocalDevice> locals;
  std::vector<uint32_t> indices; ///< of the devices in `locals`
  ExecutorOptions options;
  Clock::time_point start;
  std::vector<std::unique_ptr<DeviceProgram>> programs;
  std::list<Server> servers;
  std::vector<StateHold> holds; ///< as `locals`

private:
  /// With `mutex` held.
  bool underWay() const { return waited < requested && ring[waited % ring.size()].serversLeft > 0; }

  void makeServers() {
    for (size_t device = 0; device < programs.size(); ++device) {
      auto &program = programs[device];
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
        server.transport = locals[device].transport.get();
        server.hold = &group == &groups[0] ? &holds[device] : nullptr;
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
        if (!server.hold && server.transport->gainsFromExpecting())
          expectAhead(server, i, step, *slot);
        if (!runEntry(server, *server.entries[i], step, *slot))
          return;
        server.finished.store(server.finished.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      }
      if (server.hold && slot->request.afterStep) {
        server.hold->take();
        slot->request.afterStep->stateIsStill(server.program->index, slot->request.scalars.step);
      }
      std::lock_guard<std::mutex> lock(mutex);
      if (--slot->serversLeft == 0) {
        slot->result.end = now();
        stepDone.notify_all();
      }
    }
  }

  /// Entries that an entry waits for have finished.
  static bool isReady(const DeviceProgram &program, const PreparedEntry &entry, uint64_t step) {
    return std::all_of(entry.waits.begin(), entry.waits.end(), [&](const PreparedWait &wait) {
      return (wait.previousStep && step == 0) ||
             program.progress.reached(wait.queue, (wait.previousStep ? step - 1 : step) * program.queueLength[wait.queue] + wait.position + 1);
    });
  }

  /// Announces the receives behind entry `first` of a server whose memory is free. Whatever had to happen before a receive is named by its waits or by those of the
  /// entries before it in its queue, or is one of those entries: so all of these waits must be over, and those entries be receives into other bytes.
  void expectAhead(Server &server, size_t first, uint64_t step, const Slot &slot) {
    constexpr size_t kAhead = 16;
    DeviceProgram &program = *server.program;
    size_t end = std::min(server.entries.size(), first + kAhead);
    for (size_t i = first + 1; i < end; ++i) {
      PreparedEntry &entry = *server.entries[i];
      if (!entry.entry->has_receive() || entry.expectedStep == step || (slot.request.evaluation && !entry.inEvaluation) || !isReady(program, entry, step))
        continue;
      const bundle::Region &region = entry.entry->receive().region();
      bool isFree = true;
      for (size_t j = first; j < i && isFree; ++j) {
        const PreparedEntry &before = *server.entries[j];
        if (before.entry->queue() != entry.entry->queue())
          continue;
        const bundle::Region &other = before.entry->receive().region();
        isFree = before.entry->has_receive() && isReady(program, before, step) &&
                 (other.arena() != region.arena() || other.offset() + other.bytes() <= region.offset() || region.offset() + region.bytes() <= other.offset());
      }
      if (!isFree)
        continue;
      entry.expectedStep = step;
      server.transport->expect({entry.entry->id(), step}, entry.entry->receive().peer(), program.address(region), region.bytes());
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
      if (server.hold && changesState(*entry.entry) && !server.hold->waitUntilReleased())
        return false;
      bool compute = entry.entry->has_compute();
      server.state.store(compute ? Server::Computing : Server::Communicating, std::memory_order_relaxed);
      bool traced = options.trace && step < options.traceSteps;
      double begin = traced ? now() : 0;
      Status status = work(server, entry, step, slot);
      if (status.failed()) {
        fail({status.error().kind, status.message(), status.error().peer,
              "device " + program.program.device_name() + ", entry " + std::to_string(entry.entry->id()) + " (" + describeEntry(bundle, program.index, *entry.entry) +
                  ") of step " + std::to_string(slot.request.scalars.step)});
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
        Status status = program.device.runBody(call.call->body(), {{call.call->rows(), call.call->sample_base(), call.call->instance_base()}, call.slots.data(), call.overwrite.data()});
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
      slot.result.reported = true;
      return program.device.copy(&slot.result.report, program.address(entry.report().region()), sizeof slot.result.report);
    case Entry::WHAT_NOT_SET:
      break;
    }
    return internalError("an entry of an unknown kind");
  }

  /// Gives up when nothing has been done for a long time although a step is under way: a body that never returns is no better than a message that never comes.
  void watch() {
    std::unique_lock<std::mutex> lock(mutex);
    uint64_t before = 0;
    Clock::time_point since = Clock::now();
    while (!stopping) {
      watchdogWake.wait_for(lock, std::chrono::duration<double>(std::min(1.0, options.stallSeconds / 4)));
      uint64_t counter = requested;
      for (const Server &server : servers)
        counter += server.finished.load(std::memory_order_relaxed);
      for (const LocalDevice &local : locals)
        counter += local.transport->moved() + local.device->launches();
      if (counter != before || !underWay()) {
        before = counter;
        since = Clock::now();
        continue;
      }
      if (std::chrono::duration<double>(Clock::now() - since).count() < options.stallSeconds)
        continue;
      lock.unlock();
      char text[64];
      std::snprintf(text, sizeof text, "nothing has been done for %g s: ", options.stallSeconds);
      fail(internalError(text + progress().everywhere));
      lock.lock();
    }
  }

  mutable std::mutex mutex; ///< guards everything below
  std::condition_variable submitted, stepDone, watchdogWake;
  std::array<Slot, Executor::kStepsAhead> ring;
  uint64_t requested = 0, waited = 0;
  bool stopping = false;
  std::optional<Error> failure;
  std::thread watchdog;
};

Executor::Executor(std::unique_ptr<Implementation> implementation) : implementation_(std::move(implementation)) {}
Executor::~Executor() = default;

Result<std::unique_ptr<Executor>> Executor::create(const Bundle &bundle, std::vector<LocalDevice> locals, const ExecutorOptions &options) {
  for (size_t i = 0; i < locals.size(); ++i)
    if (locals[i].index >= bundle.programs.size() || (i > 0 && locals[i].index <= locals[i - 1].index) || !locals[i].device || !locals[i].transport)
      return internalError("expects devices of the bundle's " + std::to_string(bundle.programs.size()) + " in ascending order, each with a transport");
  auto implementation = std::make_unique<Implementation>(bundle, std::move(locals), options);
  if (Status status = implementation->prepare(); status.failed())
    return status;
  return std::unique_ptr<Executor>(new Executor(std::move(implementation)));
}

const std::vector<uint32_t> &Executor::devices() const { return implementation_->indices; }
std::byte *Executor::address(uint32_t device, const bundle::Region &region) const {
  return implementation_->programs[implementation_->position(device)]->address(region);
}
void Executor::releaseState(uint32_t device) { implementation_->holds[implementation_->position(device)].release(); }
void Executor::abort(const Error &why) { implementation_->fail(why); }
Executor::Progress Executor::progress() const { return implementation_->progress(); }
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
