// Edits of programs that keep the rest of the programs consistent.
#pragma once

#include "EditedArgument.h"

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace zorse::test {

using Programs = std::vector<bundle::Program>;

struct Place {
  int program = -1, instruction = -1;
  explicit operator bool() const { return program >= 0; }
};

using Instruction = bundle::Instruction;
using Compute = bundle::Compute;
using Random = std::mt19937;
using Wanted = std::function<bool(const Instruction &)>;

/// Picks a random instruction for which `wanted(program, instruction)` holds.
template <typename F> Place pickWhere(const Programs &programs, Random &random, F wanted) {
  Place place;
  size_t count = 0;
  for (size_t p = 0; p < programs.size(); ++p)
    for (int e = 0; e < programs[p].instructions_size(); ++e)
      if (wanted(programs[p], programs[p].instructions(e)) && random() % ++count == 0)
        place = {int(p), e};
  return place;
}

/// Picks a random instruction for which `wanted` holds.
inline Place pickInstruction(const Programs &programs, Random &random, const Wanted &wanted) {
  return pickWhere(programs, random, [&](const bundle::Program &, const Instruction &instruction) {
    return wanted(instruction);
  });
}

inline uint32_t positionOf(const bundle::Program &program, int instruction) {
  uint32_t position = 0;
  for (int e = 0; e < instruction; ++e)
    position += program.instructions(e).queue() == program.instructions(instruction).queue();
  return position;
}

/// Removes an instruction and the waits for it. Waits for later instructions of its queue are
/// adjusted.
inline void eraseInstruction(bundle::Program &program, int index) {
  uint32_t queue = program.instructions(index).queue(), position = positionOf(program, index);
  program.mutable_instructions()->DeleteSubrange(index, 1);
  for (auto &instruction : *program.mutable_instructions())
    for (int w = instruction.waits_size() - 1; w >= 0; --w)
      if (instruction.waits(w).queue() == queue) {
        if (instruction.waits(w).position() == position)
          instruction.mutable_waits()->DeleteSubrange(w, 1);
        else if (instruction.waits(w).position() > position)
          instruction.mutable_waits(w)->set_position(instruction.waits(w).position() - 1);
      }
}

/// Doubles the spacing of ids, so that instructions can be inserted.
inline void spreadIds(Programs &programs) {
  for (auto &program : programs)
    for (auto &instruction : *program.mutable_instructions())
      instruction.set_id(instruction.id() * 2);
}

/// Inserts `copy` at position `index` of the list. Waits for later instructions of its queue are
/// adjusted.
inline void insertInstruction(bundle::Program &program, int index,
                              const bundle::Instruction &copy) {
  uint32_t queue = copy.queue(), position = 0;
  for (int e = 0; e < index; ++e)
    position += program.instructions(e).queue() == queue;
  for (auto &instruction : *program.mutable_instructions())
    for (auto &wait : *instruction.mutable_waits())
      if (wait.queue() == queue && wait.position() >= position)
        wait.set_position(wait.position() + 1);
  *program.add_instructions() = copy;
  for (int e = program.instructions_size() - 1; e > index; --e)
    program.mutable_instructions()->SwapElements(e, e - 1);
}

/// Copies an instruction of program `from` for `program`, bound to the same bytes.
inline bundle::Instruction rebound(bundle::Program &program, const bundle::Instruction &instruction,
                                   const bundle::Program &from) {
  bundle::Instruction copy = instruction;
  bundle::ArgumentBinder binder(program);
  for (int c = 0; c < instruction.compute().calls_size(); ++c) {
    bundle::Call &call = *copy.mutable_compute()->mutable_calls(c);
    unbind(call);
    const bundle::ArgumentBindings bindings(from, instruction.compute().calls(c));
    for (int s = 0; s < bindings.size(); ++s)
      binder.bind(call, bindings[s].region, bindings[s].value, bindings[s].overwrite);
  }
  return copy;
}

/// Inserts `copy`, an instruction of another program, in the order of ids: on a queue that exists,
/// without waits.
inline void insertById(bundle::Program &program, bundle::Instruction copy) {
  copy.clear_waits();
  copy.set_queue(copy.queue() % uint32_t(program.queues_size()));
  int index = 0;
  while (index < program.instructions_size() && program.instructions(index).id() < copy.id())
    ++index;
  insertInstruction(program, index, copy);
}

/// Repeats every half of instruction `id` directly after it. Ids must be even: see spreadIds().
inline void repeatInstruction(Programs &programs, uint32_t id) {
  for (auto &program : programs)
    for (int e = 0; e < program.instructions_size(); ++e)
      if (program.instructions(e).id() == id) {
        bundle::Instruction copy = program.instructions(e);
        copy.set_id(id + 1);
        copy.clear_waits();
        insertInstruction(program, e + 1, copy);
        ++e;
      }
}

inline void eraseId(Programs &programs, uint32_t id) {
  for (auto &program : programs)
    for (int e = program.instructions_size() - 1; e >= 0; --e)
      if (program.instructions(e).id() == id)
        eraseInstruction(program, e);
}

/// Swaps the payloads of two instructions; id, queue, waits and planned time stay.
inline void swapPayload(bundle::Instruction &a, bundle::Instruction &b) {
  bundle::Instruction old = a;
  auto keep = [](bundle::Instruction &instruction, const bundle::Instruction &from) {
    uint32_t id = instruction.id(), queue = instruction.queue();
    auto waits = instruction.waits();
    instruction = from;
    instruction.set_id(id);
    instruction.set_queue(queue);
    *instruction.mutable_waits() = waits;
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
  for (auto &instruction : *program.mutable_instructions()) {
    if (instruction.has_compute())
      for (auto &call : *instruction.mutable_compute()->mutable_calls())
        for (EditedArgument argument : argumentsOf(program, call))
          add(argument.mutable_region());
    if (instruction.has_copy()) {
      add(instruction.mutable_copy()->mutable_from());
      add(instruction.mutable_copy()->mutable_to());
    }
    if (instruction.has_send())
      add(instruction.mutable_send()->mutable_region());
    if (instruction.has_receive())
      add(instruction.mutable_receive()->mutable_region());
    if (instruction.has_load_input())
      add(instruction.mutable_load_input()->mutable_region());
    if (instruction.has_load_scalars())
      add(instruction.mutable_load_scalars()->mutable_region());
    if (instruction.has_all_gather() && instruction.all_gather().has_shard())
      add(instruction.mutable_all_gather()->mutable_shard());
    if (instruction.has_all_gather() && instruction.all_gather().has_full())
      add(instruction.mutable_all_gather()->mutable_full());
    if (instruction.has_reduce_scatter() && instruction.reduce_scatter().has_shard())
      add(instruction.mutable_reduce_scatter()->mutable_shard());
    if (instruction.has_reduce_scatter() && instruction.reduce_scatter().has_full())
      add(instruction.mutable_reduce_scatter()->mutable_full());
    if (instruction.has_all_reduce())
      add(instruction.mutable_all_reduce()->mutable_region());
    if (instruction.has_read_metrics())
      add(instruction.mutable_read_metrics()->mutable_region());
  }
  return list;
}

// Places in programs that can be changed.

inline Instruction &instructionAt(Programs &programs, Place place) {
  return *programs[place.program].mutable_instructions(place.instruction);
}
inline std::string at(const Programs &programs, Place place) {
  return "device " + std::to_string(programs[place.program].device()) + " instruction " +
         std::to_string(programs[place.program].instructions(place.instruction).id());
}
inline bool isTask(const Instruction &instruction, Compute::Task task) {
  return instruction.has_compute() && instruction.compute().task() == task;
}
inline bool isUnitTask(const Instruction &instruction) {
  return isTask(instruction, Compute::F) || isTask(instruction, Compute::B) ||
         isTask(instruction, Compute::W);
}
inline bool isTransfer(const Instruction &instruction) {
  return instruction.has_send() || instruction.has_receive();
}
inline bool isCollective(const Instruction &instruction) {
  return instruction.has_all_gather() || instruction.has_reduce_scatter() ||
         instruction.has_all_reduce();
}
inline bool isAny(const Instruction &) { return true; }
inline bool isCompute(const Instruction &instruction) { return instruction.has_compute(); }
inline bool hasCalls(const Instruction &instruction) {
  return instruction.has_compute() && instruction.compute().calls_size() > 1;
}
inline bool isCopy(const Instruction &instruction) { return instruction.has_copy(); }
inline bool isSend(const Instruction &instruction) { return instruction.has_send(); }
inline bool isReceive(const Instruction &instruction) { return instruction.has_receive(); }
inline bool isGather(const Instruction &instruction) { return instruction.has_all_gather(); }
inline bool isReduceScatter(const Instruction &instruction) {
  return instruction.has_reduce_scatter();
}
inline bool isReport(const Instruction &instruction) { return instruction.has_read_metrics(); }
inline bool loadsInput(const Instruction &instruction) { return instruction.has_load_input(); }
inline bool loadsScalars(const Instruction &instruction) { return instruction.has_load_scalars(); }
inline bool isLoad(const Instruction &instruction) {
  return loadsInput(instruction) || loadsScalars(instruction);
}
inline bool hasWaits(const Instruction &instruction) { return instruction.waits_size() > 0; }
inline bool isB(const Instruction &instruction) { return isTask(instruction, Compute::B); }
inline bool isDecision(const Instruction &instruction) {
  return isTask(instruction, Compute::CLIP_AND_CHECK);
}
inline bool isUpdate(const Instruction &instruction) {
  return isTask(instruction, Compute::UPDATE_GROUP);
}
inline bool addsToSums(const Instruction &instruction) {
  return isTask(instruction, Compute::NORM) || isTask(instruction, Compute::SUM_LOSS);
}
inline Wanted taskIs(Compute::Task task) {
  return [task](const Instruction &instruction) { return isTask(instruction, task); };
}

/// The region of a transfer.
inline bundle::Region &regionOf(Instruction &instruction) {
  return instruction.has_send() ? *instruction.mutable_send()->mutable_region()
                                : *instruction.mutable_receive()->mutable_region();
}
/// The value of a transfer or copy.
inline bundle::Value &valueOf(Instruction &instruction) {
  return instruction.has_send()      ? *instruction.mutable_send()->mutable_value()
         : instruction.has_receive() ? *instruction.mutable_receive()->mutable_value()
                                     : *instruction.mutable_copy()->mutable_value();
}

/// Picks another instruction of the same program for which `wanted` holds, or none.
inline Place pickOther(const Programs &programs, Random &random, Place place,
                       const Wanted &wanted) {
  Place other;
  size_t count = 0;
  const auto &program = programs[size_t(place.program)];
  for (int e = 0; e < program.instructions_size(); ++e)
    if (e != place.instruction && wanted(program.instructions(e)) && random() % ++count == 0)
      other = {place.program, e};
  return other;
}

/// An argument of a call.
struct ArgumentPlace {
  Place place;
  int call = -1, argument = -1;
  explicit operator bool() const { return argument >= 0; }
};
using ArgumentWanted = std::function<bool(const Instruction &, const bundle::FunctionArgument &)>;
inline ArgumentWanted ofKinds(const std::vector<bundle::ArgumentKind> &kinds) {
  return [kinds](const Instruction &, const bundle::FunctionArgument &argument) {
    return std::find(kinds.begin(), kinds.end(), argument.kind()) != kinds.end();
  };
}
ArgumentPlace pickArgument(const Programs &programs, const bundle::FunctionLibrary &functions,
                           Random &random, const ArgumentWanted &wanted, int program = -1);
inline EditedArgument argumentAt(Programs &programs, const ArgumentPlace &p) {
  return {programs[size_t(p.place.program)],
          *instructionAt(programs, p.place).mutable_compute()->mutable_calls(p.call), p.argument};
}

/// Calls `f` with every half of instruction `id`.
template <typename F> void forHalves(Programs &programs, uint32_t id, F f) {
  for (auto &program : programs)
    for (auto &instruction : *program.mutable_instructions())
      if (instruction.id() == id)
        f(program, instruction);
}

/// Moves all halves of instruction `id` before the instruction with id `before`, or to the end if
/// it is UINT32_MAX. Waits are adjusted.
void moveInstruction(Programs &programs, uint32_t id, uint32_t before);
/// Swaps the payloads of two instructions on every device that has both.
void swapEverywhere(Programs &programs, uint32_t x, uint32_t y);

/// Grows an arena and returns the offset of `bytes` unused bytes at its end.
uint64_t freshBytes(bundle::Program &program, uint32_t arena, uint64_t bytes);

} // namespace zorse::test
