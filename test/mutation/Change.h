// Tables of mutations. A row specifies how an instruction is picked and how it is edited.
#pragma once

#include "Edit.h"
#include "Mutations.h"

#include <optional>
#include <type_traits>
#include <utility>

namespace zorse::test {

struct Pick;

/// A mutation in progress: the programs, the picked instruction and helpers of edits.
struct Change {
  Programs &programs;
  const RealCase &original;
  Random &random;
  std::string &what;
  Place place = {}; ///< the instruction picked
  int call = -1, argument = -1,
      wait = -1; ///< indices in that instruction, set by picks that choose one

  bundle::Program &program() const { return programs[size_t(place.program)]; }
  Instruction &instruction() const { return instructionAt(programs, place); }
  Compute &compute() const { return *instruction().mutable_compute(); }
  EditedArgument binding() const { return {program(), *compute().mutable_calls(call), argument}; }

  /// Region of the first argument in the first call that has this kind and, unless -1, this index;
  /// null if there is none.
  bundle::Region *regionOf(bundle::ArgumentKind kind, int index = -1) const;

  /// A random number from 0 to `end` - 1.
  template <typename T> T draw(T end) const { return T(random() % uint64_t(end)); }
  bool coin() const { return random() % 2; }
  bundle::Program &drawProgram() const;
  bundle::Call &drawCall() const { return *compute().mutable_calls(draw(compute().calls_size())); }

  /// Picks the instruction to change and appends its name to `what`.
  bool pick(const Pick &pick);
  /// Picks another instruction of the same program; appends `word` and its name to `what`.
  Instruction *other(const Wanted &wanted, const char *word = " and ") const;
  /// Calls `f` with every half of the instruction.
  template <typename F> void halves(F f) const { forHalves(programs, instruction().id(), f); }
};

/// Picks a random place: an instruction that satisfies a predicate, or the result of a function of
/// the change.
struct Pick {
  Pick(std::nullptr_t) {}
  template <typename F> Pick(F f) {
    if constexpr (std::is_invocable_v<F, const Instruction &>)
      find = [f = std::move(f)](Change &m) { return pickInstruction(m.programs, m.random, f); };
    else
      find = std::move(f);
  }
  std::function<Place(Change &)> find;
};
Pick argumentWhere(ArgumentWanted wanted);
Pick argumentOf(const std::vector<bundle::ArgumentKind> &kinds);

struct Row {
  std::string name;
  Pick pick; ///< null: the edit picks
  std::function<bool(Change &)> edit;
  int attempts = 1; ///< number of picks to try until an edit is possible
};
void addRows(MutationList &list, const char *fault, const std::vector<Row> &rows);

// Edits that several tables use.

bool dropInstruction(Change &m);   ///< all halves
bool doubleInstruction(Change &m); ///< all halves, directly after the instruction
bool dropHalf(Change &m);
bool dropWaits(Change &m);
bool dropCall(Change &m);
bool moveToEnd(Change &m);
bool moveAnywhere(Change &m); ///< before a random instruction of its program
bool anotherQueue(Change &m);
bool waitEarlier(Change &m, bundle::Wait &wait); ///< changed to an earlier instruction of the queue
bool freshRegion(Change &m);                     ///< moves the argument to unused bytes
/// Swaps the payloads of the instruction and another instruction of its program.
bool swapWith(Change &m, const Wanted &wanted);
/// Picks another argument of the program, of equal size at another offset; none if the random
/// argument is not. Appends `word` and its name to `what`.
std::optional<EditedArgument> otherArgument(Change &m, const ArgumentWanted &wanted,
                                            const char *word = " and ");
/// Swaps two arguments of the wanted kinds.
Row swapArguments(const char *name, const ArgumentWanted &wanted);

} // namespace zorse::test
