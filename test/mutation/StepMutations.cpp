// The step boundary: programs whose first step is right, as state is loaded and arenas are fresh, and whose second is not; and what shows in
// evaluation only.
#include "Edit.h"
#include "Mutations.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::test;

namespace {

struct WaitPlace {
  Place place;
  int wait = -1;
};
/// A random wait for the step before.
WaitPlace pickPrevious(const Programs &p, Random &r) {
  WaitPlace chosen;
  size_t count = 0;
  for (size_t d = 0; d < p.size(); ++d)
    for (int e = 0; e < p[d].entries_size(); ++e)
      for (int i = 0; i < p[d].entries(e).waits_size(); ++i)
        if (p[d].entries(e).waits(i).previous_step() && r() % ++count == 0)
          chosen = {{int(d), e}, i};
  return chosen;
}

} // namespace

void test::addStepMutations(MutationList &list) {
  auto add = [&](const char *name, decltype(Mutation::apply) apply) { list.push_back({"step boundary", name, std::move(apply)}); };
  add("wait for the step before dropped", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    WaitPlace place = pickPrevious(p, r);
    if (place.wait < 0)
      return false;
    entryAt(p, place.place).mutable_waits()->DeleteSubrange(place.wait, 1);
    w = at(p, place.place);
    return true;
  });
  add("wait for an earlier entry of the step before", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    WaitPlace place = pickPrevious(p, r);
    if (place.wait < 0)
      return false;
    auto *wait = entryAt(p, place.place).mutable_waits(place.wait);
    if (wait->position() == 0)
      return false;
    wait->set_position(r() % 2 ? wait->position() - 1 : uint32_t(r() % wait->position()));
    w = at(p, place.place);
    return true;
  });
  add("no waits for the step before on a device", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    WaitPlace place = pickPrevious(p, r);
    if (place.wait < 0)
      return false;
    auto &program = p[size_t(place.place.program)];
    for (auto &entry : *program.mutable_entries())
      for (int i = entry.waits_size() - 1; i >= 0; --i)
        if (entry.waits(i).previous_step())
          entry.mutable_waits()->DeleteSubrange(i, 1);
    w = "device " + std::to_string(program.device());
    return true;
  });
  add("parameters loaded once instead of gathered", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_all_gather(); });
    if (!place)
      return false;
    w = at(p, place);
    const uint32_t id = entryAt(p, place).id();
    const bool owned = r() % 2; // also elements the device owns, or only those that it would receive
    for (auto &program : p)
      for (const auto &entry : program.entries())
        if (entry.id() == id && entry.all_gather().full().bytes()) {
          const auto &gather = entry.all_gather();
          auto keep = [&](int64_t begin, int64_t end) {
            if (begin >= end)
              return;
            auto *state = program.add_state();
            state->set_type(o.model.summary.groups(int(gather.group())).type());
            *state->mutable_value() = gather.value();
            state->mutable_value()->set_begin(begin);
            state->mutable_value()->set_end(end);
            *state->mutable_region() = gather.full();
            state->mutable_region()->set_offset(gather.full().offset() + uint64_t(begin) * 4);
            state->mutable_region()->set_bytes(uint64_t(end - begin) * 4);
          };
          int64_t begin = 0, end = 0;
          for (int i = 0; i < gather.shards().members_size(); ++i)
            if (gather.shards().members(i) == program.device()) {
              begin = gather.shards().begin(i);
              end = gather.shards().end(i);
            }
          if (owned || begin >= end) {
            keep(0, gather.value().end());
          } else {
            keep(0, begin);
            keep(end, gather.value().end());
          }
        }
    eraseId(p, id);
    return true;
  });
  add("update of a copy of the state", [](Programs &p, const RealCase &o, Random &r, std::string &w) { // what is read next is what was loaded
    SlotPlace s = pickSlot(p, o.model.bodies, r, [](const Entry &e, const bundle::Call &, const bundle::Slot &slot) {
      return isTask(e, Compute::UPDATE_GROUP) && slot.kind() == bundle::STATE && slot.index() == 0;
    });
    if (!s)
      return false;
    auto &program = p[size_t(s.place.program)];
    auto &slot = slotAt(p, s);
    auto *state = program.add_state();
    state->set_type(o.model.summary.groups(int(slot.value().id())).type());
    *state->mutable_value() = slot.value();
    slot.mutable_region()->set_offset(freshBytes(program, slot.region().arena(), slot.region().bytes()));
    *state->mutable_region() = slot.region();
    w = at(p, s.place);
    return true;
  });
  add("scalars loaded late", [](Programs &p, const RealCase &, Random &r, std::string &w) { // what comes before reads the last step's
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_load_scalars(); });
    if (!place)
      return false;
    const uint32_t id = entryAt(p, place).id();
    Place other = pickOther(p, r, place, [&](const Entry &e) { return e.id() > id; });
    if (!other)
      return false;
    w = at(p, place) + " before " + at(p, other);
    moveEntry(p, id, entryAt(p, other).id());
    return true;
  });
  add("accumulator of the step before", [](Programs &p, const RealCase &o, Random &r, std::string &w) { // no contribution starts it afresh
    SlotPlace s = pickSlot(p, o.model.bodies, r,
                           [](const Entry &, const bundle::Call &, const bundle::Slot &slot) { return slot.mode() == bundle::ACCUMULATE; });
    if (!s)
      return false;
    const auto value = slotAt(p, s).value();
    bool changed = false;
    for (auto &entry : *p[size_t(s.place.program)].mutable_entries()) {
      if (!entry.has_compute())
        continue;
      for (auto &call : *entry.mutable_compute()->mutable_calls())
        for (auto &slot : *call.mutable_slots())
          if (slot.overwrite() && slot.value().kind() == value.kind() && slot.value().id() == value.id()) {
            slot.set_overwrite(false);
            changed = true;
          }
    }
    w = at(p, s.place);
    return changed;
  });
  add("first entry moved to the end", [](Programs &p, const RealCase &, Random &r, std::string &w) { // of the step, so that it serves the next
    Place place = pickEntry(p, r, [](const Entry &e) { return e.phase() == bundle::LOAD || e.phase() == bundle::GATHER; });
    if (!place)
      return false;
    w = at(p, place);
    moveEntry(p, entryAt(p, place).id(), UINT32_MAX);
    return true;
  });
  add("last entry moved to the front", [](Programs &p, const RealCase &, Random &r, std::string &w) { // so that it serves the step before
    Place place = pickEntry(p, r, [](const Entry &e) { return e.phase() >= bundle::COMMIT; });
    Place first = pickEntry(p, r, [](const Entry &e) { return e.phase() <= bundle::FORWARD && e.id() > 0; });
    if (!place || !first)
      return false;
    w = at(p, place) + " before " + at(p, first);
    moveEntry(p, entryAt(p, place).id(), entryAt(p, first).id());
    return true;
  });
  add("wrong phase", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &) { return true; });
    auto phase = bundle::Phase(1 + r() % 8);
    if (!place || phase == entryAt(p, place).phase())
      return false;
    w = at(p, place);
    forHalves(p, entryAt(p, place).id(), [&](bundle::Program &, Entry &e) { e.set_phase(phase); });
    return true;
  });
  add("left out of evaluation", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return e.phase() <= bundle::FORWARD || e.phase() == bundle::REPORT; });
    if (!place)
      return false;
    w = at(p, place);
    forHalves(p, entryAt(p, place).id(), [&](bundle::Program &, Entry &e) { e.set_phase(bundle::BACKWARD); });
    return true;
  });
  add("done in evaluation, too", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return e.phase() > bundle::FORWARD && e.phase() != bundle::REPORT; });
    if (!place)
      return false;
    w = at(p, place);
    const auto phase = r() % 2 ? bundle::REPORT : bundle::FORWARD;
    forHalves(p, entryAt(p, place).id(), [&](bundle::Program &, Entry &e) { e.set_phase(phase); });
    return true;
  });
}
