// An interpreter of serialised programs with hashes instead of tensors. It decides whether a program is harmful; it shares no code with the verifier.
//
// Every 4 bytes of an arena are one 64-bit word; arenas start poisoned. A forward call hashes, row by row, what it reads; so a result depends on
// every word that went into it, and on the global index of its sample, but not on how samples were cut into rows. Gradients of parameters and sums
// are modular sums over rows: any order and any split gives the same word. Transfers rendezvous without buffers. Between its start and its end a
// call's outputs are poison, and what it reads must not be written: overlapping conflicting accesses are a race.
#pragma once

#include "bundle.pb.h"

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace zorse::interpret {

/// What a user can see: every element of state at the end, and what each step reported.
struct Result {
  /// (kind, group, moment) and the words of its elements, padding left out.
  std::map<std::tuple<int, uint32_t, uint32_t>, std::map<int64_t, uint64_t>> state;
  std::vector<std::vector<uint64_t>> reports; ///< per step: decision and loss sums; an evaluation has no decision
  std::vector<uint64_t> optimizerSteps;       ///< of the devices that have one
};

/// The steps of a run in order: 'T' trains, 'E' evaluates.
using Steps = std::string;

struct Outcome {
  enum Kind { Finished, Invalid, Deadlock, Race } kind = Finished;
  std::string what;
  Result result;
};

/// How the next action is chosen among those that can happen.
struct Interleaving {
  uint32_t seed = 0;
  enum Policy {
    Random,     ///< evenly
    Priorities, ///< every queue has a random rank and the highest acts
    Starved,    ///< one entry of one device starts, or ends, only when nothing else can happen
    Overlapped, ///< whatever can start does, ends come last
    Eager,      ///< whatever can end does
    Policies
  } policy = Random;
};

/// What of a plan changes results.
struct Training {
  int64_t batch = 0;
  bool splitBackward = false;  ///< units that can make their gradients in two parts do
  bool commitsByGroup = false; ///< it is decided about updates before there are sums
};

/// The result of the model trained on one device without any program.
Result reference(const bundle::ModelSummary &summary, const bundle::BodyLibrary &bodies, const Training &how, const Steps &steps);

/// Runs the programs of all devices for all steps.
Outcome run(const bundle::ModelSummary &summary, const bundle::BodyLibrary &bodies, const std::vector<bundle::Program> &programs, const Steps &steps,
            const Interleaving &interleaving);

/// "" when equal.
std::string difference(const Result &expected, const Result &found);

/// Whether any of `interleavings` runs differs from the reference, races or does not finish; says how.
/// \param stop  after the first harm (the count of runs made is returned).
struct Harm {
  bool harmful = false;
  std::string what;
  int runs = 0;
};
Harm findHarm(const bundle::ModelSummary &summary, const bundle::BodyLibrary &bodies, const std::vector<bundle::Program> &programs,
              const Result &expected, const Steps &steps, int interleavings, uint32_t seed);

} // namespace zorse::interpret
