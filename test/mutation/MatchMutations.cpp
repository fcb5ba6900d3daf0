// Mutations of the match between the halves of a transfer and between the members of a collective.
#include "Change.h"

using namespace zorse;
using namespace zorse::test;

namespace {

bool isHalf(const Instruction &e) { return isTransfer(e) || isCollective(e); }

bool swapRegions(Change &m) {
  Instruction *other = m.other(m.instruction().has_send() ? isSend : isReceive);
  if (!other)
    return false;
  auto &x = regionOf(m.instruction()), &y = regionOf(*other);
  if (x.bytes() != y.bytes() || x.offset() == y.offset())
    return false;
  x.Swap(&y);
  return true;
}

bool wrongPeer(Change &m) {
  if (m.programs.size() < 3)
    return false;
  auto &instruction = m.instruction();
  const auto peer = uint32_t(m.draw(m.programs.size()));
  const uint32_t old = instruction.has_send() ? instruction.send().peer()
                                              : instruction.receive().peer();
  instruction.has_send() ? instruction.mutable_send()->set_peer(peer)
                         : instruction.mutable_receive()->set_peer(peer);
  return peer != old;
}

/// Also moves the receive to that device.
bool sendElsewhere(Change &m) {
  if (m.programs.size() < 3)
    return false;
  const uint32_t id = m.instruction().id(), old = m.instruction().send().peer();
  const size_t chosen = m.draw(m.programs.size());
  auto &target = m.programs[chosen];
  if (target.device() == old || int(chosen) == m.place.program || target.queues_size() == 0 ||
      target.arenas_size() == 0)
    return false;
  m.what += " to " + std::to_string(target.device());
  Instruction half;
  for (auto &program : m.programs)
    if (program.device() == old)
      for (int e = program.instructions_size() - 1; e >= 0; --e)
        if (program.instructions(e).id() == id) {
          half = program.instructions(e);
          eraseInstruction(program, e);
        }
  m.instruction().mutable_send()->set_peer(target.device());
  half.mutable_receive()->mutable_region()->set_offset(
      freshBytes(target, 0, half.receive().region().bytes()));
  insertById(target, half);
  return true;
}

template <typename Other, typename Half> Other turned(const Half &half) {
  Other other;
  other.set_peer(half.peer());
  *other.mutable_region() = half.region();
  *other.mutable_value() = half.value();
  return other;
}

bool turnAround(Change &m) {
  m.halves([](bundle::Program &, Instruction &instruction) {
    if (instruction.has_send()) {
      const auto receive = turned<bundle::Receive>(instruction.send());
      *instruction.mutable_receive() = receive;
    } else {
      const auto send = turned<bundle::Send>(instruction.receive());
      *instruction.mutable_send() = send;
    }
  });
  return true;
}

bool changeId(Change &m) {
  spreadIds(m.programs);
  m.instruction().set_id(m.instruction().id() + 1);
  return true;
}

bool changePhase(Change &m) {
  const auto phase = bundle::Phase(1 + m.draw(8));
  if (phase == m.instruction().phase())
    return false;
  m.instruction().set_phase(phase);
  return true;
}

bool changeValue(Change &m) {
  auto &value = valueOf(m.instruction());
  const int values = m.original.model.summary.values_size();
  switch (m.draw(3)) {
  case 0:
    value.set_id((value.id() + 1) % uint32_t(values));
    return values > 1;
  case 1:
    value.set_begin(value.begin() + 1);
    value.set_end(value.end() + 1);
    return true;
  default:
    value.set_cut(value.cut() + 1);
    return true;
  }
}

bool changeOrder(Change &m) {
  auto &instruction = m.instruction();
  instruction.has_all_reduce()
      ? instruction.mutable_all_reduce()->set_order(bundle::ORDER_UNSPECIFIED)
      : instruction.mutable_reduce_scatter()->set_order(bundle::ORDER_UNSPECIFIED);
  return true;
}

} // namespace

void test::addMatchMutations(MutationList &list) {
  addRows(
      list, "matching",
      {
          {"equal sends swapped", isSend, swapRegions, 20},
          {"equal receives swapped", isReceive, swapRegions, 20},
          {"transfer dropped", isSend, dropInstruction},
          {"transfer doubled", isSend, doubleInstruction},
          {"half of a transfer dropped", isTransfer, dropHalf},
          {"wrong peer", isTransfer, wrongPeer},
          {"transfer to another device", isSend, sendElsewhere},
          {"transfer turned around", isSend, turnAround},
          {"transfers exchanged at one end", isTransfer,
           [](Change &m) { return swapWith(m, m.instruction().has_send() ? isSend : isReceive); }},
          {"id of one half changed", isHalf, changeId},
          {"phase of one half changed", isHalf, changePhase},
          {"value of one half changed", isTransfer, changeValue},
          {"collective dropped", isCollective, dropInstruction},
          {"collective doubled", isCollective, doubleInstruction},
          {"member's half dropped", isCollective, dropHalf},
          {"members disagree about the order of summation",
           [](const Instruction &e) { return e.has_reduce_scatter() || e.has_all_reduce(); },
           changeOrder},
      });
}
