// Edits of programs that keep the rest of the programs consistent.
#pragma once

#include "EditedSlot.h"

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace zorse::test {

using Programs = std::vector<bundle::Program>;

struct Place {
  int program = -1, entry = -1;
  explicit operator bool() const { return program >= 0; }
};

using Entry = bundle::Instruction;
using Compute = bundle::Compute;
using Random = std::mt19937;
using Wanted = std::function<bool(const Entry &)>;

/// Picks a random entry for which `wanted(program, entry)` holds.
template <typename F> Place pickWhere(const Programs &programs, Random &random, F wanted) {
  Place place;
  size_t count = 0;
  for (size_t p = 0; p < programs.size(); ++p)
    for (int e = 0; e < programs[p].instructions_size(); ++e)
      if (wanted(programs[p], programs[p].instructions(e)) && random() % ++count == 0)
        place = {int(p), e};
  return place;
}

/// Picks a random entry for which `wanted` holds.
inline Place pickEntry(const Programs &programs, Random &random, const Wanted &wanted) {
  return pickWhere(programs, random, [&](const bundle::Program &, const Entry &entry) { return wanted(entry); });
}

inline uint32_t positionOf(const bundle::Program &program, int entry) {
  uint32_t position = 0;
  for (int e = 0; e < entry; ++e)
    position += program.instructions(e).queue() == program.instructions(entry).queue();
  return position;
}

/// Removes an entry and the waits for it. Waits for later entries of its queue are adjusted.
inline void eraseEntry(bundle::Program &program, int index) {
  uint32_t queue = program.instructions(index).queue(), position = positionOf(program, index);
  program.mutable_instructions()->DeleteSubrange(index, 1);
  for (auto &entry : *program.mutable_instructions())
    for (int w = entry.waits_size() - 1; w >= 0; --w)
      if (entry.waits(w).queue() == queue) {
        if (entry.waits(w).position() == position)
          entry.mutable_waits()->DeleteSubrange(w, 1);
        else if (entry.waits(w).position() > position)
          entry.mutable_waits(w)->set_position(entry.waits(w).position() - 1);
      }
}

/// Doubles the spacing of ids, so that entries can be inserted.
inline void spreadIds(Programs &programs) {
  for (auto &program : programs)
    for (auto &entry : *program.mutable_instructions())
      entry.set_id(entry.id() * 2);
}

/// Inserts `copy` at position `index` of the list. Waits for later entries of its queue are adjusted.
inline void insertEntry(bundle::Program &program, int index, const bundle::Instruction &copy) {
  uint32_t queue = copy.queue(), position = 0;
  for (int e = 0; e < index; ++e)
    position += program.instructions(e).queue() == queue;
  for (auto &entry : *program.mutable_instructions())
    for (auto &wait : *entry.mutable_waits())
      if (wait.queue() == queue && wait.position() >= position)
        wait.set_position(wait.position() + 1);
  *program.add_instructions() = copy;
  for (int e = program.instructions_size() - 1; e > index; --e)
    program.mutable_instructions()->SwapElements(e, e - 1);
}

/// Copies an entry of program `from` for `program`, bound to the same bytes.
inline bundle::Instruction rebound(bundle::Program &program, const bundle::Instruction &entry, const bundle::Program &from) {
  bundle::Instruction copy = entry;
  bundle::SlotBinder binder(program);
  for (int c = 0; c < entry.compute().calls_size(); ++c) {
    bundle::Call &call = *copy.mutable_compute()->mutable_calls(c);
    unbind(call);
    const bundle::SlotBindings bindings(from, entry.compute().calls(c));
    for (int s = 0; s < bindings.size(); ++s)
      binder.bind(call, bindings[s].region, bindings[s].value, bindings[s].overwrite);
  }
  return copy;
}

/// Inserts `copy`, an entry of another program, in the order of ids: on a queue that exists, without waits.
inline void insertById(bundle::Program &program, bundle::Instruction copy) {
  copy.clear_waits();
  copy.set_queue(copy.queue() % uint32_t(program.queues_size()));
  int index = 0;
  while (index < program.instructions_size() && program.instructions(index).id() < copy.id())
    ++index;
  insertEntry(program, index, copy);
}

/// Repeats every half of entry `id` directly after it. Ids must be even: see spreadIds().
inline void repeatEntry(Programs &programs, uint32_t id) {
  for (auto &program : programs)
    for (int e = 0; e < program.instructions_size(); ++e)
      if (program.instructions(e).id() == id) {
        bundle::Instruction copy = program.instructions(e);
        copy.set_id(id + 1);
        copy.clear_waits();
        insertEntry(program, e + 1, copy);
        ++e;
      }
}

inline void eraseId(Programs &programs, uint32_t id) {
  for (auto &program : programs)
    for (int e = program.instructions_size() - 1; e >= 0; --e)
      if (program.instructions(e).id() == id)
        eraseEntry(program, e);
}

/// Swaps the payloads of two entries; id, queue, waits and planned time stay.
inline void swapPayload(bundle::Instruction &a, bundle::Instruction &b) {
  bundle::Instruction old = a;
  auto keep = [](bundle::Instruction &entry, const bundle::Instruction &from) {
    uint32_t id = entry.id(), queue = entry.queue();
    auto waits = entry.waits();
    entry = from;
    entry.set_id(id);
    entry.set_queue(queue);
    *entry.mutable_waits() = waits;
  };
  keep(a, b);
  keep(b, old);
}

/// All regions that a program reads or writes.
inline std::vector<bundle::Region *> regionsOf(bundle::Program &program) {
  std::vector<bundle::Region *> list;
  auto add = [&](bundle::Region *region) {
    if (region->bytes())
      list.push_back(region);
  };
  for (auto &entry : *program.mutable_instructions()) {
    if (entry.has_compute())
      for (auto &call : *entry.mutable_compute()->mutable_calls())
        for (EditedSlot slot : slotsOf(program, call))
          add(slot.mutable_region());
    if (entry.has_copy()) {
      add(entry.mutable_copy()->mutable_from());
      add(entry.mutable_copy()->mutable_to());
    }
    if (entry.has_send())
      add(entry.mutable_send()->mutable_region());
    if (entry.has_receive())
      add(entry.mutable_receive()->mutable_region());
    if (entry.has_load_input())
      add(entry.mutable_load_input()->mutable_region());
    if (entry.has_load_scalars())
      add(entry.mutable_load_scalars()->mutable_region());
    if (entry.has_all_gather() && entry.all_gather().has_shard())
      add(entry.mutable_all_gather()->mutable_shard());
    if (entry.has_all_gather() && entry.all_gather().has_full())
      add(entry.mutable_all_gather()->mutable_full());
    if (entry.has_reduce_scatter() && entry.reduce_scatter().has_shard())
      add(entry.mutable_reduce_scatter()->mutable_shard());
    if (entry.has_reduce_scatter() && entry.reduce_scatter().has_full())
      add(entry.mutable_reduce_scatter()->mutable_full());
    if (entry.has_all_reduce())
      add(entry.mutable_all_reduce()->mutable_region());
    if (entry.has_read_metrics())
      add(entry.mutable_read_metrics()->mutable_region());
  }
  return list;
}

// Places in programs that can be changed.

inline Entry &entryAt(Programs &programs, Place place) { return *programs[place.program].mutable_instructions(place.entry); }
inline std::string at(const Programs &programs, Place place) {
  return "device " + std::to_string(programs[place.program].device()) + " entry " +
         std::to_string(programs[place.program].instructions(place.entry).id());
}
inline bool isTask(const Entry &entry, Compute::Task task) { return entry.has_compute() && entry.compute().task() == task; }
inline bool isUnitTask(const Entry &entry) { return isTask(entry, Compute::F) || isTask(entry, Compute::B) || isTask(entry, Compute::W); }
inline bool isTransfer(const Entry &entry) { return entry.has_send() || entry.has_receive(); }
inline bool isCollective(const Entry &entry) { return entry.has_all_gather() || entry.has_reduce_scatter() || entry.has_all_reduce(); }
inline bool isAny(const Entry &) { return true; }
inline bool isCompute(const Entry &entry) { return entry.has_compute(); }
inline bool hasCalls(const Entry &entry) { return entry.has_compute() && entry.compute().calls_size() > 1; }
inline bool isCopy(const Entry &entry) { return entry.has_copy(); }
inline bool isSend(const Entry &entry) { return entry.has_send(); }
inline bool isReceive(const Entry &entry) { return entry.has_receive(); }
inline bool isGather(const Entry &entry) { return entry.has_all_gather(); }
inline bool isReduceScatter(const Entry &entry) { return entry.has_reduce_scatter(); }
inline bool isReport(const Entry &entry) { return entry.has_read_metrics(); }
inline bool loadsInput(const Entry &entry) { return entry.has_load_input(); }
inline bool loadsScalars(const Entry &entry) { return entry.has_load_scalars(); }
inline bool isLoad(const Entry &entry) { return loadsInput(entry) || loadsScalars(entry); }
inline bool hasWaits(const Entry &entry) { return entry.waits_size() > 0; }
inline bool isB(const Entry &entry) { return isTask(entry, Compute::B); }
inline bool isDecision(const Entry &entry) { return isTask(entry, Compute::CLIP_AND_CHECK); }
inline bool isUpdate(const Entry &entry) { return isTask(entry, Compute::UPDATE_GROUP); }
inline bool addsToSums(const Entry &entry) { return isTask(entry, Compute::NORM) || isTask(entry, Compute::SUM_LOSS); }
inline Wanted taskIs(Compute::Task task) {
  return [task](const Entry &entry) { return isTask(entry, task); };
}

/// The region of a transfer.
inline bundle::Region &regionOf(Entry &entry) {
  return entry.has_send() ? *entry.mutable_send()->mutable_region() : *entry.mutable_receive()->mutable_region();
}
/// The value of a transfer or copy.
inline bundle::Value &valueOf(Entry &entry) {
  return entry.has_send()      ? *entry.mutable_send()->mutable_value()
         : entry.has_receive() ? *entry.mutable_receive()->mutable_value()
                               : *entry.mutable_copy()->mutable_value();
}

/// Picks another entry of the same program for which `wanted` holds, or none.
inline Place pickOther(const Programs &programs, Random &random, Place place, const Wanted &wanted) {
  Place other;
  size_t count = 0;
  const auto &program = programs[size_t(place.program)];
  for (int e = 0; e < program.instructions_size(); ++e)
    if (e != place.entry && wanted(program.instructions(e)) && random() % ++count == 0)
      other = {place.program, e};
  return other;
}

/// A slot of a call.
struct SlotPlace {
  Place place;
  int call = -1, slot = -1;
  explicit operator bool() const { return slot >= 0; }
};
using SlotWanted = std::function<bool(const Entry &, const bundle::FunctionArgument &)>;
inline SlotWanted ofKinds(const std::vector<bundle::ArgumentKind> &kinds) {
  return [kinds](const Entry &, const bundle::FunctionArgument &slot) { return std::find(kinds.begin(), kinds.end(), slot.kind()) != kinds.end(); };
}
SlotPlace pickSlot(const Programs &programs, const bundle::FunctionLibrary &bodies, Random &random, const SlotWanted &wanted, int program = -1);
inline EditedSlot slotAt(Programs &programs, const SlotPlace &p) {
  return {programs[size_t(p.place.program)], *entryAt(programs, p.place).mutable_compute()->mutable_calls(p.call), p.slot};
}

/// Calls `f` with every half of entry `id`.
template <typename F> void forHalves(Programs &programs, uint32_t id, F f) {
  for (auto &program : programs)
    for (auto &entry : *program.mutable_instructions())
      if (entry.id() == id)
        f(program, entry);
}

/// Moves all halves of entry `id` before the entry with id `before`, or to the end if it is UINT32_MAX. Waits are
/// adjusted.
void moveEntry(Programs &programs, uint32_t id, uint32_t before);
/// Swaps the payloads of two entries on every device that has both.
void swapEverywhere(Programs &programs, uint32_t x, uint32_t y);

/// Grows an arena and returns the offset of `bytes` unused bytes at its end.
uint64_t freshBytes(bundle::Program &program, uint32_t arena, uint64_t bytes);

} // namespace zorse::test
