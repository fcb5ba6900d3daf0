// Mutations of order (which instruction precedes which) and of the waits that enforce it.
#include "Change.h"

using namespace zorse;
using namespace zorse::test;

namespace {

bool moveSomewhere(Change &m) {
  const uint32_t id = m.instruction().id();
  Place other = pickOther(m.programs, m.random, m.place, isAny);
  if (!other)
    return false;
  const uint32_t before = m.draw(8) == 0 ? UINT32_MAX : instructionAt(m.programs, other).id();
  m.what += before == UINT32_MAX ? " to the end" : " before " + std::to_string(before);
  if (before == 0)
    return false;
  moveInstruction(m.programs, id, before);
  return true;
}

bool swapInQueue(Change &m) {
  const uint32_t queue = m.instruction().queue();
  return swapWith(m, [&](const Instruction &e) { return e.queue() == queue; });
}

bool swapTransfers(Change &m) {
  const uint32_t peer = m.instruction().send().peer();
  Instruction *other =
      m.other([&](const Instruction &e) { return e.has_send() && e.send().peer() == peer; });
  if (!other)
    return false;
  swapEverywhere(m.programs, m.instruction().id(), other->id());
  return true;
}

bool swapCalls(Change &m) {
  auto *calls = m.compute().mutable_calls();
  int i = m.draw(calls->size() - 1);
  calls->SwapElements(i, i + 1);
  return true;
}

bool swapContributors(Change &m) {
  const bool all = m.coin();
  const uint32_t device = m.program().device();
  const int other = 1 + m.draw(m.instruction().reduce_scatter().contributors_size() - 1);
  m.halves([&](bundle::Program &program, Instruction &instruction) {
    if (all || program.device() == device)
      instruction.mutable_reduce_scatter()->mutable_contributors()->SwapElements(0, other);
  });
  return true;
}

bool swapMembers(Change &m) {
  const int last = m.instruction().all_reduce().members_size() - 1, other = m.draw(last);
  m.halves([&](bundle::Program &, Instruction &instruction) {
    instruction.mutable_all_reduce()->mutable_members()->SwapElements(other, last);
  });
  return true;
}

bundle::Wait &drawWait(Change &m) {
  return *m.instruction().mutable_waits(m.draw(m.instruction().waits_size()));
}

bool dropWait(Change &m) {
  auto *waits = m.instruction().mutable_waits();
  waits->DeleteSubrange(m.draw(waits->size()), 1);
  return true;
}

bool dropWaitsForQueue(Change &m) {
  const uint32_t queue = drawWait(m).queue(), own = m.instruction().queue();
  for (auto &instruction : *m.program().mutable_instructions())
    for (int i = instruction.queue() == own ? instruction.waits_size() - 1 : -1; i >= 0; --i)
      if (instruction.waits(i).queue() == queue)
        instruction.mutable_waits()->DeleteSubrange(i, 1);
  m.what = "device " + std::to_string(m.program().device()) + " queue " + std::to_string(own) +
           " for " + std::to_string(queue);
  return true;
}

bool waitLater(Change &m) {
  auto &wait = drawWait(m);
  uint32_t length = 0;
  for (const auto &instruction : m.program().instructions())
    length += instruction.queue() == wait.queue();
  if (wait.position() + 1 >= length)
    return false;
  wait.set_position(wait.position() + 1 + (m.coin() ? 0 : m.draw(length - wait.position() - 1)));
  return true;
}

bool waitForQueue(Change &m) {
  auto &wait = drawWait(m);
  const auto queue = uint32_t(m.draw(m.program().queues_size()));
  if (queue == wait.queue())
    return false;
  wait.set_queue(queue);
  wait.set_position(0);
  return true;
}

bool waitForStep(Change &m) {
  auto &wait = drawWait(m);
  wait.set_previous_step(!wait.previous_step());
  return true;
}

bool swapWaits(Change &m) {
  Instruction *other = m.other(hasWaits);
  if (!other)
    return false;
  m.instruction().mutable_waits()->Swap(other->mutable_waits());
  return true;
}

bool addWaitForLater(Change &m) {
  auto &program = m.program();
  if (m.place.instruction + 1 >= program.instructions_size())
    return false;
  int target = m.place.instruction + 1 +
               m.draw(program.instructions_size() - m.place.instruction - 1);
  auto *wait = m.instruction().add_waits();
  wait->set_queue(program.instructions(target).queue());
  wait->set_position(positionOf(program, target));
  return true;
}

} // namespace

void test::addOrderMutations(MutationList &list) {
  addRows(list, "ordering",
          {
              {"instructions of a queue swapped",
               [](const Instruction &e) {
                 return e.has_compute() || e.has_load_input() || e.has_copy();
               },
               swapInQueue},
              {"compute moved in the list",
               [](const Instruction &e) { return e.has_compute() || e.has_copy(); }, moveSomewhere},
              {"transfer moved in the list", isTransfer, moveSomewhere},
              {"collective moved in the list", isCollective, moveSomewhere},
              {"load or report moved in the list",
               [](const Instruction &e) { return isLoad(e) || isReport(e); }, moveSomewhere},
              {"transfers out of order", isSend, swapTransfers, 20},
              {"forward and backward exchanged", taskIs(Compute::F),
               [](Change &m) { return swapWith(m, isB); }},
              {"calls swapped", hasCalls, swapCalls},
              {"contributors in another order",
               [](const Instruction &e) {
                 return e.has_reduce_scatter() && e.reduce_scatter().contributors_size() > 1;
               },
               swapContributors},
              {"members of a sum in another order",
               [](const Instruction &e) {
                 return e.has_all_reduce() && e.all_reduce().members_size() > 1;
               },
               swapMembers},
          });
  addRows(list, "waits",
          {
              {"wait dropped", hasWaits, dropWait},
              {"all waits of an instruction dropped", hasWaits, dropWaits},
              {"all waits for a queue dropped", hasWaits, dropWaitsForQueue},
              {"wait for an earlier instruction", hasWaits,
               [](Change &m) { return waitEarlier(m, drawWait(m)); }},
              {"wait for a later instruction", hasWaits, waitLater},
              {"wait for another queue", hasWaits, waitForQueue},
              {"wait of the wrong step", hasWaits, waitForStep},
              {"waits of two instructions exchanged", hasWaits, swapWaits},
              {"wait added for a later instruction", isAny, addWaitForLater},
              {"instruction on another queue", isAny, anotherQueue},
          });
}
