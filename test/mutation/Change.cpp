#include "Change.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::test;

bundle::Region *Change::regionOf(bundle::ArgumentKind kind, int index) const {
  auto &first = *compute().mutable_calls(0);
  const auto &function = original.model.functions.functions(int(first.function()));
  for (int s = 0; s < function.arguments_size(); ++s)
    if (function.arguments(s).kind() == kind &&
        (index < 0 || int(function.arguments(s).index()) == index))
      return EditedArgument(program(), first, s).mutable_region();
  return nullptr;
}

bundle::Program &Change::drawProgram() const {
  auto &program = programs[draw(programs.size())];
  what = "device " + std::to_string(program.device());
  return program;
}

bool Change::pick(const Pick &pick) {
  place = pick.find(*this);
  if (!place)
    return false;
  what = at(programs, place);
  return true;
}

Instruction *Change::other(const Wanted &wanted, const char *word) const {
  Place found = pickOther(programs, random, place, wanted);
  if (!found)
    return nullptr;
  what += word + at(programs, found);
  return &instructionAt(programs, found);
}

Pick test::argumentWhere(ArgumentWanted wanted) {
  return [wanted = std::move(wanted)](Change &m) {
    ArgumentPlace found = pickArgument(m.programs, m.original.model.functions, m.random, wanted);
    m.call = found.call;
    m.argument = found.argument;
    return found.place;
  };
}

Pick test::argumentOf(const std::vector<bundle::ArgumentKind> &kinds) {
  return argumentWhere(ofKinds(kinds));
}

void test::addRows(MutationList &list, const char *fault, const std::vector<Row> &rows) {
  for (const Row &row : rows)
    list.push_back(
        {fault, row.name,
         [row](Programs &programs, const RealCase &original, Random &random, std::string &what) {
           for (int attempt = 0; attempt < row.attempts; ++attempt) {
             Change change{programs, original, random, what};
             if (row.pick.find && !change.pick(row.pick))
               return false;
             if (row.edit(change))
               return true;
           }
           return false;
         }});
}

bool test::dropInstruction(Change &m) {
  eraseId(m.programs, m.instruction().id());
  return true;
}

bool test::doubleInstruction(Change &m) {
  spreadIds(m.programs);
  repeatInstruction(m.programs, m.instruction().id());
  return true;
}

bool test::dropHalf(Change &m) {
  eraseInstruction(m.program(), m.place.instruction);
  return true;
}

bool test::dropWaits(Change &m) {
  if (m.instruction().waits_size() == 0)
    return false;
  m.instruction().clear_waits();
  return true;
}

bool test::dropCall(Change &m) {
  auto *calls = m.compute().mutable_calls();
  calls->DeleteSubrange(m.draw(calls->size()), 1);
  return true;
}

bool test::moveToEnd(Change &m) {
  moveInstruction(m.programs, m.instruction().id(), UINT32_MAX);
  return true;
}

bool test::moveAnywhere(Change &m) {
  const uint32_t before = m.program().instructions(m.draw(m.program().instructions_size())).id();
  m.what += " before instruction " + std::to_string(before);
  moveInstruction(m.programs, m.instruction().id(), before);
  return true;
}

bool test::anotherQueue(Change &m) {
  Instruction moved = m.instruction();
  moved.set_queue(uint32_t(m.draw(m.program().queues_size())));
  if (moved.queue() == m.instruction().queue())
    return false;
  eraseInstruction(m.program(), m.place.instruction);
  insertInstruction(m.program(), m.place.instruction, moved);
  return true;
}

bool test::waitEarlier(Change &m, bundle::Wait &wait) {
  if (wait.position() == 0)
    return false;
  wait.set_position(m.coin() ? wait.position() - 1 : m.draw(wait.position()));
  return true;
}

bool test::freshRegion(Change &m) {
  auto &region = *m.binding().mutable_region();
  region.set_offset(freshBytes(m.program(), region.arena(), region.bytes()));
  return true;
}

bool test::swapWith(Change &m, const Wanted &wanted) {
  Instruction *other = m.other(wanted);
  if (!other)
    return false;
  swapPayload(m.instruction(), *other);
  return true;
}

std::optional<EditedArgument> test::otherArgument(Change &m, const ArgumentWanted &wanted,
                                                  const char *word) {
  ArgumentPlace found =
      pickArgument(m.programs, m.original.model.functions, m.random, wanted, m.place.program);
  EditedArgument argument = argumentAt(m.programs, found);
  const auto &own = m.binding().region();
  if (own.bytes() != argument.region().bytes() || own.offset() == argument.region().offset())
    return {};
  m.what += word + at(m.programs, found.place);
  return argument;
}

Row test::swapArguments(const char *name, const ArgumentWanted &wanted) {
  return {name, argumentWhere(wanted),
          [wanted](Change &m) {
            auto other = otherArgument(m, wanted);
            if (!other)
              return false;
            m.binding().mutable_region()->Swap(other->mutable_region());
            return true;
          },
          40};
}
