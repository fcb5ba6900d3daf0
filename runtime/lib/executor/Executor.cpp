#include "zorse/runtime/Executor.h"

#include "Communication.h"
#include "HostStaging.h"
#include "LastUse.h"
#include "StateReadLatch.h"
#include "WorkerPlaces.h"

#include "zorse/runtime/HostCpu.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>

using namespace zorse;
using namespace zorse::runtime;
using bundle::Instruction;

namespace {

using Clock = std::chrono::steady_clock;

double secondsNow() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

} // namespace

class Executor::Implementation final : public InstructionRunner {
public:
  Implementation(const Bundle &bundle, std::vector<LocalDevice> given,
                 const ExecutorOptions &options)
      : bundle(bundle), locals(std::move(given)), options(options), start(secondsNow()) {
    for (const LocalDevice &local : locals)
      indices.push_back(local.index);
  }

  ~Implementation() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      stopping = true;
    }
    if (waited < requested)
      fail(internalError("the run was abandoned"));
    for (LocalDevice &local : locals)
      if (local.deviceTransport)
        local.deviceTransport->onFailure(nullptr);
    for (LocalDevice &local : locals)
      local.device->closeQueues();
    watchdogWake.notify_all();
    if (watchdog.joinable())
      watchdog.join();
    for (LocalDevice &local : locals)
      local.transport.reset(); // before the memory into which it may still receive
    // The destructors of direct transports wait for each other's close messages.
    std::vector<std::thread> goodbyes;
    for (LocalDevice &local : locals)
      if (local.deviceTransport)
        goodbyes.emplace_back([&local] { local.deviceTransport.reset(); });
    for (std::thread &goodbye : goodbyes)
      goodbye.join();
  }

  Status prepare() {
    for (LocalDevice &local : locals) {
      if (Status status =
              local.device->loadFunctions(bundle.functionsOf(local.index), bundle.kernels);
          status.failed())
        return status;
      Result<std::unique_ptr<DeviceProgram>> program =
          DeviceProgram::create(bundle, local.index, *local.device, local.transport->name(),
                                options.oneThreadPerQueue, options.poison);
      if (program.failed())
        return program.error();
      (*program)->runner = this;
      running.emplace_back(*this, std::move(*program), *local.transport,
                           local.deviceTransport.get());
      Result<std::unique_ptr<QueuedDevice>> beside =
          makeCpuBeside(bundle, local.index, locals.size(), local.share);
      if (beside.failed())
        return beside.error();
      running.back().beside = std::move(*beside);
      if (options.poisonAfterLastUse)
        running.back().lastUses =
            lastUsesOf(bundle.programs[local.index], bundle.functionsOf(local.index));
      if (!local.deviceTransport && std::any_of(running.back().program->instructions.begin(),
                                                running.back().program->instructions.end(),
                                                [](const PreparedInstruction &instruction) {
                                                  return instruction.deviceToDevice;
                                                }))
        return internalError("device " + bundle.devices[local.index].name +
                             " has direct transfers and no transport for them");
      if (local.deviceTransport)
        local.deviceTransport->onFailure([this](const Error &error) { fail(error); });
      if (Status status = local.device->openQueues(running.back().program->threads, running.back());
          status.failed())
        return status;
      if (Status status = running.back().program->warmUp(options.poison); status.failed())
        return status;
      Result<HostStaging> staging = HostStaging::create(*running.back().program, ring.size());
      if (staging.failed())
        return staging.error();
      running.back().staging = std::move(*staging);
      queuesInUse += running.back().program->queuesInUse;
    }
    if (options.watchdogTimeoutSeconds > 0)
      watchdog = std::thread([this] { watch(); });
    return Status::success();
  }

  /// A device and the state of its steps in progress.
  struct DeviceStep final : QueueObserver {
    DeviceStep(Implementation &all, std::unique_ptr<DeviceProgram> program, Transport &transport,
               DeviceTransport *direct)
        : all(all), program(std::move(program)), transport(transport), direct(direct),
          traces(this->program->queueInstructions.size()),
          computing(this->program->queueInstructions.size()) {}
    void finished(uint64_t tag, double begin, double end) override {
      all.finished(*this, tag, begin, end);
    }
    void failed(uint64_t tag, const Error &error) override { all.failed(*this, tag, error); }

    Implementation &all;
    std::unique_ptr<DeviceProgram> program;
    Transport &transport;
    DeviceTransport *direct;        ///< null: none
    std::unique_ptr<Device> beside; ///< CPU device that computes concurrently in host memory; null:
                                    ///< none
    HostStaging staging;            ///< for the steps in progress
    std::vector<LastUse> lastUses;  ///< by instruction; empty: dead bytes are not overwritten
    StateReadLatch latch;
    std::array<uint64_t, kStepsAhead> releasesNeeded = {}; ///< by step, required before its updates
    std::array<size_t, kStepsAhead> changingQueuesLeft = {}; ///< guarded by `mutex`
    std::vector<std::vector<TraceEvent>> traces; ///< by queue; each is written by one thread
    std::vector<std::array<double, kStepsAhead>> computing; ///< seconds by queue and step
  };

  DeviceStep &at(uint32_t device) {
    auto place = running.begin();
    std::advance(place, std::lower_bound(indices.begin(), indices.end(), device) - indices.begin());
    return *place;
  }

  void submit(StepRequest request) {
    // A device that never changes its state has no queue that reports the end of the step.
    if (request.afterStep)
      for (DeviceStep &device : running)
        if (device.program->changingQueues == 0) {
          device.latch.acquire();
          request.afterStep->onStateQuiescent(device.program->index, request.scalars.step);
        }
    uint64_t step = 0;
    Slot *argument = nullptr;
    {
      std::lock_guard<std::mutex> lock(mutex);
      step = requested++;
      argument = &ring[step % ring.size()];
      *argument = {std::move(request), {}, queuesInUse};
      for (DeviceStep &device : running) {
        device.releasesNeeded[step % ring.size()] = device.latch.acquired();
        device.changingQueuesLeft[step % ring.size()] = device.program->changingQueues;
      }
      if (failure)
        return;
    }
    for (DeviceStep &device : running)
      enqueue(device, step, *argument);
  }

  Result<StepResult> wait() {
    std::unique_lock<std::mutex> lock(mutex);
    Slot &argument = ring[waited % ring.size()];
    if (waited == requested)
      return internalError("no step is in progress");
    stepDone.wait(lock, [&] { return failure || argument.queuesLeft == 0; });
    if (failure)
      return *failure;
    argument.result.computing.clear();
    for (DeviceStep &device : running) {
      device.staging.takeReport(waited, argument.result);
      if (!measured(waited))
        continue;
      double &seconds = argument.result.computing.emplace_back(0);
      for (std::array<double, kStepsAhead> &queue : device.computing)
        seconds += std::exchange(queue[waited % ring.size()], 0);
    }
    ++waited;
    argument.request.batch.reset();
    return argument.result;
  }

  void fail(const Error &error) {
    {
      std::lock_guard<std::mutex> lock(mutex);
      if (!failure)
        failure = error;
      stopping = true;
    }
    for (LocalDevice &local : locals) {
      local.transport->abort(error);
      local.device->abort(error);
    }
    for (DeviceStep &device : running)
      device.latch.stop();
    stepDone.notify_all();
    watchdogWake.notify_all();
    // Last, and in parallel: this waits for work on GPUs, where devices may wait for each other.
    std::vector<std::thread> aborting;
    for (LocalDevice &local : locals)
      if (local.deviceTransport)
        aborting.emplace_back([&] { local.deviceTransport->abort(error); });
    for (std::thread &thread : aborting)
      thread.join();
  }

  Executor::Progress progress() const {
    Executor::Progress result;
    uint64_t submitted = 0;
    {
      std::lock_guard<std::mutex> lock(mutex);
      result.inProgress = inProgress();
      submitted = requested;
    }
    result.counter = counter();
    for (const LocalDevice &local : locals)
      for (const UnresponsivePeer &peer : local.transport->unresponsive())
        result.unresponsive.push_back(peer);
    std::vector<const DeviceProgram *> programs;
    for (const DeviceStep &device : running)
      programs.push_back(device.program.get());
    locateWorkers(programs, submitted, result);
    return result;
  }

  const Bundle &bundle;
  std::vector<LocalDevice> locals;
  std::vector<uint32_t> indices; ///< indices of the devices in `locals`
  ExecutorOptions options;
  double start;
  std::list<DeviceStep> running; ///< in the order of `locals`

private:
  /// A step in progress.
  struct Slot {
    StepRequest request;
    StepResult result;
    size_t queuesLeft = 0;
  };

  /// The caller must hold `mutex`.
  bool inProgress() const {
    return waited < requested && ring[waited % ring.size()].queuesLeft > 0;
  }

  uint64_t counter() const {
    uint64_t sum = 0;
    for (const LocalDevice &local : locals)
      sum += local.transport->moved() +
             (local.deviceTransport ? local.deviceTransport->moved() : 0) +
             local.device->launches();
    for (const DeviceStep &device : running)
      sum += device.beside ? device.beside->launches() : 0;
    for (const DeviceStep &device : running)
      for (size_t queue = 0; queue < device.program->workers.size(); ++queue)
        sum += device.program->device.done(uint32_t(queue));
    return sum;
  }

  /// Enqueues all instructions of a step on the queues of one device, in list order.
  void enqueue(DeviceStep &device, uint64_t step, Slot &argument) {
    DeviceProgram &program = *device.program;
    std::vector<Event> waits;
    device.staging.fill(step, argument.request);
    for (PreparedInstruction &instruction : program.instructions) {
      waits.clear();
      for (const PreparedWait &wait : instruction.waits)
        if (!wait.previousStep || step > 0)
          waits.push_back(program.event(wait, step));
      const bool runs = !argument.request.evaluation || instruction.inEvaluation;
      for (uint32_t before : poisonsAfterLastUse(device, instruction, argument)
                                 ? device.lastUses[instruction.index].after
                                 : std::vector<uint32_t>()) {
        const PreparedInstruction &other = program.instructions[before];
        waits.push_back(
            program.event({other.instruction->queue(), other.placeInQueue, false}, step));
      }
      const bool notify = instruction.firstOfQueue || instruction.lastOfQueue ||
                          (runs && (traced(step) || measured(step)));
      program.device.enqueue(instruction.instruction->queue(), waits.data(), waits.size(),
                             runs ? workOf(device, instruction, step, argument) : Work(NoWork{}),
                             step * program.instructions.size() + instruction.index, notify);
    }
    if (argument.request.afterStep && program.changingQueues > 0)
      device.latch.acquire();
    program.device.flush();
  }

  bool measured(uint64_t step) const {
    constexpr uint64_t kMeasureEvery = 5;
    return options.measureComputing && step % kMeasureEvery == 0;
  }

  bool traced(uint64_t step) const { return options.trace && step < options.traceSteps; }

  /// Returns whether dead bytes are overwritten after an instruction: only in training steps, and
  /// not for instructions on direct queues.
  bool poisonsAfterLastUse(const DeviceStep &device, const PreparedInstruction &instruction,
                           const Slot &argument) const {
    return !device.lastUses.empty() && !argument.request.evaluation &&
           !instruction.deviceToDevice && !device.lastUses[instruction.index].regions.empty();
  }

  bool observed(const Instruction &instruction, bool evaluation) const {
    return options.beforeCall && (!options.observes || options.observes(instruction, evaluation));
  }

  Work workOf(DeviceStep &device, PreparedInstruction &prepared, uint64_t step, Slot &argument) {
    const Instruction &instruction = *prepared.instruction;
    if (poisonsAfterLastUse(device, prepared, argument)) {
      argument.result.reported = argument.result.reported || instruction.has_read_metrics();
      return HostWork{&prepared, step};
    }
    return usualWorkOf(device, prepared, step, argument);
  }

  Work usualWorkOf(DeviceStep &device, PreparedInstruction &prepared, uint64_t step,
                   Slot &argument) {
    DeviceProgram &program = *device.program;
    const Instruction &instruction = *prepared.instruction;
    switch (instruction.what_case()) {
    case Instruction::kCompute: {
      if (prepared.beside)
        return HostWork{&prepared, step};
      bool held = prepared.changesState &&
                  !device.latch.released(device.releasesNeeded[step % ring.size()]);
      return CallWork{
          prepared.calls.data(), prepared.calls.size(),
          held || observed(instruction, argument.request.evaluation) ? &prepared : nullptr, step};
    }
    case Instruction::kCopy:
      return CopyWork{program.address(instruction.copy().to()),
                      program.address(instruction.copy().from()),
                      instruction.copy().from().bytes()};
    case Instruction::kLoadInput: {
      const bundle::LoadInput &load = instruction.load_input();
      const InputBytes bytes = inputBytes(bundle, load);
      return WriteWork{
          program.address(load.region()),
          device.staging.from(prepared, step,
                              argument.request.batch->inputs[load.input()].data() + bytes.offset),
          bytes.bytes};
    }
    case Instruction::kLoadScalars:
      return WriteWork{program.address(instruction.load_scalars().region()),
                       device.staging.from(prepared, step, &argument.request.scalars),
                       sizeof argument.request.scalars};
    case Instruction::kReadMetrics:
      argument.result.reported = true;
      return ReadWork{device.staging.to(prepared, step, &argument.result.report),
                      program.address(instruction.read_metrics().region()),
                      sizeof argument.result.report};
    default:
      return prepared.deviceToDevice ? Work(StreamWork{&prepared, step})
                                     : Work(HostWork{&prepared, step});
    }
  }

  /// Called in a thread of the device.
  void finished(DeviceStep &device, uint64_t tag, double begin, double end) {
    const uint64_t step = tag / device.program->instructions.size();
    const PreparedInstruction &instruction =
        device.program->instructions[tag % device.program->instructions.size()];
    const uint32_t queue = instruction.instruction->queue();
    Slot &argument = ring[step % ring.size()];
    if (traced(step) && (!argument.request.evaluation || instruction.inEvaluation))
      device.traces[queue].push_back(
          {device.program->index, instruction.index, step, begin - start, end - start});
    if (measured(step) && instruction.instruction->has_compute())
      device.computing[queue][step % ring.size()] += end - begin;
    if (!instruction.firstOfQueue && !instruction.lastOfQueue)
      return;
    std::unique_lock<std::mutex> lock(mutex);
    if (instruction.firstOfQueue)
      argument.result.begin = argument.result.begin == 0
                                  ? begin - start
                                  : std::min(argument.result.begin, begin - start);
    if (!instruction.lastOfQueue)
      return;
    if (device.program->queueChangesState[queue] &&
        --device.changingQueuesLeft[step % ring.size()] == 0 && argument.request.afterStep) {
      lock.unlock();
      argument.request.afterStep->onStateQuiescent(device.program->index,
                                                   argument.request.scalars.step);
      lock.lock();
    }
    if (--argument.queuesLeft == 0) {
      argument.result.end = end - start;
      stepDone.notify_all();
    }
  }

  /// Called in a thread of the device.
  void failed(DeviceStep &device, uint64_t tag, const Error &error) {
    const DeviceProgram &program = *device.program;
    const Instruction &instruction =
        *program.instructions[tag % program.instructions.size()].instruction;
    const uint64_t step = tag / program.instructions.size();
    fail({error.kind, error.text(), error.peer,
          "device " + program.program.device_name() + ", instruction " +
              std::to_string(instruction.id()) + " (" +
              describeInstruction(bundle, program.index, instruction) + ") of step " +
              std::to_string(ring[step % ring.size()].request.scalars.step)});
  }

  /// Executes the host work of an instruction in a thread of the device: transfers, and work before
  /// a call.
  Status run(DeviceProgram &program, PreparedInstruction &prepared, uint64_t step,
             size_t call) override {
    DeviceStep &device = at(program.index);
    Slot &argument = ring[step % ring.size()];
    if (!poisonsAfterLastUse(device, prepared, argument))
      return runOnHost(device, prepared, step, call);
    if (Status status = runAndWait(device, prepared, step, argument); status.failed())
      return status;
    for (const bundle::Region &region : device.lastUses[prepared.index].regions)
      if (Status status =
              program.device.fill(program.address(region), std::byte(0xff), region.bytes());
          status.failed()) // NaNs of every type
        return status;
    return Status::success();
  }

  /// Executes a complete instruction in this thread.
  Status runAndWait(DeviceStep &device, PreparedInstruction &prepared, uint64_t step,
                    Slot &argument) {
    const Work work = usualWorkOf(device, prepared, step, argument);
    QueuedDevice &here = device.program->device;
    if (std::holds_alternative<HostWork>(work))
      return runOnHost(device, prepared, step, 0);
    if (const auto *copy = std::get_if<CopyWork>(&work))
      return here.copy(copy->to, copy->from, copy->bytes);
    if (const auto *write = std::get_if<WriteWork>(&work))
      return here.write(write->to, write->from, write->bytes);
    if (const auto *read = std::get_if<ReadWork>(&work))
      return here.read(read->to, read->from, read->bytes);
    return computeOn(here, device, prepared, step);
  }

  Status runOnHost(DeviceStep &device, PreparedInstruction &prepared, uint64_t step, size_t call) {
    if (prepared.beside)
      return computeOn(*device.beside, device, prepared, step);
    if (prepared.instruction->has_compute())
      return beforeCall(device, prepared, step, call);
    const Slot &argument = ring[step % ring.size()];
    const bool ahead = device.transport.gainsFromExpecting();
    if (ahead) // receives that became free while this instruction waited, then those that this
               // instruction frees
      expectAhead(device.transport, prepared, 0, step, argument.request.evaluation);
    Status status = communicate(device.transport, prepared, {prepared.instruction->id(), step});
    if (ahead && status.succeeded())
      expectAhead(device.transport, prepared, prepared.place + 1, step,
                  argument.request.evaluation);
    return status;
  }

  Status put(DeviceProgram &program, PreparedInstruction &prepared, WorkStream &stream) override {
    return communicate(*at(program.index).direct, prepared, stream);
  }

  Status computeOn(Device &cpu, DeviceStep &device, PreparedInstruction &prepared, uint64_t step) {
    for (size_t call = 0; call < prepared.calls.size(); ++call) {
      if (Status status = beforeCall(device, prepared, step, call); status.failed())
        return status;
      if (Status status =
              cpu.runFunction(prepared.calls[call].function, prepared.calls[call].arguments);
          status.failed())
        return status;
    }
    return Status::success();
  }

  /// Copies into state need no such hook: they copy the result of an update, which has waited here.
  Status beforeCall(DeviceStep &device, PreparedInstruction &prepared, uint64_t step, size_t call) {
    if (call == 0 && prepared.changesState &&
        !device.latch.waitUntilReleased(device.releasesNeeded[step % ring.size()]))
      return internalError("the run was abandoned");
    if (observed(*prepared.instruction, ring[step % ring.size()].request.evaluation)) {
      const bundle::Call &source = prepared.instruction->compute().calls(int(call));
      options.beforeCall({step, ring[step % ring.size()].request.evaluation, device.program->index,
                          *prepared.instruction, source,
                          bundle.functions.functions(source.function()),
                          prepared.calls[call].arguments.addresses, device.program->device});
    }
    return Status::success();
  }

  /// Fails the run after watchdogTimeoutSeconds without progress while a step is in progress. This
  /// also detects a function that never returns.
  void watch() {
    std::unique_lock<std::mutex> lock(mutex);
    uint64_t before = 0;
    Clock::time_point since = Clock::now();
    while (!stopping) {
      watchdogWake.wait_for(
          lock, std::chrono::duration<double>(std::min(1.0, options.watchdogTimeoutSeconds / 4)));
      uint64_t now = requested + counter();
      if (now != before || !inProgress()) {
        before = now;
        since = Clock::now();
        continue;
      }
      if (std::chrono::duration<double>(Clock::now() - since).count() <
          options.watchdogTimeoutSeconds)
        continue;
      lock.unlock();
      char text[64];
      std::snprintf(text, sizeof text, "no progress for %g s: ", options.watchdogTimeoutSeconds);
      fail(internalError(text + progress().everywhere));
      lock.lock();
    }
  }

  mutable std::mutex mutex; ///< guards all members below
  std::condition_variable stepDone, watchdogWake;
  std::array<Slot, Executor::kStepsAhead> ring;
  size_t queuesInUse = 0; ///< of all devices
  uint64_t requested = 0, waited = 0;
  bool stopping = false;
  std::optional<Error> failure;
  std::thread watchdog;
};

Executor::Executor(std::unique_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}
Executor::~Executor() = default;

Result<std::unique_ptr<Executor>> Executor::create(const Bundle &bundle,
                                                   std::vector<LocalDevice> locals,
                                                   const ExecutorOptions &options) {
  for (size_t i = 0; i < locals.size(); ++i)
    if (locals[i].index >= bundle.programs.size() ||
        (i > 0 && locals[i].index <= locals[i - 1].index) || !locals[i].device ||
        !locals[i].transport)
      return internalError("expects devices of the bundle's " +
                           std::to_string(bundle.programs.size()) +
                           " in ascending order, each with a transport");
  auto implementation = std::make_unique<Implementation>(bundle, std::move(locals), options);
  if (Status status = implementation->prepare(); status.failed())
    return status;
  return std::unique_ptr<Executor>(new Executor(std::move(implementation)));
}

const std::vector<uint32_t> &Executor::devices() const { return implementation_->indices; }
Status Executor::read(uint32_t device, const bundle::Region &region, uint64_t offset, void *to,
                      size_t bytes) const {
  const DeviceProgram &program = *implementation_->at(device).program;
  return bytes == 0 ? Status::success()
                    : program.device.read(to, program.address(region) + offset, bytes);
}
Status Executor::write(uint32_t device, const bundle::Region &region, uint64_t offset,
                       const void *from, size_t bytes) {
  const DeviceProgram &program = *implementation_->at(device).program;
  return bytes == 0 ? Status::success()
                    : program.device.write(program.address(region) + offset, from, bytes);
}
Status Executor::clear(uint32_t device, const bundle::Region &region) {
  const DeviceProgram &program = *implementation_->at(device).program;
  return region.bytes() == 0
             ? Status::success()
             : program.device.fill(program.address(region), std::byte(0), region.bytes());
}
void Executor::releaseState(uint32_t device) { implementation_->at(device).latch.release(); }
void Executor::abort(const Error &why) { implementation_->fail(why); }
Executor::Progress Executor::progress() const { return implementation_->progress(); }
void Executor::submit(StepRequest request) { implementation_->submit(std::move(request)); }
Result<StepResult> Executor::wait() { return implementation_->wait(); }

std::vector<TraceEvent> Executor::takeTrace() {
  std::vector<TraceEvent> events;
  for (auto &device : implementation_->running)
    for (std::vector<TraceEvent> &trace : device.traces) {
      events.insert(events.end(), trace.begin(), trace.end());
      trace.clear();
    }
  return events;
}

Result<std::vector<Executor::MemoryUse>> Executor::memoryUse() const {
  std::vector<MemoryUse> uses;
  for (const auto &device : implementation_->running) {
    Result<MemoryUse> use = device.program->memoryUse(implementation_->options.poison);
    if (use.failed())
      return use.error();
    uses.push_back(*use);
  }
  return uses;
}
