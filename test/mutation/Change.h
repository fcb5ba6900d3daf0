// Tables of mutations: a row says what is picked and how it is edited.
#pragma once

#include "Edit.h"
#include "Mutations.h"

#include <optional>
#include <type_traits>
#include <utility>

namespace zorse::test {

struct Pick;

/// A mutation at work.
struct Change {
  Programs &programs;
  const RealCase &original;
  Random &random;
  std::string &what;
  Place place = {};                    ///< the entry picked
  int call = -1, slot = -1, wait = -1; ///< of that entry, by picks that choose one

  bundle::Program &program() const { return programs[size_t(place.program)]; }
  Entry &entry() const { return entryAt(programs, place); }
  Compute &compute() const { return *entry().mutable_compute(); }
  EditedSlot binding() const { return {program(), *compute().mutable_calls(call), slot}; }

  /// Of the first slot of that kind, and of that index if it is not -1, in the first call; null without one.
  bundle::Region *regionOf(bundle::SlotKind kind, int index = -1) const;

  /// From 0 to `end` - 1.
  template <typename T> T draw(T end) const { return T(random() % uint64_t(end)); }
  bool coin() const { return random() % 2; }
  bundle::Program &drawProgram() const;
  bundle::Call &drawCall() const { return *compute().mutable_calls(draw(compute().calls_size())); }

  /// Picks the entry to change; `what` names it.
  bool pick(const Pick &pick);
  /// Another entry of its program; `what` names it behind `word`.
  Entry *other(const Wanted &wanted, const char *word = " and ") const;
  /// Calls f on every half of the entry.
  template <typename F> void halves(F f) const { forHalves(programs, entry().id(), f); }
};

/// A random place: an entry for which a predicate holds, or what a function of the change finds.
struct Pick {
  Pick(std::nullptr_t) {}
  template <typename F> Pick(F f) {
    if constexpr (std::is_invocable_v<F, const Entry &>)
      find = [f = std::move(f)](Change &m) { return pickEntry(m.programs, m.random, f); };
    else
      find = std::move(f);
  }
  std::function<Place(Change &)> find;
};
Pick slotWhere(SlotWanted wanted);
Pick slotOf(const std::vector<bundle::SlotKind> &kinds);

struct Row {
  std::string name;
  Pick pick; ///< null: the edit picks
  std::function<bool(Change &)> edit;
  int attempts = 1; ///< picks, until an edit can be made
};
void addRows(MutationList &list, const char *fault, const std::vector<Row> &rows);

// Edits of several tables.

bool dropEntry(Change &m);   ///< all halves
bool doubleEntry(Change &m); ///< all halves, right behind the entry
bool dropHalf(Change &m);
bool dropWaits(Change &m);
bool dropCall(Change &m);
bool moveToEnd(Change &m);
bool moveAnywhere(Change &m); ///< in front of a random entry of its program
bool anotherQueue(Change &m);
bool waitEarlier(Change &m, bundle::Wait &wait); ///< for an earlier entry of the queue
bool freshRegion(Change &m);                     ///< gives the slot bytes that nobody uses
/// Exchanges what the entry and another of its program do.
bool swapWith(Change &m, const Wanted &wanted);
/// Another slot of the program, as large and elsewhere; none if a random one is not. `what` names it behind `word`.
std::optional<EditedSlot> otherSlot(Change &m, const SlotWanted &wanted, const char *word = " and ");
/// Exchanges two slots of the kinds.
Row swapSlots(const char *name, const SlotWanted &wanted);

} // namespace zorse::test
