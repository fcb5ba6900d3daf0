// Ordering: what comes before what. Waits: what keeps it so.
#include "Edit.h"
#include "Mutations.h"

using namespace zorse;
using namespace zorse::test;

namespace {

bool moveSomewhere(Programs &p, Random &r, std::string &w, const std::function<bool(const Entry &)> &wanted) {
  Place place = pickEntry(p, r, wanted);
  if (!place)
    return false;
  const uint32_t id = entryAt(p, place).id();
  Place other = pickOther(p, r, place, [](const Entry &) { return true; });
  if (!other)
    return false;
  const uint32_t before = r() % 8 == 0 ? UINT32_MAX : entryAt(p, other).id();
  w = at(p, place) + (before == UINT32_MAX ? " to the end" : " before " + std::to_string(before));
  if (before == 0)
    return false;
  moveEntry(p, id, before);
  return true;
}

Place pickWaiting(const Programs &p, Random &r) {
  return pickEntry(p, r, [](const Entry &e) { return e.waits_size() > 0; });
}

/// A wait of a random entry.
bundle::Wait *pickWait(Programs &p, Random &r, std::string &w, Place &place) {
  place = pickWaiting(p, r);
  if (!place)
    return nullptr;
  w = at(p, place);
  auto *waits = entryAt(p, place).mutable_waits();
  return waits->Mutable(int(r() % uint32_t(waits->size())));
}

void addOrdering(MutationList &list) {
  auto add = [&](const char *name, decltype(Mutation::apply) apply) { list.push_back({"ordering", name, std::move(apply)}); };
  add("entries of a queue swapped", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_compute() || e.has_load_input() || e.has_copy(); });
    if (!place)
      return false;
    const uint32_t queue = entryAt(p, place).queue();
    Place other = pickOther(p, r, place, [&](const Entry &e) { return e.queue() == queue; });
    if (!other)
      return false;
    w = at(p, place) + " and " + at(p, other);
    swapPayload(entryAt(p, place), entryAt(p, other));
    return true;
  });
  add("compute moved in the list", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    return moveSomewhere(p, r, w, [](const Entry &e) { return e.has_compute() || e.has_copy(); });
  });
  add("transfer moved in the list", [](Programs &p, const RealCase &, Random &r, std::string &w) { return moveSomewhere(p, r, w, isTransfer); });
  add("collective moved in the list", [](Programs &p, const RealCase &, Random &r, std::string &w) { return moveSomewhere(p, r, w, isCollective); });
  add("load or report moved in the list", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    return moveSomewhere(p, r, w, [](const Entry &e) { return e.has_load_input() || e.has_load_scalars() || e.has_report(); });
  });
  add("transfers out of order", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    for (int attempt = 0; attempt < 20; ++attempt) {
      Place a = pickEntry(p, r, [](const Entry &e) { return e.has_send(); });
      if (!a)
        return false;
      uint32_t peer = entryAt(p, a).send().peer();
      Place b = pickOther(p, r, a, [&](const Entry &e) { return e.has_send() && e.send().peer() == peer; });
      if (!b)
        continue;
      w = at(p, a) + " and " + at(p, b);
      swapEverywhere(p, entryAt(p, a).id(), entryAt(p, b).id());
      return true;
    }
    return false;
  });
  add("forward and backward exchanged", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place forward = pickEntry(p, r, [](const Entry &e) { return isTask(e, Compute::F); });
    if (!forward)
      return false;
    Place backward = pickOther(p, r, forward, [](const Entry &e) { return isTask(e, Compute::B); });
    if (!backward)
      return false;
    w = at(p, forward) + " and " + at(p, backward);
    swapPayload(entryAt(p, forward), entryAt(p, backward));
    return true;
  });
  add("calls swapped", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_compute() && e.compute().calls_size() > 1; });
    if (!place)
      return false;
    auto *calls = entryAt(p, place).mutable_compute()->mutable_calls();
    int i = int(r() % uint32_t(calls->size() - 1));
    calls->SwapElements(i, i + 1);
    w = at(p, place);
    return true;
  });
  add("contributors in another order", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_reduce_scatter() && e.reduce_scatter().contributors_size() > 1; });
    if (!place)
      return false;
    w = at(p, place);
    const bool all = r() % 2;
    const uint32_t id = entryAt(p, place).id(), device = p[size_t(place.program)].device();
    forHalves(p, id, [&](bundle::Program &program, Entry &entry) {
      if (all || program.device() == device)
        entry.mutable_reduce_scatter()->mutable_contributors()->SwapElements(0, 1);
    });
    return true;
  });
}

void addWaits(MutationList &list) {
  auto add = [&](const char *name, decltype(Mutation::apply) apply) { list.push_back({"waits", name, std::move(apply)}); };
  add("wait dropped", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickWaiting(p, r);
    if (!place)
      return false;
    auto *waits = entryAt(p, place).mutable_waits();
    waits->DeleteSubrange(int(r() % uint32_t(waits->size())), 1);
    w = at(p, place);
    return true;
  });
  add("all waits of an entry dropped", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickWaiting(p, r);
    if (!place)
      return false;
    entryAt(p, place).clear_waits();
    w = at(p, place);
    return true;
  });
  add("all waits for a queue dropped", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place;
    auto *wait = pickWait(p, r, w, place);
    if (!wait)
      return false;
    const uint32_t queue = wait->queue(), own = entryAt(p, place).queue();
    for (auto &entry : *p[size_t(place.program)].mutable_entries())
      for (int i = entry.queue() == own ? entry.waits_size() - 1 : -1; i >= 0; --i)
        if (entry.waits(i).queue() == queue)
          entry.mutable_waits()->DeleteSubrange(i, 1);
    w = "device " + std::to_string(p[size_t(place.program)].device()) + " queue " + std::to_string(own) + " for " + std::to_string(queue);
    return true;
  });
  add("wait for an earlier entry", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place;
    auto *wait = pickWait(p, r, w, place);
    if (!wait || wait->position() == 0)
      return false;
    wait->set_position(r() % 2 ? wait->position() - 1 : uint32_t(r() % wait->position()));
    return true;
  });
  add("wait for a later entry", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place;
    auto *wait = pickWait(p, r, w, place);
    if (!wait)
      return false;
    uint32_t length = 0;
    for (const auto &entry : p[size_t(place.program)].entries())
      length += entry.queue() == wait->queue();
    if (wait->position() + 1 >= length)
      return false;
    wait->set_position(wait->position() + 1 + (r() % 2 ? 0 : uint32_t(r() % (length - wait->position() - 1))));
    return true;
  });
  add("wait for another queue", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place;
    auto *wait = pickWait(p, r, w, place);
    if (!wait)
      return false;
    uint32_t queue = uint32_t(r() % uint32_t(p[size_t(place.program)].queues_size()));
    if (queue == wait->queue())
      return false;
    wait->set_queue(queue);
    wait->set_position(0);
    return true;
  });
  add("wait of the wrong step", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place;
    auto *wait = pickWait(p, r, w, place);
    if (!wait)
      return false;
    wait->set_previous_step(!wait->previous_step());
    return true;
  });
  add("waits of two entries exchanged", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickWaiting(p, r);
    if (!place)
      return false;
    Place other = pickOther(p, r, place, [](const Entry &e) { return e.waits_size() > 0; });
    if (!other)
      return false;
    entryAt(p, place).mutable_waits()->Swap(entryAt(p, other).mutable_waits());
    w = at(p, place) + " and " + at(p, other);
    return true;
  });
  add("wait added for a later entry", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &) { return true; });
    auto &program = p[size_t(place.program)];
    if (place.entry + 1 >= program.entries_size())
      return false;
    int target = place.entry + 1 + int(r() % uint32_t(program.entries_size() - place.entry - 1));
    auto *wait = entryAt(p, place).add_waits();
    wait->set_queue(program.entries(target).queue());
    wait->set_position(positionOf(program, target));
    w = at(p, place);
    return true;
  });
  add("entry on another queue", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &) { return true; });
    auto &program = p[size_t(place.program)];
    uint32_t queue = uint32_t(r() % uint32_t(program.queues_size()));
    if (queue == program.entries(place.entry).queue())
      return false;
    Entry copy = program.entries(place.entry);
    w = at(p, place);
    eraseEntry(program, place.entry);
    copy.set_queue(queue);
    insertEntry(program, place.entry, copy);
    return true;
  });
}

} // namespace

void test::addOrderMutations(MutationList &list) {
  addOrdering(list);
  addWaits(list);
}
