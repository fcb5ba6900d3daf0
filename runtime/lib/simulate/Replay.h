// The clock: runs tasks in the order in which the executor would, several steps.
#pragma once

#include "Tasks.h"

#include <queue>

namespace zorse::runtime::simulation {

/// How a task ran in one step.
struct Run {
  double start = 0;            ///< all who take part had come, and what they waited for was over
  double sent = 0, end = 0;    ///< threads are free again; waits for it are satisfied
  uint32_t cause = UINT32_MAX; ///< task whose end let it start; UINT32_MAX: nothing did
  uint32_t causeSteps = 0;     ///< so many steps before
};

/// Who takes part in a transfer or collective, and with how much.
struct Passengers {
  std::vector<sim::Piece> owners;
  std::vector<uint32_t> others;
  double bytes = 0;
};
Passengers passengersOf(const bundle::Entry &entry, uint32_t device);

class Replay {
public:
  Replay(const Tasks &tasks, const SimulationOptions &options, const sim::Network *network);

  /// Runs all steps; `finished` is called after each one's last task, while run() of it and the step before it still answer.
  Status run();

  const Run &ran(uint32_t task, uint64_t step) const { return runs[step % kKept][task]; }
  bool participates(uint32_t task) const { return !options.evaluation || tasks.entries[tasks.halves[tasks.tasks[task].firstHalf]].inEvaluation; }

  std::vector<double> stepBegins, stepEnds;
  std::vector<uint32_t> lastTasks;      ///< of each step: one that ended last
  std::vector<SimulatedDevice> devices; ///< sums over the steps from `countedFrom`
  uint64_t countedFrom = 0;
  std::vector<TraceEvent> trace;

  /// Seconds of a transfer on an idle network.
  double alone(const Task &task) const;

private:
  static constexpr uint64_t kKept = 4;                              ///< more steps than ever are under way, and one
  static constexpr uint8_t kSenders = 1, kReceivers = 2, kBoth = 3; ///< halves of a transfer; of everything else both
  struct Place {                                                    ///< where a thread is
    uint64_t step = 0;
    uint32_t at = 0;
    bool there = false;  ///< in its entry: running, or waiting for the others who take part
    bool looked = false; ///< has announced receives behind its entry
    double freeSince = 0;
  };
  struct Event {
    double time;
    uint32_t task;
    bool end; ///< else: threads are free
    uint8_t halves = kBoth;
    bool operator>(const Event &o) const { return time != o.time ? time > o.time : task > o.task; }
  };
  struct Ready {
    uint64_t step;
    uint32_t task;
    bool operator>(const Ready &o) const { return step != o.step ? step > o.step : task > o.task; }
  };

  void advance(uint32_t device);
  void arrive(uint32_t entry, uint64_t step);
  void makeReady(uint32_t task, uint64_t step) {
    if (!isReadyNow[task]) // an early one may get its receiver before it starts
      ready.push({step, task});
    isReadyNow[task] = 1;
  }
  void expectAhead(uint32_t server);
  bool isEarly(uint32_t entry, uint64_t step) const;
  void receiveEarly(uint32_t entry, uint64_t step);
  uint8_t maskOf(uint32_t entry) const { return tasks.source(entry).has_receive() ? kReceivers : kSenders; }
  bool takesPart(uint32_t entry, uint8_t halves) const { return halves == kBoth || maskOf(entry) == halves; }
  bool isReady(const FlatEntry &entry, uint32_t index, uint64_t step) const;
  void start(uint32_t task, uint64_t step);
  void findCause(uint32_t task, uint64_t step, uint8_t halves);
  sim::Passage passageOf(const Task &task);
  void leave(uint32_t entry);
  void finish(uint32_t entry);
  void account(uint32_t task, uint64_t step, uint8_t halves);
  std::string waiting() const;

  const Tasks &tasks;
  const SimulationOptions &options;
  const sim::Network *network;
  sim::Algorithm gathers, reductions;
  mutable sim::Traffic traffic, idle;
  double now = 0;
  std::vector<Place> places;                        ///< as Tasks.servers
  std::vector<uint64_t> finished;                   ///< entries of each queue, over all steps
  std::vector<double> lastEnd;                      ///< of each queue: ends are in its order
  std::vector<uint32_t> come;                       ///< of each task: halves that are there
  std::vector<uint64_t> stepOf;                     ///< of each task: the step it is in
  std::vector<uint64_t> doneSteps;                  ///< of each device
  std::vector<std::array<uint32_t, 2>> serversLeft; ///< of each device, by parity of the step
  // Receives that a transport was told of before their thread came to them: the transfer begins when the sender comes.
  std::vector<uint64_t> announced;  ///< by entry: the last step
  std::vector<uint8_t> early;       ///< by task: begun, and the receiver still to come
  std::vector<uint8_t> isReadyNow;  ///< by task: in `ready`
  std::vector<uint8_t> senderWaits; ///< by task: the sender has come again before that
  std::vector<std::vector<Run>> runs;
  std::vector<uint8_t> touched;
  std::vector<uint32_t> touchedDevices;
  std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<Ready>> ready;
};

} // namespace zorse::runtime::simulation
