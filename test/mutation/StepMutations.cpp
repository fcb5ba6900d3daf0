// Mutations at the step boundary. The first step is correct, because state has just been loaded and
// arenas are fresh; the second step is not. Also faults that only an evaluation shows.
#include "Change.h"

using namespace zorse;
using namespace zorse::test;

namespace {

/// Picks a random wait for the previous step.
Place pickPrevious(Change &m) {
  Place chosen;
  size_t count = 0;
  for (size_t d = 0; d < m.programs.size(); ++d)
    for (int e = 0; e < m.programs[d].instructions_size(); ++e)
      for (int i = 0; i < m.programs[d].instructions(e).waits_size(); ++i)
        if (m.programs[d].instructions(e).waits(i).previous_step() && m.random() % ++count == 0) {
          chosen = {int(d), e};
          m.wait = i;
        }
  return chosen;
}

bool dropPrevious(Change &m) {
  m.instruction().mutable_waits()->DeleteSubrange(m.wait, 1);
  return true;
}

bool dropAllPrevious(Change &m) {
  for (auto &instruction : *m.program().mutable_instructions())
    for (int i = instruction.waits_size() - 1; i >= 0; --i)
      if (instruction.waits(i).previous_step())
        instruction.mutable_waits()->DeleteSubrange(i, 1);
  m.what = "device " + std::to_string(m.program().device());
  return true;
}

/// Declares the gathered elements from `begin` to `end` as state.
void keep(bundle::Program &program, const bundle::AllGather &gather, bundle::ElementType type,
          int64_t begin, int64_t end) {
  if (begin >= end)
    return;
  auto *state = program.add_state();
  state->set_type(type);
  *state->mutable_value() = gather.value();
  state->mutable_value()->set_begin(begin);
  state->mutable_value()->set_end(end);
  *state->mutable_region() = gather.full();
  state->mutable_region()->set_offset(gather.full().offset() + uint64_t(begin) * 4);
  state->mutable_region()->set_bytes(uint64_t(end - begin) * 4);
}

bool loadOnce(Change &m) {
  const uint32_t id = m.instruction().id();
  const bool owned = m.coin(); // also elements that the device owns, or only the received ones
  m.halves([&](bundle::Program &program, Instruction &instruction) {
    const auto &gather = instruction.all_gather();
    if (!gather.full().bytes())
      return;
    const auto type = m.original.model.summary.groups(int(gather.group())).type();
    int64_t begin = 0, end = 0;
    for (int i = 0; i < gather.shards().members_size(); ++i)
      if (gather.shards().members(i) == program.device()) {
        begin = gather.shards().begin(i);
        end = gather.shards().end(i);
      }
    if (owned || begin >= end) {
      keep(program, gather, type, 0, gather.value().end());
    } else {
      keep(program, gather, type, 0, begin);
      keep(program, gather, type, end, gather.value().end());
    }
  });
  eraseId(m.programs, id);
  return true;
}

/// The next step reads the loaded values.
bool updateCopy(Change &m) {
  auto *state = m.program().add_state();
  state->set_type(m.original.model.summary.groups(int(m.binding().value().id())).type());
  *state->mutable_value() = m.binding().value();
  freshRegion(m);
  *state->mutable_region() = m.binding().region();
  return true;
}

/// Instructions before the load read the input of the previous step.
bool loadLate(Change &m) {
  const uint32_t id = m.instruction().id();
  Instruction *other = m.other([&](const Instruction &e) { return e.id() > id; }, " before ");
  if (!other)
    return false;
  moveInstruction(m.programs, id, other->id());
  return true;
}

/// No contribution overwrites the accumulator.
bool neverOverwrite(Change &m) {
  const auto &value = m.binding().value();
  bool changed = false;
  for (auto &instruction : *m.program().mutable_instructions())
    if (instruction.has_compute())
      for (auto &call : *instruction.mutable_compute()->mutable_calls())
        for (EditedArgument argument : argumentsOf(m.program(), call))
          if (argument.overwrite() && argument.value().kind() == value.kind() &&
              argument.value().id() == value.id()) {
            argument.set_overwrite(false);
            changed = true;
          }
  return changed;
}

bool moveToFront(Change &m) {
  Place first = pickInstruction(m.programs, m.random, [](const Instruction &e) {
    return e.phase() <= bundle::FORWARD && e.id() > 0;
  });
  if (!first)
    return false;
  m.what += " before " + at(m.programs, first);
  moveInstruction(m.programs, m.instruction().id(), instructionAt(m.programs, first).id());
  return true;
}

bool setPhase(Change &m, bundle::Phase phase) {
  m.halves([&](bundle::Program &, Instruction &e) { e.set_phase(phase); });
  return true;
}

bool wrongPhase(Change &m) {
  const auto phase = bundle::Phase(1 + m.draw(8));
  return phase != m.instruction().phase() && setPhase(m, phase);
}

} // namespace

void test::addStepMutations(MutationList &list) {
  auto isState = [](const Instruction &e, const bundle::FunctionArgument &argument) {
    return isUpdate(e) && argument.kind() == bundle::STATE && argument.index() == 0;
  };
  auto accumulates = [](const Instruction &, const bundle::FunctionArgument &argument) {
    return argument.mode() == bundle::ACCUMULATE;
  };
  addRows(list, "step boundary",
          {
              {"wait for the step before dropped", pickPrevious, dropPrevious},
              {"wait for an earlier instruction of the step before", pickPrevious,
               [](Change &m) { return waitEarlier(m, *m.instruction().mutable_waits(m.wait)); }},
              {"no waits for the step before on a device", pickPrevious, dropAllPrevious},
              {"parameters loaded once instead of gathered", isGather, loadOnce},
              {"update of a copy of the state", argumentWhere(isState), updateCopy},
              {"scalars loaded late", loadsScalars, loadLate},
              {"accumulator of the step before", argumentWhere(accumulates), neverOverwrite},
              {"first instruction moved to the end",
               [](const Instruction &e) {
                 return e.phase() == bundle::LOAD || e.phase() == bundle::GATHER;
               },
               moveToEnd},
              {"last instruction moved to the front",
               [](const Instruction &e) { return e.phase() >= bundle::GRAD_NORM; }, moveToFront},
              {"wrong phase", isAny, wrongPhase},
              {"left out of evaluation",
               [](const Instruction &e) {
                 return e.phase() <= bundle::FORWARD || e.phase() == bundle::READ_METRICS;
               },
               [](Change &m) { return setPhase(m, bundle::BACKWARD); }},
              {"also done in evaluation",
               [](const Instruction &e) {
                 return e.phase() > bundle::FORWARD && e.phase() != bundle::READ_METRICS;
               },
               [](Change &m) {
                 return setPhase(m, m.coin() ? bundle::READ_METRICS : bundle::FORWARD);
               }},
          });
}
