// Matching: the halves of a transfer and the members of a collective.
#include "Edit.h"
#include "Mutations.h"

using namespace zorse;
using namespace zorse::test;

namespace {

bundle::Region *regionOf(Entry &entry) {
  return entry.has_send() ? entry.mutable_send()->mutable_region() : entry.mutable_receive()->mutable_region();
}
bundle::Value *valueOf(Entry &entry) { return entry.has_send() ? entry.mutable_send()->mutable_value() : entry.mutable_receive()->mutable_value(); }

bool swapRegions(Programs &p, Random &r, std::string &w, bool sends) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    auto wanted = [&](const Entry &e) { return sends ? e.has_send() : e.has_receive(); };
    Place a = pickEntry(p, r, wanted);
    if (!a)
      return false;
    Place b = pickOther(p, r, a, wanted);
    if (!b)
      continue;
    auto *x = regionOf(entryAt(p, a)), *y = regionOf(entryAt(p, b));
    if (x->bytes() != y->bytes() || x->offset() == y->offset())
      continue;
    x->Swap(y);
    w = at(p, a) + " and " + at(p, b);
    return true;
  }
  return false;
}

} // namespace

void test::addMatchMutations(MutationList &list) {
  auto add = [&](const char *name, decltype(Mutation::apply) apply) { list.push_back({"matching", name, std::move(apply)}); };
  auto isSend = [](const Entry &e) { return e.has_send(); };
  add("equal sends swapped", [](Programs &p, const RealCase &, Random &r, std::string &w) { return swapRegions(p, r, w, true); });
  add("equal receives swapped", [](Programs &p, const RealCase &, Random &r, std::string &w) { return swapRegions(p, r, w, false); });
  add("transfer dropped", [=](Programs &p, const RealCase &, Random &r, std::string &w) { return dropEntry(p, r, w, isSend); });
  add("transfer doubled", [=](Programs &p, const RealCase &, Random &r, std::string &w) { return doubleEntry(p, r, w, isSend); });
  add("half of a transfer dropped", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, isTransfer);
    if (!place)
      return false;
    w = at(p, place);
    eraseEntry(p[size_t(place.program)], place.entry);
    return true;
  });
  add("wrong peer", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, isTransfer);
    if (!place || p.size() < 3)
      return false;
    auto &entry = entryAt(p, place);
    uint32_t peer = uint32_t(r() % p.size());
    w = at(p, place);
    uint32_t old = entry.has_send() ? entry.send().peer() : entry.receive().peer();
    entry.has_send() ? entry.mutable_send()->set_peer(peer) : entry.mutable_receive()->set_peer(peer);
    return peer != old;
  });
  add("transfer to another device", [=](Programs &p, const RealCase &, Random &r, std::string &w) { // its receive moves there, too
    Place place = pickEntry(p, r, isSend);
    if (!place || p.size() < 3)
      return false;
    const uint32_t id = entryAt(p, place).id(), old = entryAt(p, place).send().peer();
    size_t target = r() % p.size();
    if (p[target].device() == old || int(target) == place.program || p[target].queues_size() == 0 || p[target].arenas_size() == 0)
      return false;
    w = at(p, place) + " to " + std::to_string(p[target].device());
    Entry half;
    for (auto &program : p)
      if (program.device() == old)
        for (int e = program.entries_size() - 1; e >= 0; --e)
          if (program.entries(e).id() == id) {
            half = program.entries(e);
            eraseEntry(program, e);
          }
    entryAt(p, place).mutable_send()->set_peer(p[target].device());
    half.clear_waits();
    half.set_queue(half.queue() % uint32_t(p[target].queues_size()));
    half.mutable_receive()->mutable_region()->set_offset(freshBytes(p[target], 0, half.receive().region().bytes()));
    int at = 0;
    while (at < p[target].entries_size() && p[target].entries(at).id() < id)
      ++at;
    insertEntry(p[target], at, half);
    return true;
  });
  add("transfer turned around", [=](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, isSend);
    if (!place)
      return false;
    w = at(p, place);
    forHalves(p, entryAt(p, place).id(), [](bundle::Program &, Entry &entry) {
      if (entry.has_send()) {
        bundle::Send half = entry.send();
        entry.mutable_receive()->set_peer(half.peer());
        *entry.mutable_receive()->mutable_region() = half.region();
        *entry.mutable_receive()->mutable_value() = half.value();
      } else {
        bundle::Receive half = entry.receive();
        entry.mutable_send()->set_peer(half.peer());
        *entry.mutable_send()->mutable_region() = half.region();
        *entry.mutable_send()->mutable_value() = half.value();
      }
    });
    return true;
  });
  add("transfers exchanged at one end", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place a = pickEntry(p, r, isTransfer);
    if (!a)
      return false;
    const bool send = entryAt(p, a).has_send();
    Place b = pickOther(p, r, a, [&](const Entry &e) { return send ? e.has_send() : e.has_receive(); });
    if (!b)
      return false;
    w = at(p, a) + " and " + at(p, b);
    swapPayload(entryAt(p, a), entryAt(p, b));
    return true;
  });
  add("id of one half changed", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return isTransfer(e) || isCollective(e); });
    if (!place)
      return false;
    w = at(p, place);
    spreadIds(p);
    entryAt(p, place).set_id(entryAt(p, place).id() + 1);
    return true;
  });
  add("phase of one half changed", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return isTransfer(e) || isCollective(e); });
    if (!place)
      return false;
    w = at(p, place);
    auto phase = bundle::Phase(1 + r() % 8);
    if (phase == entryAt(p, place).phase())
      return false;
    entryAt(p, place).set_phase(phase);
    return true;
  });
  add("value of one half changed", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    Place place = pickEntry(p, r, isTransfer);
    if (!place)
      return false;
    w = at(p, place);
    auto &value = *valueOf(entryAt(p, place));
    switch (r() % 3) {
    case 0:
      value.set_id((value.id() + 1) % uint32_t(o.model.summary.values_size()));
      return o.model.summary.values_size() > 1;
    case 1:
      value.set_begin(value.begin() + 1);
      value.set_end(value.end() + 1);
      return true;
    default:
      value.set_cut(value.cut() + 1);
      return true;
    }
  });
  add("collective dropped", [](Programs &p, const RealCase &, Random &r, std::string &w) { return dropEntry(p, r, w, isCollective); });
  add("collective doubled", [](Programs &p, const RealCase &, Random &r, std::string &w) { return doubleEntry(p, r, w, isCollective); });
  add("member's half dropped", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, isCollective);
    if (!place)
      return false;
    w = at(p, place);
    eraseEntry(p[size_t(place.program)], place.entry);
    return true;
  });
  add("members disagree about the order of summation", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_reduce_scatter() || e.has_all_reduce(); });
    if (!place)
      return false;
    w = at(p, place);
    auto &entry = entryAt(p, place);
    entry.has_all_reduce() ? entry.mutable_all_reduce()->set_order(bundle::TRANSPORT) : entry.mutable_reduce_scatter()->set_order(bundle::TRANSPORT);
    return true;
  });
}
