// Runs the programs of all devices.
//
//   Machine.cpp       memory, queues, and the scheduler that picks the next action
//   Operations.cpp    reads and writes of calls, copies, loads, reports and transfers
//   Collectives.cpp   reads and writes of collectives
//   Outcome.cpp       the observable result, and its comparison with the reference
#pragma once

#include "Functions.h"
#include "Interpreter.h"

#include <memory>
#include <random>

namespace zorse::interpret {

/// Thrown if a run cannot continue.
struct Stop {
  Outcome::Kind kind;
  std::string what;
};

/// Bytes [begin, end) of an arena of a device.
struct Span {
  uint32_t device, arena;
  int64_t begin, end;
  bool write;
  bool conflicts(const Span &o) const {
    return device == o.device && arena == o.arena && begin < o.end && o.begin < end &&
           (write || o.write);
  }
};

/// Work in progress: a call of a compute instruction, or a transfer or collective with all its
/// halves.
struct Active {
  std::vector<std::pair<uint32_t, uint32_t>> queues; ///< (device, queue) of every half
  std::vector<Span> spans;
  std::vector<std::pair<Span, Words>> writes; ///< stored when the work ends
  bool lastCall = true;
  uint32_t instruction = 0;
};

class Machine {
public:
  Machine(const bundle::ModelSummary &summary, const bundle::FunctionLibrary &functions,
          const std::vector<bundle::Program> &programs, const Steps &steps, const Interleaving &how)
      : summary(summary), functions(functions), programs(programs), steps(steps), how(how),
        random(how.seed) {}

  Outcome run();

private:
  const bundle::ModelSummary &summary;
  const bundle::FunctionLibrary &functions;
  const std::vector<bundle::Program> &programs;
  const Steps &steps;
  Interleaving how;
  std::mt19937 random;

  struct QueueState {
    std::vector<int> instructions; ///< indices in the program
    size_t started = 0; ///< number of finished instructions over all steps; index of the current
                        ///< one
    int call = 0;       ///< next call of the current instruction
    bool busy = false;
    uint32_t rank = 0;
  };
  std::vector<std::vector<QueueState>> queues;
  std::vector<std::vector<Words>> arenas;
  std::vector<std::unique_ptr<Active>> active;
  std::map<uint32_t, size_t> deviceOf; ///< device number -> index of its program
  std::vector<std::vector<uint64_t>> reports;
  uint32_t victimDevice = 0, victimInstruction = 0;
  bool victimStarts = false;

  struct Half {
    size_t program, queue;
    const bundle::Instruction *instruction;
  };
  struct Action {
    bool ends = false;
    size_t index = 0;         ///< of an end: index of the active work
    std::vector<Half> halves; ///< of a start
    uint32_t rank = 0;
    bool victim = false;
  };

  [[noreturn]] void invalid(const std::string &what) const { throw Stop{Outcome::Invalid, what}; }

  // Memory.
  void prepare();
  uint64_t poison() { return mix(uint64_t(random()) << 32 | random()); }
  bool padding(const bundle::Value &value, int64_t element) const;
  Span span(size_t p, const bundle::Region &region, int64_t from, int64_t to, bool write);
  Words fetch(const Span &s) const {
    const Words &memory = arenas[s.device][s.arena];
    return Words(memory.begin() + s.begin / 4, memory.begin() + s.end / 4);
  }
  void store(const Span &s, const Words &words) {
    std::copy(words.begin(), words.end(), arenas[s.device][s.arena].begin() + s.begin / 4);
  }
  void poison(const Span &s) {
    for (int64_t w = s.begin / 4; w < s.end / 4; ++w)
      arenas[s.device][s.arena][size_t(w)] = poison();
  }

  // Possible actions.
  bool evaluates(size_t step) const { return step < steps.size() && steps[step] == 'E'; }
  size_t stepOf(const QueueState &queue) const {
    return queue.instructions.empty() ? steps.size() : queue.started / queue.instructions.size();
  }
  const bundle::Instruction *head(size_t p, size_t q) const {
    const auto &queue = queues[p][q];
    if (queue.busy || stepOf(queue) >= steps.size())
      return nullptr;
    return &programs[p].instructions(queue.instructions[queue.started % queue.instructions.size()]);
  }
  bool ready(size_t p, size_t q, const bundle::Instruction &instruction);
  static bool inEvaluation(const bundle::Instruction &instruction) {
    return instruction.phase() == bundle::LOAD || instruction.phase() == bundle::GATHER ||
           instruction.phase() == bundle::FORWARD || instruction.phase() == bundle::READ_METRICS;
  }
  /// The devices of all halves of an instruction; empty: a local instruction.
  static std::vector<uint32_t> meeting(const bundle::Instruction &instruction, uint32_t self);
  /// All halves, if they are at the heads of their queues in the same step and their waits are
  /// satisfied; else empty.
  std::vector<Half> meet(size_t p, size_t q, const bundle::Instruction &instruction);
  /// Performs one action. Returns false if all programs have finished.
  bool act();
  Action &choose(std::vector<Action> &actions);

  // begin() takes the values of reads and poisons the written words until end().
  void begin(std::unique_ptr<Active> work);
  void end(size_t index);
  void start(const std::vector<Half> &halves);
  void startCall(const Half &half, Active &work);
  void startLocal(const Half &half, Active &work, size_t step);
  void startTransfer(const std::vector<Half> &halves, Active &work);
  void startCollective(const std::vector<Half> &halves, Active &work);
  Span touch(Active &work, const Half &half, const bundle::Region &region, bool write);
  Span touch(Active &work, const Half &half, const bundle::Region &region, int64_t from,
             int64_t bytes, bool write);
  /// The sum of two terms of a collective; see Interleaving::ordered.
  uint64_t plus(uint64_t a, uint64_t b) const { return how.ordered ? mix(mix(a) + mix(b)) : a + b; }
  void gather(const std::vector<Half> &halves, Active &work);
  void reduce(const std::vector<Half> &halves, Active &work);
  void sum(const std::vector<Half> &halves, Active &work);
  void arriving(Active &work, const Half &half, const bundle::Region &parts);

  void finish(Result &result);
};

} // namespace zorse::interpret
