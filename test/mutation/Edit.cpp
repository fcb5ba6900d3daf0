#include "Edit.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::test;

ArgumentPlace test::pickArgument(const Programs &programs, const bundle::FunctionLibrary &functions,
                                 Random &random, const ArgumentWanted &wanted, int program) {
  ArgumentPlace chosen;
  size_t count = 0;
  for (size_t p = 0; p < programs.size(); ++p) {
    if (program >= 0 && int(p) != program)
      continue;
    for (int e = 0; e < programs[p].instructions_size(); ++e)
      for (int c = 0; c < programs[p].instructions(e).compute().calls_size(); ++c) {
        const auto &call = programs[p].instructions(e).compute().calls(c);
        const bundle::ArgumentBindings bindings(programs[p], call);
        for (int s = 0; s < bindings.size(); ++s)
          if (bindings[s].region.bytes() &&
              wanted(programs[p].instructions(e),
                     functions.functions(int(call.function())).arguments(s)) &&
              random() % ++count == 0)
            chosen = {{int(p), e}, c, s};
      }
  }
  return chosen;
}

void test::moveInstruction(Programs &programs, uint32_t id, uint32_t before) {
  spreadIds(programs);
  const uint32_t from = id * 2, to = before == UINT32_MAX ? UINT32_MAX : before * 2 - 1;
  for (auto &program : programs) {
    // The ids of the instructions that waits refer to, before instructions move.
    std::vector<std::vector<uint32_t>> targets;
    std::vector<std::vector<uint32_t>> ids(size_t(program.queues_size()));
    for (const auto &instruction : program.instructions())
      ids[instruction.queue()].push_back(instruction.id() == from ? to : instruction.id());
    std::vector<Instruction> instructions(program.instructions().begin(),
                                          program.instructions().end());
    for (auto &instruction : instructions) {
      if (instruction.id() == from)
        instruction.set_id(to);
      for (auto &wait : *instruction.mutable_waits())
        wait.set_position(ids[wait.queue()][wait.position()]); // temporarily an id
    }
    std::stable_sort(instructions.begin(), instructions.end(),
                     [](const Instruction &a, const Instruction &b) { return a.id() < b.id(); });
    for (auto &list : ids)
      std::sort(list.begin(), list.end());
    for (auto &instruction : instructions)
      for (auto &wait : *instruction.mutable_waits()) {
        const auto &list = ids[wait.queue()];
        wait.set_position(
            uint32_t(std::lower_bound(list.begin(), list.end(), wait.position()) - list.begin()));
      }
    program.mutable_instructions()->Clear();
    for (auto &instruction : instructions)
      program.mutable_instructions()->Add(std::move(instruction));
  }
}

void test::swapEverywhere(Programs &programs, uint32_t x, uint32_t y) {
  for (auto &program : programs) {
    Instruction *first = nullptr, *second = nullptr;
    for (auto &instruction : *program.mutable_instructions()) {
      first = instruction.id() == x ? &instruction : first;
      second = instruction.id() == y ? &instruction : second;
    }
    if (first && second)
      swapPayload(*first, *second);
  }
}

uint64_t test::freshBytes(bundle::Program &program, uint32_t arena, uint64_t bytes) {
  auto *memory = program.mutable_arenas(int(arena));
  uint64_t offset = (memory->bytes() + 63) / 64 * 64, end = offset + (bytes + 63) / 64 * 64;
  if (memory->kind() == bundle::DEVICE)
    program.set_planned_bytes(program.planned_bytes() + end - memory->bytes());
  memory->set_bytes(end);
  return offset;
}
