// Discrete-event simulation of several steps. Tasks run in the executor's order.
#pragma once

#include "Tasks.h"

#include <queue>

namespace zorse::runtime::simulation {

/// Times of a task in one step.
struct Run {
  double start = 0;            ///< all participants had arrived and all waits were satisfied
  double sent = 0, end = 0;    ///< its threads are released; waits for it are satisfied
  uint32_t cause = UINT32_MAX; ///< task whose end allowed it to start; UINT32_MAX if there is none
  uint32_t causeSteps = 0;     ///< number of steps by which the cause precedes this step
};

/// Participants of a transfer or collective, and their bytes.
struct Participants {
  std::vector<sim::Piece> owners;
  std::vector<uint32_t> others;
  double bytes = 0;
};
Participants participantsOf(const bundle::Instruction &instruction, uint32_t device);

class ProgramSimulator {
public:
  ProgramSimulator(const Tasks &tasks, const SimulationOptions &options,
                   const sim::Network *network);

  /// Runs all steps. Calls `finished` after the last task of each step, when run() still has the
  /// data of that step and the previous one.
  Status run();

  const Run &ran(uint32_t task, uint64_t step) const { return runs[step % kKept][task]; }
  bool participates(uint32_t task) const {
    return !options.evaluation ||
           tasks.instructions[tasks.taskInstructions[tasks.tasks[task].firstInstruction]]
               .inEvaluation;
  }

  std::vector<double> stepBegins, stepEnds;
  std::vector<uint32_t> lastTasks;      ///< by step: a task that ended last
  std::vector<SimulatedDevice> devices; ///< sums over the steps from `countedFrom`
  uint64_t countedFrom = 0;
  std::vector<TraceEvent> trace;

  /// Seconds of a transfer on an idle network.
  double alone(const Task &task) const;

private:
  static constexpr uint64_t kKept = 4; ///< one more than the maximum number of steps in progress
  static constexpr uint8_t kSenders = 1, kReceivers = 2,
                           kBoth = 3; ///< halves of a transfer; kBoth for all other tasks
  struct Place {                      ///< position of a thread
    uint64_t step = 0;
    uint32_t at = 0;
    bool there = false;  ///< in its instruction: running, or waiting for the other participants
    bool looked = false; ///< has announced the receives that follow its instruction
    double freeSince = 0;
  };
  struct Event {
    double time;
    uint32_t task;
    bool end; ///< false: the threads are released
    uint8_t instructions = kBoth;
    bool operator>(const Event &o) const { return time != o.time ? time > o.time : task > o.task; }
  };
  struct Ready {
    uint64_t step;
    uint32_t task;
    bool operator>(const Ready &o) const { return step != o.step ? step > o.step : task > o.task; }
  };

  void advance(uint32_t device);
  void arrive(uint32_t instruction, uint64_t step);
  void makeReady(uint32_t task, uint64_t step) {
    if (!isReadyNow[task]) // an early task may get its receiver before it starts
      ready.push({step, task});
    isReadyNow[task] = 1;
  }
  void expectAhead(uint32_t server);
  bool isEarly(uint32_t instruction, uint64_t step) const;
  void receiveEarly(uint32_t instruction, uint64_t step);
  uint8_t maskOf(uint32_t instruction) const {
    return tasks.source(instruction).has_receive() ? kReceivers : kSenders;
  }
  bool takesPart(uint32_t instruction, uint8_t instructions) const {
    return instructions == kBoth || maskOf(instruction) == instructions;
  }
  bool isReady(const FlatInstruction &instruction, uint32_t index, uint64_t step) const;
  void start(uint32_t task, uint64_t step);
  void findCause(uint32_t task, uint64_t step, uint8_t instructions);
  sim::TransferTimes timesOf(const Task &task);
  sim::TransferTimes collectiveTimes(const bundle::Instruction &instruction);
  void leave(uint32_t instruction);
  void finish(uint32_t instruction);
  void account(uint32_t task, uint64_t step, uint8_t instructions);
  std::string waiting() const;

  const Tasks &tasks;
  const SimulationOptions &options;
  const sim::Network *network;
  mutable sim::Traffic traffic, idle;
  double now = 0;
  std::vector<Place> places;       ///< parallel to Tasks.servers
  std::vector<uint64_t> finished;  ///< finished instructions over all steps, by queue
  std::vector<double> lastEnd;     ///< by queue: ends are in queue order
  std::vector<uint32_t> come;      ///< number of halves that have arrived, by task
  std::vector<uint64_t> stepOf;    ///< current step, by task
  std::vector<uint64_t> doneSteps; ///< by device
  std::vector<std::array<uint32_t, 2>> serversLeft; ///< by device and parity of the step
  // Receives that were announced to the transport before their thread arrived: the transfer begins
  // when the sender arrives.
  std::vector<uint64_t> announced; ///< last announced step, by instruction
  std::vector<uint8_t> early; ///< by task: the transfer has begun, the receiver has not arrived
  std::vector<uint8_t> isReadyNow;  ///< by task: whether it is in `ready`
  std::vector<uint8_t> senderWaits; ///< by task: the sender has arrived again before its receiver
  std::vector<std::vector<Run>> runs;
  std::vector<uint8_t> touched;
  std::vector<uint32_t> touchedDevices;
  std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<Ready>> ready;
};

} // namespace zorse::runtime::simulation
