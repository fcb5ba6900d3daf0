// Mutations of groups (which state, which participants), extents (which owner has which elements)
// and versions (before or after which update).
#include "Change.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::test;

namespace {

bundle::ShardRanges *extentsOf(Instruction &instruction) {
  return instruction.has_all_gather() ? instruction.mutable_all_gather()->mutable_shards()
                                      : instruction.mutable_reduce_scatter()->mutable_shards();
}
bundle::Region *fullOf(Instruction &instruction) {
  return instruction.has_all_gather() ? instruction.mutable_all_gather()->mutable_full()
                                      : instruction.mutable_reduce_scatter()->mutable_full();
}
bundle::Region *shardOf(Instruction &instruction) {
  return instruction.has_all_gather() ? instruction.mutable_all_gather()->mutable_shard()
                                      : instruction.mutable_reduce_scatter()->mutable_shard();
}
google::protobuf::RepeatedField<uint32_t> *membersOf(Instruction &instruction) {
  return instruction.has_all_gather() ? instruction.mutable_all_gather()->mutable_readers()
         : instruction.has_reduce_scatter()
             ? instruction.mutable_reduce_scatter()->mutable_contributors()
             : instruction.mutable_all_reduce()->mutable_members();
}
uint32_t groupOf(const Instruction &e) {
  return e.has_all_gather()       ? e.all_gather().group()
         : e.has_reduce_scatter() ? e.reduce_scatter().group()
                                  : uint32_t(e.compute().group());
}
bool isOwned(const Instruction &e) { return e.has_all_gather() || e.has_reduce_scatter(); }
int ownersOf(const Instruction &e) {
  return e.has_all_gather()       ? e.all_gather().shards().members_size()
         : e.has_reduce_scatter() ? e.reduce_scatter().shards().members_size()
                                  : 0;
}
bool hasOwners(const Instruction &e) { return isOwned(e) && ownersOf(e) > 1; }

bool memberMissing(Change &m) {
  uint32_t id = m.instruction().id(), victim = ~0u;
  m.halves([&](bundle::Program &, Instruction &instruction) {
    auto *members = membersOf(instruction);
    if (victim == ~0u)
      victim = members->Get(m.draw(members->size()));
    members->erase(std::remove(members->begin(), members->end(), victim), members->end());
  });
  for (auto &program : m.programs)
    if (program.device() == victim)
      for (int e = program.instructions_size() - 1; e >= 0; --e)
        if (program.instructions(e).id() == id) {
          auto &instruction = *program.mutable_instructions(e);
          bool owner = false;
          if (instruction.has_all_gather()) {
            instruction.mutable_all_gather()->clear_full();
            owner = instruction.all_gather().shard().bytes();
          } else if (instruction.has_reduce_scatter()) {
            instruction.mutable_reduce_scatter()->clear_full();
            owner = instruction.reduce_scatter().shard().bytes();
          }
          if (!owner)
            eraseInstruction(program, e);
        }
  return true;
}

bool hasGroup(const Instruction &e) { return isOwned(e) || isUpdate(e); }

bool wrongGroup(Change &m, bool everywhere) {
  uint32_t old = groupOf(m.instruction()),
           fresh = uint32_t(m.draw(m.original.model.summary.groups_size()));
  if (fresh == old)
    return false;
  const uint32_t device = m.program().device();
  m.halves([&](bundle::Program &program, Instruction &e) {
    if (!everywhere && program.device() != device)
      return;
    if (e.has_all_gather()) {
      e.mutable_all_gather()->set_group(fresh);
      e.mutable_all_gather()->mutable_value()->set_id(fresh);
    } else if (e.has_reduce_scatter()) {
      e.mutable_reduce_scatter()->set_group(fresh);
      e.mutable_reduce_scatter()->mutable_value()->set_id(fresh);
    } else {
      e.mutable_compute()->set_group(int(fresh));
      for (auto &call : *e.mutable_compute()->mutable_calls())
        for (EditedArgument argument : argumentsOf(program, call))
          if (argument.value().kind() == bundle::Value::PARAMETERS ||
              argument.value().kind() == bundle::Value::REDUCED_GRADIENTS ||
              argument.value().kind() == bundle::Value::MOMENTS)
            argument.mutable_value()->set_id(fresh);
    }
  });
  return true;
}

/// Adds an owner as a contributor; its bytes have arbitrary contents.
bool addContributor(Change &m) {
  auto &program = m.program();
  uint64_t bytes = 0;
  m.halves([&](bundle::Program &, Instruction &e) {
    bytes = std::max(bytes, e.reduce_scatter().full().bytes());
  });
  m.halves([&](bundle::Program &, Instruction &e) {
    e.mutable_reduce_scatter()->add_contributors(program.device());
  });
  auto *full = m.instruction().mutable_reduce_scatter()->mutable_full();
  full->set_offset(freshBytes(program, 0, bytes));
  full->set_bytes(bytes);
  return true;
}

bool swapGroups(Change &m) {
  Instruction *other = m.other(m.instruction().has_all_gather() ? isGather : isReduceScatter);
  if (!other)
    return false;
  swapEverywhere(m.programs, m.instruction().id(), other->id());
  return true;
}

/// Swaps two buffers of equal size on one device.
bool swapBuffers(Change &m) {
  Instruction *other = m.other(isOwned);
  if (!other)
    return false;
  auto *x = fullOf(m.instruction()), *y = fullOf(*other);
  if (x->bytes() == 0 || x->bytes() != y->bytes() || x->offset() == y->offset())
    return false;
  x->Swap(y);
  shardOf(m.instruction())->Swap(shardOf(*other));
  return true;
}

bool isUpdatedState(const Instruction &e, const bundle::FunctionArgument &argument) {
  return isUpdate(e) && argument.kind() == bundle::STATE;
}

bool takeOtherState(Change &m) {
  auto other = otherArgument(m, isUpdatedState, " from ");
  if (!other)
    return false;
  *m.binding().mutable_region() = other->region();
  return true;
}

bool shrinkCall(Change &m) {
  auto &call = m.drawCall();
  if (call.rows() <= 16)
    return false;
  const auto &function = m.original.model.functions.functions(int(call.function()));
  for (int s = 0; s < function.arguments_size(); ++s)
    if (function.arguments(s).kind() == bundle::STATE) {
      EditedArgument argument(m.program(), call, s);
      argument.mutable_region()->set_bytes(argument.region().bytes() - 64);
      argument.mutable_value()->set_end(argument.value().end() - 16);
    }
  call.set_rows(call.rows() - 16);
  return true;
}

/// Moves the extent of all arguments of a call, or of one, by 16 elements.
bool shiftCall(Change &m, bool all) {
  auto &call = m.drawCall();
  const auto &function = m.original.model.functions.functions(int(call.function()));
  std::vector<int> arguments;
  for (int s = 0; s < function.arguments_size(); ++s)
    if (function.arguments(s).kind() == bundle::STATE)
      arguments.push_back(s);
  if (!all)
    arguments = {arguments[m.draw(arguments.size())]};
  const int64_t by = m.coin() ? 16 : -16;
  auto &program = m.program();
  for (int s : arguments) {
    EditedArgument argument(program, call, s);
    const uint64_t offset = argument.region().offset() + uint64_t(by * 4);
    if (argument.value().begin() + by < 0 ||
        argument.value().end() + by >
            m.original.model.summary.groups(int(argument.value().id())).elements() ||
        offset > program.arenas(int(argument.region().arena())).bytes() - argument.region().bytes())
      return false;
    argument.mutable_region()->set_offset(offset);
    argument.mutable_value()->set_begin(argument.value().begin() + by);
    argument.mutable_value()->set_end(argument.value().end() + by);
  }
  return true;
}

/// Moves the boundary between two owners.
/// \param where  0: on all members of one collective; 1: on one member; 2: in all collectives of
/// the group and in its state.
bool moveBorder(Change &m, int where) {
  const uint32_t id = m.instruction().id(), device = m.program().device(),
                 group = groupOf(m.instruction());
  const int64_t step = 64 * (1 + m.draw(int64_t(2))) * (m.coin() ? 1 : -1);
  const int which = m.draw(ownersOf(m.instruction()) - 1);
  m.what += " by " + std::to_string(step) + " elements";
  uint32_t left = 0, right = 0;
  for (auto &program : m.programs) {
    for (auto &instruction : *program.mutable_instructions()) {
      if (!isOwned(instruction) ||
          (where == 2 ? groupOf(instruction) != group : instruction.id() != id) ||
          (where == 1 && program.device() != device))
        continue;
      auto *shards = extentsOf(instruction);
      auto *shard = shardOf(instruction);
      if (which + 1 >= shards->members_size() ||
          shards->end(which) + step <= shards->begin(which) ||
          shards->begin(which + 1) + step >= shards->end(which + 1) ||
          shards->end(which) != shards->begin(which + 1))
        return false;
      left = shards->members(which);
      right = shards->members(which + 1);
      if (left == program.device() && shard->bytes())
        shard->set_bytes(uint64_t(int64_t(shard->bytes()) + step * 4));
      if (right == program.device() && shard->bytes()) {
        shard->set_offset(uint64_t(int64_t(shard->offset()) + step * 4));
        shard->set_bytes(uint64_t(int64_t(shard->bytes()) - step * 4));
      }
      shards->set_end(which, shards->end(which) + step);
      shards->set_begin(which + 1, shards->begin(which + 1) + step);
    }
    if (where == 2)
      for (auto &state : *program.mutable_state())
        if (state.value().id() == group && (state.value().kind() == bundle::Value::PARAMETERS ||
                                            state.value().kind() == bundle::Value::MOMENTS)) {
          auto *region = state.mutable_region();
          if (program.device() == left) {
            state.mutable_value()->set_end(state.value().end() + step);
            region->set_bytes(uint64_t(int64_t(region->bytes()) + step * 4));
          } else if (program.device() == right) {
            state.mutable_value()->set_begin(state.value().begin() + step);
            region->set_offset(uint64_t(int64_t(region->offset()) + step * 4));
            region->set_bytes(uint64_t(int64_t(region->bytes()) - step * 4));
          }
        }
  }
  return true;
}

bool swapOwners(Change &m) {
  const int i = m.draw(ownersOf(m.instruction()) - 1);
  m.halves([&](bundle::Program &program, Instruction &instruction) {
    auto *shards = extentsOf(instruction);
    shards->mutable_members()->SwapElements(i, i + 1);
    for (int k : {i, i + 1})
      if (shards->members(k) == program.device())
        shardOf(instruction)->set_bytes(uint64_t(shards->end(k) - shards->begin(k)) * 4);
  });
  return true;
}

/// Removes an owner from a collective: its elements are not sent or not received.
bool dropOwner(Change &m) {
  const int i = m.draw(ownersOf(m.instruction()));
  const uint32_t id = m.instruction().id(), victim = extentsOf(m.instruction())->members(i);
  m.halves([&](bundle::Program &program, Instruction &instruction) {
    auto *shards = extentsOf(instruction);
    shards->mutable_members()->erase(shards->mutable_members()->begin() + i);
    shards->mutable_begin()->erase(shards->mutable_begin()->begin() + i);
    shards->mutable_end()->erase(shards->mutable_end()->begin() + i);
    if (program.device() == victim)
      shardOf(instruction)->Clear();
  });
  for (auto &program : m.programs)
    for (int e = program.instructions_size() - 1; e >= 0; --e)
      if (program.device() == victim && program.instructions(e).id() == id &&
          !(program.instructions(e).has_all_gather()
                ? program.instructions(e).all_gather().full().bytes()
                : program.instructions(e).reduce_scatter().full().bytes()))
        eraseInstruction(program, e);
  return true;
}

bool shortenState(Change &m) {
  auto &program = m.drawProgram();
  if (!program.state_size())
    return false;
  auto &state = *program.mutable_state(m.draw(program.state_size()));
  if (state.value().end() - state.value().begin() <= 16)
    return false;
  state.mutable_value()->set_end(state.value().end() - 16);
  state.mutable_region()->set_bytes(state.region().bytes() - 64);
  return true;
}

bool updateEarly(Change &m) {
  const uint32_t queue = m.instruction().queue(), id = m.instruction().id();
  return swapWith(m, [&](const Instruction &e) {
    return e.has_compute() && e.queue() == queue && e.id() < id;
  });
}

/// Swaps a gather with another collective on all members.
bool gatherLate(Change &m) {
  Place other = pickInstruction(m.programs, m.random, isCollective);
  const uint32_t x = m.instruction().id(), y = instructionAt(m.programs, other).id();
  if (x == y)
    return false;
  for (auto &program : m.programs) { // if a device has only one of the two, ids are out of order
    int found = 0;
    for (auto &instruction : program.instructions())
      found += instruction.id() == x || instruction.id() == y;
    if (found == 1)
      return false;
  }
  m.what += " and " + at(m.programs, other);
  swapEverywhere(m.programs, x, y);
  return true;
}

bool gatherLast(Change &m) {
  const bool declared = m.coin();
  m.halves([&](bundle::Program &, Instruction &e) {
    e.mutable_all_gather()->mutable_value()->set_version(declared);
  });
  return moveToEnd(m);
}

bool reduceEarly(Change &m) {
  Place backward = pickInstruction(m.programs, m.random, isB);
  const uint32_t id = m.instruction().id(), before = instructionAt(m.programs, backward).id();
  if (before > id)
    return false;
  m.what += " before " + at(m.programs, backward);
  moveInstruction(m.programs, id, before);
  return true;
}

bool declareNextVersion(Change &m) {
  m.halves([&](bundle::Program &program, Instruction &e) {
    if (e.has_all_gather()) {
      e.mutable_all_gather()->mutable_value()->set_version(1);
      return;
    }
    for (auto &call : *e.mutable_compute()->mutable_calls())
      for (EditedArgument argument : argumentsOf(program, call))
        if (argument.value().kind() == bundle::Value::PARAMETERS)
          argument.mutable_value()->set_version(1);
  });
  return true;
}

} // namespace

void test::addStateMutations(MutationList &list) {
  addRows(
      list, "groups",
      {
          {"wrong group", hasGroup, [](Change &m) { return wrongGroup(m, true); }},
          {"wrong group on one device", hasGroup, [](Change &m) { return wrongGroup(m, false); }},
          {"reader missing", [](const Instruction &e) { return e.all_gather().readers_size() > 1; },
           memberMissing},
          {"contributor missing",
           [](const Instruction &e) { return e.reduce_scatter().contributors_size() > 1; },
           memberMissing},
          {"device missing from the sums",
           [](const Instruction &e) { return e.all_reduce().members_size() > 1; }, memberMissing},
          {"contributor added",
           [](const Instruction &e) {
             return isReduceScatter(e) && !e.reduce_scatter().full().bytes();
           },
           addContributor},
          {"groups of two collectives exchanged", isOwned, swapGroups},
          {"buffers of two groups exchanged", isOwned, swapBuffers, 10},
          {"update with another group's gradients", argumentWhere(isUpdatedState), takeOtherState,
           20},
      });
  addRows(
      list, "extents",
      {
          {"border moved in one collective", hasOwners, [](Change &m) { return moveBorder(m, 0); }},
          {"border moved on one member", hasOwners, [](Change &m) { return moveBorder(m, 1); }},
          {"border moved everywhere but in updates", hasOwners,
           [](Change &m) { return moveBorder(m, 2); }},
          {"extents of two owners exchanged", hasOwners, swapOwners},
          {"owner missing", hasOwners, dropOwner},
          {"state shorter", nullptr, shortenState},
          {"norm misses part of a shard", taskIs(Compute::NORM), shrinkCall},
          {"update misses part of a shard", isUpdate, shrinkCall},
          {"norm of shifted elements", taskIs(Compute::NORM),
           [](Change &m) { return shiftCall(m, true); }},
          {"update of shifted elements", isUpdate, [](Change &m) { return shiftCall(m, true); }},
          {"one argument of an update shifted", isUpdate,
           [](Change &m) { return shiftCall(m, false); }},
      });
  addRows(list, "versions",
          {
              {"update too early", isUpdate, updateEarly},
              {"gather too late", isGather, gatherLate},
              {"gather after the updates", isGather, gatherLast},
              {"gather dropped", isGather, dropInstruction},
              {"reduction dropped",
               [](const Instruction &e) { return isReduceScatter(e) || e.has_all_reduce(); },
               dropInstruction},
              {"reduction before the last backward", isReduceScatter, reduceEarly},
              {"update dropped", isUpdate, dropInstruction},
              {"update doubled", isUpdate, doubleInstruction},
              {"update before the decision", isDecision,
               [](Change &m) { return swapWith(m, isUpdate); }},
              {"norm after the sum", addsToSums, moveToEnd},
              {"declared version changed",
               [](const Instruction &e) { return isGather(e) || isUpdate(e); }, declareNextVersion},
          });
}
