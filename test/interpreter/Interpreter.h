// Interprets serialized programs with hashes instead of tensors and decides whether a program is
// harmful. Shares no code with the verifier.
//
// - Every 4 bytes of an arena are one 64-bit word. Arenas are poisoned at the start.
// - A forward call hashes its inputs row by row. A result depends on every input word and on the
//   global index of its sample, but not on how samples are split into micro-batches.
// - Gradients of parameters and sums are modular sums over rows. Every order and every split gives
//   the same word.
// - Transfers are a rendezvous without buffers.
// - The outputs of a call are poison between its start and its end, and its inputs must not be
//   written in this time. Conflicting accesses that overlap are a race.
#pragma once

#include "bundle.pb.h"

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace zorse::interpret {

/// The observable result: every element of state at the end, and the reports of all steps.
struct Result {
  /// (kind, group, moment) to the words of the elements, without padding.
  std::map<std::tuple<int, uint32_t, uint32_t>, std::map<int64_t, uint64_t>> state;
  std::vector<std::vector<uint64_t>> reports; ///< per step: decision and loss sums; an evaluation
                                              ///< has no decision
  std::vector<uint64_t> optimizerSteps;       ///< one per device that has it
};

/// The steps of a run, in order: 'T' is a training step, 'E' an evaluation.
using Steps = std::string;

struct Outcome {
  enum Kind { Finished, Invalid, Deadlock, Race } kind = Finished;
  std::string what;
  Result result;
};

/// How the next action is chosen among the possible ones.
struct Interleaving {
  uint32_t seed = 0;
  enum Policy {
    Random,     ///< with equal probabilities
    Priorities, ///< every queue has a random priority; the highest acts
    Starved, ///< one instruction of one device starts, or ends, only if no other action is possible
    Overlapped, ///< starts are preferred to ends
    Eager,      ///< ends are preferred to starts
    Policies
  } policy = Random;
  /// Collectives add like floating-point numbers: a + b = b + a, but (a + b) + c differs from
  /// a + (b + c). Results then depend on the order that programs state, and only results of
  /// programs can be compared, not those of one device.
  bool ordered = false;
};

/// The properties of a plan that change results.
struct Training {
  int64_t batch = 0;
  bool splitBackward = false;  ///< units with a split backward use it
  bool commitsByGroup = false; ///< the decision about updates precedes the sums
};

/// The result of training the model on one device, without programs.
Result reference(const bundle::ModelSummary &summary, const bundle::FunctionLibrary &functions,
                 const Training &how, const Steps &steps);

/// Runs the programs of all devices for all steps.
Outcome run(const bundle::ModelSummary &summary, const bundle::FunctionLibrary &functions,
            const std::vector<bundle::Program> &programs, const Steps &steps,
            const Interleaving &interleaving);

/// Describes the first difference; empty if the results are equal.
std::string difference(const Result &expected, const Result &found);

/// Whether one of `interleavings` runs differs from the reference, has a race or does not finish,
/// and how. Stops at the first such run; `runs` is the number of runs made.
struct Harm {
  bool harmful = false;
  std::string what;
  int runs = 0;
};
Harm findHarm(const bundle::ModelSummary &summary, const bundle::FunctionLibrary &functions,
              const std::vector<bundle::Program> &programs, const Result &expected,
              const Steps &steps, int interleavings, uint32_t seed);

} // namespace zorse::interpret
