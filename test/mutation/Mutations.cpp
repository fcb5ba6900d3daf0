#include "Mutations.h"

#include "Edit.h"

#include <algorithm>
#include <map>

using namespace zorse;
using namespace zorse::test;

namespace {

using Entry = bundle::Entry;
using Compute = bundle::Compute;
using Random = std::mt19937;

std::string at(const Programs &programs, Place place) { return "device " + std::to_string(programs[place.program].device()) + " entry " + std::to_string(programs[place.program].entries(place.entry).id()); }
Entry &entryAt(Programs &programs, Place place) { return *programs[place.program].mutable_entries(place.entry); }

bool isTask(const Entry &entry, Compute::Task task) { return entry.has_compute() && entry.compute().task() == task; }
bool isCollective(const Entry &entry) { return entry.has_all_gather() || entry.has_reduce_scatter() || entry.has_all_reduce(); }

/// A random slot binding of the chosen kinds.
struct SlotPlace {
  Place place;
  int call = -1, slot = -1;
};
template <typename Wanted> SlotPlace pickSlot(const Programs &programs, const RealCase &original, Random &random, Wanted wanted) {
  SlotPlace chosen;
  size_t count = 0;
  for (size_t p = 0; p < programs.size(); ++p)
    for (int e = 0; e < programs[p].entries_size(); ++e)
      for (int c = 0; c < programs[p].entries(e).compute().calls_size(); ++c) {
        const auto &call = programs[p].entries(e).compute().calls(c);
        for (int s = 0; s < call.slots_size(); ++s)
          if (call.slots(s).region().bytes() && wanted(programs[p].entries(e), call, original.model.bodies.bodies(int(call.body())).slots(s)) && random() % ++count == 0)
            chosen = {{int(p), e}, c, s};
      }
  return chosen;
}
bundle::SlotBinding &slotAt(Programs &programs, const SlotPlace &p) { return *entryAt(programs, p.place).mutable_compute()->mutable_calls(p.call)->mutable_slots(p.slot); }

bool swapRegions(Programs &programs, Random &random, std::string &what, bool sends) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    auto wanted = [&](const Entry &e) { return sends ? e.has_send() : e.has_receive(); };
    Place a = pickEntry(programs, random, wanted), b = pickEntry(programs, random, wanted);
    if (!a || a.program != b.program || a.entry == b.entry)
      continue;
    auto *x = sends ? entryAt(programs, a).mutable_send()->mutable_region() : entryAt(programs, a).mutable_receive()->mutable_region();
    auto *y = sends ? entryAt(programs, b).mutable_send()->mutable_region() : entryAt(programs, b).mutable_receive()->mutable_region();
    if (x->bytes() != y->bytes() || x->offset() == y->offset())
      continue;
    x->Swap(y);
    what = at(programs, a) + " and " + at(programs, b);
    return true;
  }
  return false;
}

bool moveRegion(bundle::Program &program, bundle::Region &region, Random &random, std::string &what, bool onLive) {
  uint64_t size = program.arenas(int(region.arena())).bytes(), old = region.offset();
  if (onLive) {
    std::vector<uint64_t> offsets;
    for (auto *other : regionsOf(program))
      if (other->arena() == region.arena() && other->offset() != region.offset() && other->offset() + region.bytes() <= size)
        offsets.push_back(other->offset());
    if (offsets.empty())
      return false;
    region.set_offset(offsets[random() % offsets.size()]);
  } else {
    uint64_t step = 64 * (1 + random() % 2);
    if (random() % 2 && region.offset() >= step)
      region.set_offset(region.offset() - step);
    else if (region.offset() + region.bytes() + step <= size)
      region.set_offset(region.offset() + step);
    else
      return false;
  }
  what = "device " + std::to_string(program.device()) + ": bytes " + std::to_string(old) + " become " + std::to_string(region.offset());
  return region.offset() != old;
}

bool dropTask(Programs &programs, Random &random, std::string &what, const std::function<bool(const Entry &)> &wanted) {
  Place place = pickEntry(programs, random, wanted);
  if (!place)
    return false;
  what = at(programs, place);
  eraseId(programs, entryAt(programs, place).id());
  return true;
}

bool repeatTask(Programs &programs, Random &random, std::string &what, const std::function<bool(const Entry &)> &wanted) {
  Place place = pickEntry(programs, random, wanted);
  if (!place)
    return false;
  what = at(programs, place);
  spreadIds(programs);
  repeatEntry(programs, entryAt(programs, place).id());
  return true;
}

template <typename F> void forHalves(Programs &programs, uint32_t id, F f) {
  for (auto &program : programs)
    for (auto &entry : *program.mutable_entries())
      if (entry.id() == id)
        f(program, entry);
}

bool wrongRows(Programs &programs, const RealCase &original, Random &random, std::string &what) {
  Place place = pickEntry(programs, random, [](const Entry &e) { return isTask(e, Compute::F) || isTask(e, Compute::B); });
  if (!place)
    return false;
  auto &compute = *entryAt(programs, place).mutable_compute();
  auto &call = *compute.mutable_calls(int(random() % uint32_t(compute.calls_size())));
  int64_t base = call.sample_base();
  if (random() % 3 == 0) { // fewer or more rows over the same buffers
    call.set_rows(call.rows() > 1 && random() % 2 ? call.rows() - 1 : call.rows() + 1);
  } else { // the samples of another micro-batch
    call.set_sample_base(int64_t(random() % uint64_t(original.plan.batch)));
    if (random() % 2)
      for (auto &other : *compute.mutable_calls())
        other.set_sample_base(call.sample_base());
  }
  what = at(programs, place);
  return call.sample_base() != base || call.rows() != original.programs[place.program].entries(place.entry).compute().calls(0).rows();
}

bool wrongExtents(Programs &programs, const RealCase &original, Random &random, std::string &what) {
  Place place = pickEntry(programs, random, [](const Entry &e) { return (e.has_all_gather() && e.all_gather().shards().members_size() > 1) || (e.has_reduce_scatter() && e.reduce_scatter().shards().members_size() > 1); });
  if (!place)
    return false;
  uint32_t id = entryAt(programs, place).id();
  int64_t step = 64 * int64_t(1 + random() % 2) * (random() % 2 ? 1 : -1);
  int which = -1;
  bool good = true;
  what = at(programs, place) + " by " + std::to_string(step) + " elements";
  forHalves(programs, id, [&](bundle::Program &program, Entry &entry) {
    auto *shards = entry.has_all_gather() ? entry.mutable_all_gather()->mutable_shards() : entry.mutable_reduce_scatter()->mutable_shards();
    auto *shard = entry.has_all_gather() ? entry.mutable_all_gather()->mutable_shard() : entry.mutable_reduce_scatter()->mutable_shard();
    if (which < 0)
      which = int(random() % uint32_t(shards->members_size() - 1));
    if (which + 1 >= shards->members_size() || shards->end(which) + step <= shards->begin(which) || shards->begin(which + 1) + step >= shards->end(which + 1) || shards->end(which) != shards->begin(which + 1)) {
      good = false;
      return;
    }
    if (shards->members(which) == program.device() && shard->bytes())
      shard->set_bytes(uint64_t(int64_t(shard->bytes()) + step * 4));
    if (shards->members(which + 1) == program.device() && shard->bytes()) {
      shard->set_offset(uint64_t(int64_t(shard->offset()) + step * 4));
      shard->set_bytes(uint64_t(int64_t(shard->bytes()) - step * 4));
    }
    shards->set_end(which, shards->end(which) + step);
    shards->set_begin(which + 1, shards->begin(which + 1) + step);
  });
  return good;
}

bool memberMissing(Programs &programs, const RealCase &, Random &random, std::string &what) {
  Place place = pickEntry(programs, random, [](const Entry &e) {
    return (e.has_all_gather() && e.all_gather().readers_size() > 1) || (e.has_reduce_scatter() && e.reduce_scatter().contributors_size() > 1) || (e.has_all_reduce() && e.all_reduce().members_size() > 1);
  });
  if (!place)
    return false;
  uint32_t id = entryAt(programs, place).id(), victim = ~0u;
  what = at(programs, place);
  forHalves(programs, id, [&](bundle::Program &, Entry &entry) {
    auto *members = entry.has_all_gather() ? entry.mutable_all_gather()->mutable_readers() : entry.has_reduce_scatter() ? entry.mutable_reduce_scatter()->mutable_contributors() : entry.mutable_all_reduce()->mutable_members();
    if (victim == ~0u)
      victim = members->Get(int(random() % uint32_t(members->size())));
    members->erase(std::remove(members->begin(), members->end(), victim), members->end());
  });
  for (auto &program : programs)
    if (program.device() == victim)
      for (int e = program.entries_size() - 1; e >= 0; --e)
        if (program.entries(e).id() == id) {
          auto &entry = *program.mutable_entries(e);
          bool owner = false;
          if (entry.has_all_gather()) {
            entry.mutable_all_gather()->clear_full();
            owner = entry.all_gather().shard().bytes();
          } else if (entry.has_reduce_scatter()) {
            entry.mutable_reduce_scatter()->clear_full();
            owner = entry.reduce_scatter().shard().bytes();
          }
          if (!owner)
            eraseEntry(program, e);
        }
  return true;
}

bool shrinkCall(Programs &programs, const RealCase &original, Random &random, std::string &what, Compute::Task task) {
  Place place = pickEntry(programs, random, [&](const Entry &e) { return isTask(e, task); });
  if (!place)
    return false;
  auto &compute = *entryAt(programs, place).mutable_compute();
  auto &call = *compute.mutable_calls(int(random() % uint32_t(compute.calls_size())));
  if (call.rows() <= 16)
    return false;
  int64_t rows = call.rows() - 16;
  const auto &body = original.model.bodies.bodies(int(call.body()));
  for (int s = 0; s < call.slots_size(); ++s)
    if (body.slots(s).kind() == bundle::STATE) {
      auto &slot = *call.mutable_slots(s);
      slot.mutable_region()->set_bytes(slot.region().bytes() - 64);
      slot.mutable_value()->set_end(slot.value().end() - 16);
    }
  call.set_rows(rows);
  what = at(programs, place);
  return true;
}

std::vector<Mutation> makeList() {
  using Apply = decltype(Mutation::apply);
  std::vector<Mutation> list;
  auto add = [&](const char *name, Apply apply) { list.push_back({name, std::move(apply)}); };
  auto dropping = [&](const char *name, std::function<bool(const Entry &)> wanted) {
    add(name, [wanted](Programs &p, const RealCase &, Random &r, std::string &w) { return dropTask(p, r, w, wanted); });
  };
  auto repeating = [&](const char *name, std::function<bool(const Entry &)> wanted) {
    add(name, [wanted](Programs &p, const RealCase &, Random &r, std::string &w) { return repeatTask(p, r, w, wanted); });
  };

  add("equal sends swapped", [](Programs &p, const RealCase &, Random &r, std::string &w) { return swapRegions(p, r, w, true); });
  add("equal receives swapped", [](Programs &p, const RealCase &, Random &r, std::string &w) { return swapRegions(p, r, w, false); });
  dropping("transfer dropped", [](const Entry &e) { return e.has_send(); });
  repeating("transfer doubled", [](const Entry &e) { return e.has_send(); });
  add("half of a transfer dropped", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_send() || e.has_receive(); });
    if (!place)
      return false;
    w = at(p, place);
    eraseEntry(p[place.program], place.entry);
    return true;
  });
  add("wrong peer", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_send() || e.has_receive(); });
    if (!place || p.size() < 3)
      return false;
    auto &entry = entryAt(p, place);
    uint32_t peer = uint32_t(r() % p.size());
    w = at(p, place);
    uint32_t old = entry.has_send() ? entry.send().peer() : entry.receive().peer();
    entry.has_send() ? entry.mutable_send()->set_peer(peer) : entry.mutable_receive()->set_peer(peer);
    return peer != old;
  });
  add("transfers out of order", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    for (int attempt = 0; attempt < 20; ++attempt) {
      Place a = pickEntry(p, r, [](const Entry &e) { return e.has_send(); });
      if (!a)
        return false;
      uint32_t peer = entryAt(p, a).send().peer();
      Place b = pickEntry(p, r, [&](const Entry &e) { return e.has_send() && e.send().peer() == peer; });
      if (b.program != a.program || b.entry == a.entry)
        continue;
      uint32_t x = entryAt(p, a).id(), y = entryAt(p, b).id();
      w = at(p, a) + " and entry " + std::to_string(y);
      for (auto &program : p) {
        Entry *first = nullptr, *second = nullptr;
        for (auto &entry : *program.mutable_entries()) {
          first = entry.id() == x ? &entry : first;
          second = entry.id() == y ? &entry : second;
        }
        if (first && second)
          swapPayload(*first, *second);
      }
      return true;
    }
    return false;
  });
  add("offset on a live buffer", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    auto &program = p[r() % p.size()];
    auto regions = regionsOf(program);
    return !regions.empty() && moveRegion(program, *regions[r() % regions.size()], r, w, true);
  });
  add("offset shifted", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    auto &program = p[r() % p.size()];
    auto regions = regionsOf(program);
    return !regions.empty() && moveRegion(program, *regions[r() % regions.size()], r, w, false);
  });
  add("state moved", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    auto &program = p[r() % p.size()];
    return program.state_size() && moveRegion(program, *program.mutable_state(int(r() % uint32_t(program.state_size())))->mutable_region(), r, w, r() % 2);
  });
  add("equal slots swapped", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    for (int attempt = 0; attempt < 40; ++attempt) {
      auto any = [](const Entry &, const bundle::Call &, const bundle::Slot &s) { return s.kind() != bundle::WORKSPACE; };
      SlotPlace a = pickSlot(p, o, r, any), b = pickSlot(p, o, r, any);
      if (a.slot < 0 || a.place.program != b.place.program)
        continue;
      auto *x = slotAt(p, a).mutable_region(), *y = slotAt(p, b).mutable_region();
      if (x->bytes() != y->bytes() || x->offset() == y->offset())
        continue;
      x->Swap(y);
      w = at(p, a.place) + " and " + at(p, b.place);
      return true;
    }
    return false;
  });
  add("wrong micro-batch", wrongRows);
  add("wrong micro-batch loaded", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_load_input(); });
    if (!place)
      return false;
    auto &load = *entryAt(p, place).mutable_load_input();
    int64_t base = int64_t(r() % uint64_t(o.plan.batch));
    if (base == load.sample_base() || base + load.rows() > o.plan.batch)
      return false;
    load.set_sample_base(base);
    if (r() % 2) {
      load.mutable_value()->set_begin(base);
      load.mutable_value()->set_end(base + load.rows());
    }
    w = at(p, place);
    return true;
  });
  add("wrong input loaded", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_load_input(); });
    if (!place)
      return false;
    auto &load = *entryAt(p, place).mutable_load_input();
    load.set_input((load.input() + 1) % uint32_t(o.model.summary.inputs_size()));
    load.mutable_value()->set_id(load.input());
    w = at(p, place);
    return true;
  });
  dropping("load dropped", [](const Entry &e) { return e.has_load_input() || e.has_load_scalars(); });
  add("overwrite and accumulate exchanged", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    SlotPlace s = pickSlot(p, o, r, [](const Entry &, const bundle::Call &, const bundle::Slot &slot) { return slot.mode() == bundle::ACCUMULATE; });
    if (s.slot < 0)
      return false;
    slotAt(p, s).set_overwrite(!slotAt(p, s).overwrite());
    w = at(p, s.place);
    return true;
  });
  add("contribution elsewhere", [](Programs &p, const RealCase &o, Random &r, std::string &w) { // an accumulate dropped: its target becomes scratch
    SlotPlace s = pickSlot(p, o, r, [](const Entry &, const bundle::Call &, const bundle::Slot &slot) { return slot.kind() == bundle::PARAMETER_GRADIENT || slot.kind() == bundle::BOUNDARY_IN_GRADIENT || slot.kind() == bundle::SUMS_SLOT; });
    if (s.slot < 0)
      return false;
    auto &program = p[s.place.program];
    auto &region = *slotAt(p, s).mutable_region();
    region.set_offset(program.arenas(int(region.arena())).bytes());
    program.mutable_arenas(int(region.arena()))->set_bytes(region.offset() + (region.bytes() + 63) / 64 * 64);
    program.set_planned_bytes(program.planned_bytes() + (region.bytes() + 63) / 64 * 64);
    w = at(p, s.place);
    return true;
  });
  repeating("backward doubled", [](const Entry &e) { return isTask(e, Compute::B); });
  repeating("forward doubled", [](const Entry &e) { return isTask(e, Compute::F); });
  repeating("sum, norm, decision or update doubled", [](const Entry &e) { return e.has_compute() && !isTask(e, Compute::F) && !isTask(e, Compute::B); });
  repeating("collective doubled", isCollective);
  add("call doubled", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_compute(); });
    if (!place)
      return false;
    auto *calls = entryAt(p, place).mutable_compute()->mutable_calls();
    bundle::Call copy = calls->Get(int(r() % uint32_t(calls->size())));
    *calls->Add() = copy;
    w = at(p, place);
    return true;
  });
  add("call dropped", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_compute() && e.compute().calls_size() > 1; });
    if (!place)
      return false;
    auto *calls = entryAt(p, place).mutable_compute()->mutable_calls();
    calls->DeleteSubrange(int(r() % uint32_t(calls->size())), 1);
    w = at(p, place);
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
  add("stale weight: update too early", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place update = pickEntry(p, r, [](const Entry &e) { return isTask(e, Compute::UPDATE_GROUP); });
    if (!update)
      return false;
    auto &program = p[update.program];
    std::vector<int> earlier;
    for (int e = 0; e < update.entry; ++e)
      if (program.entries(e).has_compute() && program.entries(e).queue() == program.entries(update.entry).queue())
        earlier.push_back(e);
    if (earlier.empty())
      return false;
    w = at(p, update);
    swapPayload(*program.mutable_entries(update.entry), *program.mutable_entries(earlier[r() % earlier.size()]));
    return true;
  });
  add("stale weight: gather too late", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place gather = pickEntry(p, r, [](const Entry &e) { return e.has_all_gather(); });
    Place other = pickEntry(p, r, [](const Entry &e) { return e.has_reduce_scatter() || e.has_all_reduce() || e.has_all_gather(); });
    if (!gather || entryAt(p, gather).id() == entryAt(p, other).id())
      return false;
    // All halves exchange places; where a device has only one of the two, its half stays and the ids no longer fit: those are skipped.
    uint32_t x = entryAt(p, gather).id(), y = entryAt(p, other).id();
    for (auto &program : p) {
      int found = 0;
      for (auto &entry : program.entries())
        found += entry.id() == x || entry.id() == y;
      if (found == 1)
        return false;
    }
    w = at(p, gather);
    for (auto &program : p) {
      Entry *first = nullptr, *second = nullptr;
      for (auto &entry : *program.mutable_entries()) {
        first = entry.id() == x ? &entry : first;
        second = entry.id() == y ? &entry : second;
      }
      if (first && second)
        swapPayload(*first, *second);
    }
    return true;
  });
  dropping("gather dropped", [](const Entry &e) { return e.has_all_gather(); });
  dropping("reduction dropped", [](const Entry &e) { return e.has_reduce_scatter() || e.has_all_reduce(); });
  add("wait dropped", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return e.waits_size() > 0; });
    if (!place)
      return false;
    auto *waits = entryAt(p, place).mutable_waits();
    waits->DeleteSubrange(int(r() % uint32_t(waits->size())), 1);
    w = at(p, place);
    return true;
  });
  add("wait for another entry", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return e.waits_size() > 0; });
    if (!place)
      return false;
    auto &program = p[place.program];
    auto &wait = *entryAt(p, place).mutable_waits(int(r() % uint32_t(entryAt(p, place).waits_size())));
    w = at(p, place);
    switch (r() % 3) {
    case 0:
      if (wait.position() == 0)
        return false;
      wait.set_position(wait.position() - 1 - r() % wait.position());
      return true;
    case 1: {
      uint32_t queue = uint32_t(r() % uint32_t(program.queues_size()));
      if (queue == wait.queue())
        return false;
      wait.set_queue(queue);
      wait.set_position(0);
      return true;
    }
    default: wait.set_previous_step(!wait.previous_step()); return true;
    }
  });
  add("entries of a queue swapped", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_compute() || e.has_load_input() || e.has_copy(); });
    if (!place)
      return false;
    auto &program = p[place.program];
    std::vector<int> others;
    for (int e = 0; e < program.entries_size(); ++e)
      if (e != place.entry && program.entries(e).queue() == program.entries(place.entry).queue())
        others.push_back(e);
    if (others.empty())
      return false;
    w = at(p, place);
    swapPayload(*program.mutable_entries(place.entry), *program.mutable_entries(others[r() % others.size()]));
    return true;
  });
  add("entry on another queue", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &) { return true; });
    if (!place)
      return false;
    auto &program = p[place.program];
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
  add("wrong extents", wrongExtents);
  add("member missing", memberMissing);
  add("wrong group", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_all_gather() || e.has_reduce_scatter() || isTask(e, Compute::UPDATE_GROUP); });
    if (!place)
      return false;
    auto groupOf = [](const Entry &e) { return e.has_all_gather() ? e.all_gather().group() : e.has_reduce_scatter() ? e.reduce_scatter().group() : uint32_t(e.compute().group()); };
    uint32_t old = groupOf(entryAt(p, place)), fresh = uint32_t(r() % uint32_t(o.model.summary.groups_size()));
    if (fresh == old)
      return false;
    w = at(p, place);
    forHalves(p, entryAt(p, place).id(), [&](bundle::Program &, Entry &e) {
      if (e.has_all_gather()) {
        e.mutable_all_gather()->set_group(fresh);
        e.mutable_all_gather()->mutable_value()->set_id(fresh);
      } else if (e.has_reduce_scatter()) {
        e.mutable_reduce_scatter()->set_group(fresh);
        e.mutable_reduce_scatter()->mutable_value()->set_id(fresh);
      } else {
        e.mutable_compute()->set_group(int(fresh));
        for (auto &call : *e.mutable_compute()->mutable_calls())
          for (auto &slot : *call.mutable_slots())
            if (slot.value().kind() == bundle::Value::PARAMETERS || slot.value().kind() == bundle::Value::REDUCED_GRADIENTS || slot.value().kind() == bundle::Value::MOMENTS)
              slot.mutable_value()->set_id(fresh);
      }
    });
    return true;
  });
  add("wrong body", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_compute(); });
    if (!place)
      return false;
    auto &compute = *entryAt(p, place).mutable_compute();
    auto &call = *compute.mutable_calls(int(r() % uint32_t(compute.calls_size())));
    std::vector<uint32_t> fitting;
    for (int b = 0; b < o.model.bodies.bodies_size(); ++b)
      if (uint32_t(b) != call.body() && o.model.bodies.bodies(b).slots_size() == call.slots_size())
        fitting.push_back(uint32_t(b));
    if (fitting.empty())
      return false;
    call.set_body(fitting[r() % fitting.size()]);
    w = at(p, place);
    return true;
  });
  add("wrong unit", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return isTask(e, Compute::F) || isTask(e, Compute::B); });
    if (!place)
      return false;
    auto &compute = *entryAt(p, place).mutable_compute();
    auto &call = *compute.mutable_calls(int(r() % uint32_t(compute.calls_size())));
    call.set_unit((call.unit() + 1) % o.model.summary.units_size());
    w = at(p, place);
    return true;
  });
  add("wrong random instances", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return isTask(e, Compute::F) || isTask(e, Compute::B); });
    if (!place)
      return false;
    auto &compute = *entryAt(p, place).mutable_compute();
    auto &call = *compute.mutable_calls(int(r() % uint32_t(compute.calls_size())));
    call.set_instance_base(call.instance_base() + 1 + r() % 3);
    w = at(p, place);
    return true;
  });
  dropping("forward dropped", [](const Entry &e) { return isTask(e, Compute::F); });
  dropping("backward dropped", [](const Entry &e) { return isTask(e, Compute::B); });
  dropping("update dropped", [](const Entry &e) { return isTask(e, Compute::UPDATE_GROUP); });
  dropping("norm, decision or loss sum dropped", [](const Entry &e) { return isTask(e, Compute::NORM) || isTask(e, Compute::DECIDE) || isTask(e, Compute::SUM_LOSS); });
  dropping("report dropped", [](const Entry &e) { return e.has_report(); });
  dropping("copy dropped", [](const Entry &e) { return e.has_copy(); });
  add("norm misses part of a shard", [](Programs &p, const RealCase &o, Random &r, std::string &w) { return shrinkCall(p, o, r, w, Compute::NORM); });
  add("update misses part of a shard", [](Programs &p, const RealCase &o, Random &r, std::string &w) { return shrinkCall(p, o, r, w, Compute::UPDATE_GROUP); });
  add("size changed", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    auto &program = p[r() % p.size()];
    auto regions = regionsOf(program);
    if (regions.empty())
      return false;
    auto *region = regions[r() % regions.size()];
    region->set_bytes(r() % 2 && region->bytes() > 64 ? region->bytes() - 64 : region->bytes() + 64);
    w = "device " + std::to_string(program.device());
    return true;
  });
  add("wrong phase", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &) { return true; });
    if (!place)
      return false;
    auto phase = bundle::Phase(1 + r() % 8);
    if (phase == entryAt(p, place).phase())
      return false;
    w = at(p, place);
    forHalves(p, entryAt(p, place).id(), [&](bundle::Program &, Entry &e) { e.set_phase(phase); });
    return true;
  });
  return list;
}

} // namespace

const std::vector<Mutation> &test::mutations() {
  static const std::vector<Mutation> list = makeList();
  return list;
}

bool test::keepsSizesAndOrder(const RealCase &original, const Programs &programs) {
  std::map<uint32_t, std::vector<std::pair<uint32_t, const Entry *>>> halves;
  for (const auto &program : programs) {
    Programs copy{program};
    for (auto *region : regionsOf(copy[0]))
      if (region->arena() >= uint32_t(program.arenas_size()) || region->offset() + region->bytes() > program.arenas(int(region->arena())).bytes())
        return false;
    std::map<uint32_t, std::vector<int>> queues;
    for (int e = 0; e < program.entries_size(); ++e)
      queues[program.entries(e).queue()].push_back(e);
    for (int e = 0; e < program.entries_size(); ++e) {
      const auto &entry = program.entries(e);
      if (e && entry.id() <= program.entries(e - 1).id())
        return false;
      for (const auto &wait : entry.waits())
        if (wait.position() >= queues[wait.queue()].size() || (!wait.previous_step() && queues[wait.queue()][wait.position()] >= e))
          return false;
      for (const auto &call : entry.compute().calls()) {
        const auto &body = original.model.bodies.bodies(int(call.body()));
        if (body.slots_size() != call.slots_size())
          return false;
        for (int s = 0; s < call.slots_size(); ++s)
          if (int64_t(call.slots(s).region().bytes()) != body.slots(s).bytes().fixed() + body.slots(s).bytes().per_row() * call.rows())
            return false;
      }
      halves[entry.id()].push_back({program.device(), &entry});
    }
  }
  for (const auto &[id, list] : halves) {
    const Entry &first = *list[0].second;
    if (first.has_send() || first.has_receive()) {
      if (list.size() != 2)
        return false;
      const Entry &second = *list[1].second;
      const Entry &send = first.has_send() ? first : second, &receive = first.has_send() ? second : first;
      if (!send.has_send() || !receive.has_receive() || send.send().region().bytes() != receive.receive().region().bytes() ||
          send.send().peer() != (first.has_send() ? list[1].first : list[0].first) || receive.receive().peer() != (first.has_send() ? list[0].first : list[1].first))
        return false;
    } else if (isCollective(first)) {
      std::vector<uint32_t> members, present;
      auto addAll = [&](const auto &from) { members.insert(members.end(), from.begin(), from.end()); };
      if (first.has_all_gather()) {
        addAll(first.all_gather().readers());
        addAll(first.all_gather().shards().members());
      } else if (first.has_reduce_scatter()) {
        addAll(first.reduce_scatter().contributors());
        addAll(first.reduce_scatter().shards().members());
      } else {
        addAll(first.all_reduce().members());
      }
      std::sort(members.begin(), members.end());
      members.erase(std::unique(members.begin(), members.end()), members.end());
      for (const auto &[device, entry] : list)
        present.push_back(device);
      std::sort(present.begin(), present.end());
      if (present != members)
        return false;
    } else if (list.size() != 1) {
      return false;
    }
  }
  return true;
}
