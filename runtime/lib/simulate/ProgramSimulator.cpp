#include "ProgramSimulator.h"

#include "Collectives.h"

#include "zorse/Bundle/DeviceKinds.h"
#include "zorse/Simulation/UniformParts.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::runtime;
using namespace zorse::runtime::simulation;
using bundle::Instruction;

Participants zorse::runtime::simulation::participantsOf(const Instruction &instruction,
                                                        uint32_t device) {
  Participants p;
  switch (instruction.what_case()) {
  case Instruction::kSend:
    p.owners = {{device, double(instruction.send().region().bytes())}};
    p.others = {instruction.send().peer()};
    break;
  case Instruction::kAllReduce:
    p.others.assign(instruction.all_reduce().members().begin(),
                    instruction.all_reduce().members().end());
    p.bytes = double(instruction.all_reduce().region().bytes());
    break;
  default:
    break;
  }
  return p;
}

namespace {

const sim::Network kNoNetwork;

} // namespace

ProgramSimulator::ProgramSimulator(const Tasks &tasks, const SimulationOptions &options,
                                   const sim::Network *network)
    : countedFrom(options.steps / 2), tasks(tasks), options(options), network(network),
      traffic(network ? *network : kNoNetwork), idle(network ? *network : kNoNetwork) {
  size_t devices = tasks.bundle.programs.size();
  stepBegins.assign(options.steps, -1);
  stepEnds.assign(options.steps, 0);
  lastTasks.assign(options.steps, UINT32_MAX);
  this->devices.resize(devices);
  places.resize(tasks.servers.size());
  finished.assign(tasks.queues.size(), 0);
  lastEnd.assign(tasks.queues.size(), 0);
  come.assign(tasks.tasks.size(), 0);
  stepOf.assign(tasks.tasks.size(), 0);
  doneSteps.assign(devices, 0);
  serversLeft.resize(devices);
  for (size_t d = 0; d < devices; ++d)
    serversLeft[d].fill(tasks.serversOf[d + 1] - tasks.serversOf[d]);
  runs.assign(std::min<uint64_t>(kKept, options.steps), std::vector<Run>(tasks.tasks.size()));
  if (options.steps < kKept)
    runs.resize(kKept);
  touched.assign(devices, 0);
  announced.assign(tasks.instructions.size(), UINT64_MAX);
  early.assign(tasks.tasks.size(), 0);
  senderWaits.assign(tasks.tasks.size(), 0);
  isReadyNow.assign(tasks.tasks.size(), 0);
}

Status ProgramSimulator::run() {
  for (uint32_t d = 0; d < devices.size(); ++d)
    advance(d);
  for (;;) {
    for (; !ready.empty(); ready.pop())
      start(ready.top().task, ready.top().step);
    if (events.empty())
      break;
    now = events.top().time;
    for (; !events.empty() && events.top().time == now; events.pop()) {
      const Event event = events.top();
      const Task &task = tasks.tasks[event.task];
      for (uint32_t h = task.firstInstruction; h < task.firstInstruction + task.numInstructions;
           ++h) {
        uint32_t instruction = tasks.taskInstructions[h],
                 device = tasks.device(tasks.instructions[instruction]);
        if (!takesPart(instruction, event.instructions))
          continue;
        if (event.end)
          finish(instruction);
        else
          leave(instruction);
        if (!touched[device]) {
          touched[device] = 1;
          touchedDevices.push_back(device);
        }
      }
    }
    for (uint32_t device : touchedDevices) {
      touched[device] = 0;
      advance(device);
    }
    touchedDevices.clear();
  }
  for (uint32_t s = 0; s < places.size(); ++s)
    if (places[s].step < options.steps)
      return userError(waiting());
  return Status::success();
}

bool ProgramSimulator::isReady(const FlatInstruction &instruction, uint32_t index,
                               uint64_t step) const {
  for (uint32_t w = instruction.waits; w < tasks.instructions[index + 1].waits; ++w) {
    const FlatWait &wait = tasks.waits[w];
    if (wait.previousStep && step == 0)
      continue;
    if (finished[wait.queue] <
        (step - wait.previousStep) * tasks.queues[wait.queue].length + wait.position + 1)
      return false;
  }
  return true;
}

/// Advances the threads of a device as far as possible at the current time.
void ProgramSimulator::advance(uint32_t device) {
  for (bool again = true; again;) {
    again = false;
    for (uint32_t s = tasks.serversOf[device]; s < tasks.serversOf[device + 1]; ++s) {
      Place &place = places[s];
      const Server &server = tasks.servers[s];
      // A step is prepared one step ahead: it begins when the step before the previous one is over
      // on this device.
      while (!place.there && place.step < options.steps && place.step <= doneSteps[device] + 1) {
        uint32_t index = server.instructions[place.at];
        if (!place.looked) {
          place.looked = true;
          expectAhead(s);
        }
        const FlatInstruction &instruction = tasks.instructions[index];
        if (!isReady(instruction, index, place.step))
          break;
        place.there = true;
        if (options.evaluation && !instruction.inEvaluation) { // keeps its position and its waits,
                                                               // and ends immediately
          leave(index);
          finish(index);
          again = true;
          continue;
        }
        arrive(index, place.step);
      }
    }
  }
}

/// A thread has arrived at its instruction.
void ProgramSimulator::arrive(uint32_t index, uint64_t step) {
  uint32_t task = tasks.instructions[index].task;
  if (early[task]) {
    if (tasks.source(index).has_receive())
      receiveEarly(index, step);
    else
      senderWaits[task] = 1;
    return;
  }
  if (come[task] == 0)
    stepOf[task] = step;
  if (++come[task] == tasks.tasks[task].numInstructions ||
      (tasks.source(index).has_send() && isEarly(index, step)))
    makeReady(task, step);
}

/// Whether the receiver of a send has announced the receive.
bool ProgramSimulator::isEarly(uint32_t send, uint64_t step) const {
  const Task &task = tasks.tasks[tasks.instructions[send].task];
  for (uint32_t h = task.firstInstruction; h < task.firstInstruction + task.numInstructions; ++h)
    if (tasks.taskInstructions[h] != send && announced[tasks.taskInstructions[h]] == step)
      return true;
  return false;
}

/// Announces receives that follow the thread's current instruction, like the executor does for
/// transports that benefit from it (Executor.cpp, expectAhead).
void ProgramSimulator::expectAhead(uint32_t s) {
  constexpr size_t kAhead = 16;
  const Server &server = tasks.servers[s];
  if (server.computes || !deviceKindOf(tasks.bundle.devices[server.device].kind).joins("gloo"))
    return;
  const bundle::Program &program = tasks.bundle.programs[server.device];
  if (!server.instructions.empty() &&
      program.queues(int(tasks.source(server.instructions.front()).queue())).kind() ==
          bundle::DEVICE_TO_DEVICE)
    return; // streams announce no receives
  const Place &place = places[s];
  size_t end = std::min<size_t>(server.instructions.size(), place.at + kAhead);
  for (size_t i = place.at + 1; i < end; ++i) {
    uint32_t index = server.instructions[i];
    const FlatInstruction &instruction = tasks.instructions[index];
    const Instruction &source = tasks.source(index);
    if (!source.has_receive() || announced[index] == place.step ||
        (options.evaluation && !instruction.inEvaluation) ||
        !isReady(instruction, index, place.step))
      continue;
    const bundle::Region &region = source.receive().region();
    bool isFree = true;
    for (size_t j = place.at; j < i && isFree; ++j) {
      uint32_t other = server.instructions[j];
      const FlatInstruction &before = tasks.instructions[other];
      if (before.queue != instruction.queue)
        continue;
      const bundle::Region &bytes = tasks.source(other).receive().region();
      isFree = tasks.source(other).has_receive() && isReady(before, other, place.step) &&
               (bytes.arena() != region.arena() ||
                bytes.offset() + bytes.bytes() <= region.offset() ||
                region.offset() + region.bytes() <= bytes.offset());
    }
    if (!isFree)
      continue;
    announced[index] = place.step;
    if (come[instruction.task] > 0 && stepOf[instruction.task] == place.step &&
        !early[instruction.task]) // the sender has arrived
      makeReady(instruction.task, place.step);
  }
}

/// The receiver arrives at a transfer that has begun or has ended.
void ProgramSimulator::receiveEarly(uint32_t index, uint64_t step) {
  const FlatInstruction &instruction = tasks.instructions[index];
  Run &run = runs[step % kKept][instruction.task];
  double end = std::max({now, run.end, lastEnd[instruction.queue]});
  lastEnd[instruction.queue] = run.end = end;
  if (end >= stepEnds[step]) {
    stepEnds[step] = end;
    lastTasks[step] = instruction.task;
  }
  account(instruction.task, step, kReceivers);
  events.push({end, instruction.task, false, kReceivers});
  events.push({end, instruction.task, true, kReceivers});
  early[instruction.task] = 0;
  if (senderWaits[instruction.task]) {
    senderWaits[instruction.task] = 0;
    come[instruction.task] = 1;
    stepOf[instruction.task] = step + 1;
  }
}

double ProgramSimulator::alone(const Task &task) const {
  if (!network || !task.instruction->has_send())
    return task.seconds;
  idle.reset();
  return idle
      .send(task.device, task.instruction->send().peer(),
            double(task.instruction->send().region().bytes()), 0)
      .arrived;
}

/// Finds the last event that the task waited for.
void ProgramSimulator::findCause(uint32_t index, uint64_t step, uint8_t instructions) {
  const Task &task = tasks.tasks[index];
  Run &run = runs[step % kKept][index];
  double latest = -1;
  auto consider = [&](uint32_t other, uint64_t otherStep, bool thread) {
    const Run &before = runs[otherStep % kKept][other];
    double end = thread ? before.sent : before.end;
    if (end > latest) {
      latest = end;
      run.cause = other;
      run.causeSteps = uint32_t(step - otherStep);
    }
  };
  for (uint32_t h = task.firstInstruction; h < task.firstInstruction + task.numInstructions; ++h) {
    uint32_t instruction = tasks.taskInstructions[h];
    if (!takesPart(instruction, instructions))
      continue;
    const FlatInstruction &flat = tasks.instructions[instruction];
    const Place &place = places[flat.server];
    const std::vector<uint32_t> &list = tasks.servers[flat.server].instructions;
    for (uint32_t w = flat.waits; w < tasks.instructions[instruction + 1].waits; ++w) {
      const FlatWait &wait = tasks.waits[w];
      if (wait.previousStep && step == 0)
        continue;
      uint32_t other =
          tasks
              .instructions[tasks.queueInstructions[tasks.queues[wait.queue].firstInstruction +
                                                    wait.position]]
              .task;
      if (participates(other))
        consider(other, step - wait.previousStep, false);
    }
    uint32_t at = place.at;
    uint64_t atStep = step;
    for (size_t tries = 0; tries < list.size(); ++tries) { // finds the previous instruction that
                                                           // did work
      if (at == 0 && atStep == 0)
        break;
      if (at == 0)
        --atStep;
      at = (at == 0 ? uint32_t(list.size()) : at) - 1;
      uint32_t other = tasks.instructions[list[at]].task;
      if (participates(other)) {
        if (step - atStep < kKept)
          consider(other, atStep, true);
        break;
      }
    }
  }
}

sim::TransferTimes ProgramSimulator::collectiveTimes(const Instruction &instruction) {
  const bundle::Collective collective = *bundle::collectiveOf(instruction);
  return sim::collectiveTimes(
      traffic, collective.gathers, {collective.members.begin(), collective.members.end()},
      bundle::shardsOf(collective.shards), bundle::shardsOf(collective.parts),
      {double(elementBytes(collective.type)), double(elementBytes(collective.termType))}, now);
}

/// Returns when a task that begins now releases its threads, and when it ends.
sim::TransferTimes ProgramSimulator::timesOf(const Task &task) {
  sim::TransferTimes times = {now + task.seconds, now + task.seconds};
  if (task.activity < Activity::Transfer) {
    if (!options.speedTimes.empty() && task.instruction->has_compute())
      times.sent = times.arrived = now + task.seconds / options.speedTimes[task.device];
    if (network && task.instruction->has_compute())
      traffic.occupy(task.device, times.arrived);
  } else if (network) {
    Participants p = participantsOf(*task.instruction, task.device);
    switch (task.activity) {
    case Activity::Transfer:
      times = traffic.send(task.device, p.others[0], p.owners[0].bytes, now);
      break;
    case Activity::Sum:
      times = traffic.allReduce(p.others, p.bytes, now);
      break;
    default:
      times = collectiveTimes(*task.instruction);
      break;
    }
  } else if (options.linkTimes != 1) { // the latency's part of the time is unknown
    times.sent = times.arrived = now + task.seconds / options.linkTimes;
  }
  return times;
}

void ProgramSimulator::start(uint32_t index, uint64_t step) {
  const Task &task = tasks.tasks[index];
  uint8_t instructions = come[index] < task.numInstructions ? kSenders : kBoth;
  early[index] = instructions != kBoth;
  come[index] = isReadyNow[index] = 0;
  Run &run = runs[step % kKept][index];
  run = {now, now, now, UINT32_MAX, 0};
  findCause(index, step, instructions);
  sim::TransferTimes times = timesOf(task);
  // Ends are counted in queue order.
  for (uint32_t h = task.firstInstruction; h < task.firstInstruction + task.numInstructions; ++h)
    if (takesPart(tasks.taskInstructions[h], instructions))
      times.arrived =
          std::max(times.arrived, lastEnd[tasks.instructions[tasks.taskInstructions[h]].queue]);
  for (uint32_t h = task.firstInstruction; h < task.firstInstruction + task.numInstructions; ++h)
    if (takesPart(tasks.taskInstructions[h], instructions))
      lastEnd[tasks.instructions[tasks.taskInstructions[h]].queue] = times.arrived;
  run.sent = times.sent;
  run.end = times.arrived;

  if (stepBegins[step] < 0)
    stepBegins[step] = now;
  if (lastTasks[step] == UINT32_MAX || run.end >= stepEnds[step]) {
    stepEnds[step] = run.end;
    lastTasks[step] = index;
  }
  account(index, step, instructions);
  events.push({run.sent, index, false, instructions});
  events.push({run.end, index, true, instructions});
}

/// The thread continues with its next instruction.
void ProgramSimulator::leave(uint32_t index) {
  const FlatInstruction &instruction = tasks.instructions[index];
  const Server &server = tasks.servers[instruction.server];
  Place &place = places[instruction.server];
  place.there = place.looked = false;
  place.freeSince = now;
  if (++place.at < server.instructions.size())
    return;
  place.at = 0;
  uint32_t &left = serversLeft[server.device][place.step % 2];
  ++place.step;
  if (--left == 0) {
    left = tasks.serversOf[server.device + 1] - tasks.serversOf[server.device];
    ++doneSteps[server.device];
  }
}

void ProgramSimulator::finish(uint32_t index) { ++finished[tasks.instructions[index].queue]; }

void ProgramSimulator::account(uint32_t index, uint64_t step, uint8_t instructions) {
  const Task &task = tasks.tasks[index];
  const Run &run = runs[step % kKept][index];
  if (step < options.traceSteps)
    for (uint32_t h = task.firstInstruction; h < task.firstInstruction + task.numInstructions;
         ++h) {
      const FlatInstruction &instruction = tasks.instructions[tasks.taskInstructions[h]];
      if (takesPart(tasks.taskInstructions[h], instructions))
        trace.push_back({tasks.device(instruction), instruction.indexInProgram, step,
                         instructions == kReceivers ? now : run.start, run.end});
    }
  if (step < countedFrom)
    return;
  Activity ended = run.cause == UINT32_MAX ? Activity::Nothing : tasks.tasks[run.cause].activity;
  for (uint32_t h = task.firstInstruction; h < task.firstInstruction + task.numInstructions; ++h) {
    if (!takesPart(tasks.taskInstructions[h], instructions))
      continue;
    const FlatInstruction &instruction = tasks.instructions[tasks.taskInstructions[h]];
    SimulatedDevice &device = devices[tasks.device(instruction)];
    device.busy[size_t(task.activity)] += instructions == kReceivers ? run.end - now
                                                                     : run.sent - run.start;
    if (!tasks.servers[instruction.server].computes)
      continue;
    double idle = now - places[instruction.server].freeSince;
    if (idle > 0)
      device.waiting[size_t(ended)] += idle;
  }
}

/// Lists what every blocked thread waits for, for a limited number of threads.
std::string ProgramSimulator::waiting() const {
  constexpr size_t kMax = 12;
  std::string text = "these programs cannot run; these waits are never satisfied:";
  size_t lines = 0;
  for (uint32_t s = 0; s < places.size(); ++s) {
    const Place &place = places[s];
    const Server &server = tasks.servers[s];
    if (place.step >= options.steps)
      continue;
    if (++lines > kMax)
      continue;
    uint32_t index = server.instructions[place.at];
    const FlatInstruction &instruction = tasks.instructions[index];
    const Instruction &source = tasks.source(index);
    text += "\n  device " + tasks.bundle.devices[server.device].name + ", step " +
            std::to_string(place.step + 1) + ", instruction " + std::to_string(source.id()) + " (" +
            describeInstruction(tasks.bundle, server.device, source) + ") waits for ";
    std::string what;
    if (place.there) {
      const Task &task = tasks.tasks[instruction.task];
      for (uint32_t h = task.firstInstruction;
           h < task.firstInstruction + task.numInstructions && what.size() < 200; ++h) {
        const FlatInstruction &participant = tasks.instructions[tasks.taskInstructions[h]];
        const Place &other = places[participant.server];
        if (!(other.there && tasks.servers[participant.server].instructions[other.at] ==
                                 tasks.taskInstructions[h]))
          what += (what.empty() ? "device " : ", device ") +
                  tasks.bundle.devices[tasks.device(participant)].name;
      }
      what += " to arrive at it";
    } else {
      for (uint32_t w = instruction.waits; w < tasks.instructions[index + 1].waits; ++w) {
        const FlatWait &wait = tasks.waits[w];
        if ((wait.previousStep && place.step == 0) ||
            finished[wait.queue] >=
                (place.step - wait.previousStep) * tasks.queues[wait.queue].length + wait.position +
                    1)
          continue;
        uint32_t other =
            tasks.queueInstructions[tasks.queues[wait.queue].firstInstruction + wait.position];
        what += (what.empty() ? "instruction " : ", instruction ") +
                std::to_string(tasks.source(other).id()) + " (" +
                describeInstruction(tasks.bundle, server.device, tasks.source(other)) +
                (wait.previousStep ? ") of the step before" : ")");
      }
      if (what.empty())
        what = "the step before the last to end";
    }
    text += what;
  }
  if (lines > kMax)
    text += "\n  and " + std::to_string(lines - kMax) + " more";
  return text;
}
