// Groups: which state, and who takes part. Extents: who owns which elements. Versions: before or after which update.
#include "Edit.h"
#include "Mutations.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::test;

namespace {

bundle::Extents *extentsOf(Entry &entry) {
  return entry.has_all_gather() ? entry.mutable_all_gather()->mutable_shards() : entry.mutable_reduce_scatter()->mutable_shards();
}
bundle::Region *shardOf(Entry &entry) {
  return entry.has_all_gather() ? entry.mutable_all_gather()->mutable_shard() : entry.mutable_reduce_scatter()->mutable_shard();
}
google::protobuf::RepeatedField<uint32_t> *membersOf(Entry &entry) {
  return entry.has_all_gather()       ? entry.mutable_all_gather()->mutable_readers()
         : entry.has_reduce_scatter() ? entry.mutable_reduce_scatter()->mutable_contributors()
                                      : entry.mutable_all_reduce()->mutable_members();
}
bool isOwned(const Entry &e) { return e.has_all_gather() || e.has_reduce_scatter(); }
int ownersOf(const Entry &e) {
  return e.has_all_gather() ? e.all_gather().shards().members_size() : e.has_reduce_scatter() ? e.reduce_scatter().shards().members_size() : 0;
}

bool memberMissing(Programs &p, Random &r, std::string &w, const std::function<bool(const Entry &)> &wanted) {
  Place place = pickEntry(p, r, [&](const Entry &e) {
    return wanted(e) &&
           ((e.has_all_gather() && e.all_gather().readers_size() > 1) || (e.has_reduce_scatter() && e.reduce_scatter().contributors_size() > 1) ||
            (e.has_all_reduce() && e.all_reduce().members_size() > 1));
  });
  if (!place)
    return false;
  uint32_t id = entryAt(p, place).id(), victim = ~0u;
  w = at(p, place);
  forHalves(p, id, [&](bundle::Program &, Entry &entry) {
    auto *members = membersOf(entry);
    if (victim == ~0u)
      victim = members->Get(int(r() % uint32_t(members->size())));
    members->erase(std::remove(members->begin(), members->end(), victim), members->end());
  });
  for (auto &program : p)
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

bool wrongGroup(Programs &p, const RealCase &o, Random &r, std::string &w, bool everywhere) {
  Place place = pickEntry(p, r, [](const Entry &e) { return isOwned(e) || isTask(e, Compute::UPDATE_GROUP); });
  if (!place)
    return false;
  auto groupOf = [](const Entry &e) {
    return e.has_all_gather() ? e.all_gather().group() : e.has_reduce_scatter() ? e.reduce_scatter().group() : uint32_t(e.compute().group());
  };
  uint32_t old = groupOf(entryAt(p, place)), fresh = uint32_t(r() % uint32_t(o.model.summary.groups_size()));
  if (fresh == old)
    return false;
  w = at(p, place);
  const uint32_t device = p[size_t(place.program)].device();
  forHalves(p, entryAt(p, place).id(), [&](bundle::Program &program, Entry &e) {
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
        for (auto &slot : *call.mutable_slots())
          if (slot.value().kind() == bundle::Value::PARAMETERS || slot.value().kind() == bundle::Value::REDUCED_GRADIENTS ||
              slot.value().kind() == bundle::Value::MOMENTS)
            slot.mutable_value()->set_id(fresh);
    }
  });
  return true;
}

void addGroups(MutationList &list) {
  auto add = [&](const char *name, decltype(Mutation::apply) apply) { list.push_back({"groups", name, std::move(apply)}); };
  add("wrong group", [](Programs &p, const RealCase &o, Random &r, std::string &w) { return wrongGroup(p, o, r, w, true); });
  add("wrong group on one device", [](Programs &p, const RealCase &o, Random &r, std::string &w) { return wrongGroup(p, o, r, w, false); });
  add("reader missing", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    return memberMissing(p, r, w, [](const Entry &e) { return e.has_all_gather(); });
  });
  add("contributor missing", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    return memberMissing(p, r, w, [](const Entry &e) { return e.has_reduce_scatter(); });
  });
  add("device missing from the sums", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    return memberMissing(p, r, w, [](const Entry &e) { return e.has_all_reduce(); });
  });
  add("contributor added", [](Programs &p, const RealCase &, Random &r, std::string &w) { // an owner adds whatever its bytes hold
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_reduce_scatter() && !e.reduce_scatter().full().bytes(); });
    if (!place)
      return false;
    auto &program = p[size_t(place.program)];
    const uint32_t device = program.device();
    uint64_t bytes = 0;
    forHalves(p, entryAt(p, place).id(), [&](bundle::Program &, Entry &e) { bytes = std::max(bytes, e.reduce_scatter().full().bytes()); });
    forHalves(p, entryAt(p, place).id(), [&](bundle::Program &, Entry &e) { e.mutable_reduce_scatter()->add_contributors(device); });
    auto *full = entryAt(p, place).mutable_reduce_scatter()->mutable_full();
    full->set_offset(freshBytes(program, 0, bytes));
    full->set_bytes(bytes);
    w = at(p, place);
    return true;
  });
  add("groups of two collectives exchanged", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place a = pickEntry(p, r, isOwned);
    if (!a)
      return false;
    const bool gather = entryAt(p, a).has_all_gather();
    Place b = pickOther(p, r, a, [&](const Entry &e) { return gather ? e.has_all_gather() : e.has_reduce_scatter(); });
    if (!b)
      return false;
    w = at(p, a) + " and " + at(p, b);
    swapEverywhere(p, entryAt(p, a).id(), entryAt(p, b).id());
    return true;
  });
  add("buffers of two groups exchanged", [](Programs &p, const RealCase &, Random &r, std::string &w) { // on one device, where they are equally long
    for (int attempt = 0; attempt < 10; ++attempt) {
      Place a = pickEntry(p, r, isOwned);
      if (!a)
        return false;
      Place b = pickOther(p, r, a, isOwned);
      if (!b)
        continue;
      auto full = [&](Place place) {
        auto &e = entryAt(p, place);
        return e.has_all_gather() ? e.mutable_all_gather()->mutable_full() : e.mutable_reduce_scatter()->mutable_full();
      };
      if (full(a)->bytes() == 0 || full(a)->bytes() != full(b)->bytes() || full(a)->offset() == full(b)->offset())
        continue;
      full(a)->Swap(full(b));
      shardOf(entryAt(p, a))->Swap(shardOf(entryAt(p, b)));
      w = at(p, a) + " and " + at(p, b);
      return true;
    }
    return false;
  });
  add("update with another group's gradients", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    auto isState = [](const Entry &e, const bundle::Call &, const bundle::Slot &s) {
      return isTask(e, Compute::UPDATE_GROUP) && s.kind() == bundle::STATE;
    };
    for (int attempt = 0; attempt < 20; ++attempt) {
      SlotPlace a = pickSlot(p, o.model.bodies, r, isState);
      if (!a)
        return false;
      SlotPlace b = pickSlot(p, o.model.bodies, r, isState, a.place.program);
      auto *x = slotAt(p, a).mutable_region(), *y = slotAt(p, b).mutable_region();
      if (x->offset() == y->offset() || x->bytes() != y->bytes())
        continue;
      *x = *y;
      w = at(p, a.place) + " from " + at(p, b.place);
      return true;
    }
    return false;
  });
}

bool shrinkCall(Programs &p, const RealCase &o, Random &r, std::string &w, Compute::Task task) {
  Place place = pickEntry(p, r, [&](const Entry &e) { return isTask(e, task); });
  if (!place)
    return false;
  auto &compute = *entryAt(p, place).mutable_compute();
  auto &call = *compute.mutable_calls(int(r() % uint32_t(compute.calls_size())));
  if (call.rows() <= 16)
    return false;
  const auto &body = o.model.bodies.bodies(int(call.body()));
  for (int s = 0; s < call.slots_size(); ++s)
    if (body.slots(s).kind() == bundle::STATE) {
      auto &slot = *call.mutable_slots(s);
      slot.mutable_region()->set_bytes(slot.region().bytes() - 64);
      slot.mutable_value()->set_end(slot.value().end() - 16);
    }
  call.set_rows(call.rows() - 16);
  w = at(p, place);
  return true;
}

/// Moves a call's extent by 16 elements, all of its slots or one.
bool shiftCall(Programs &p, const RealCase &o, Random &r, std::string &w, Compute::Task task, bool all) {
  Place place = pickEntry(p, r, [&](const Entry &e) { return isTask(e, task); });
  if (!place)
    return false;
  auto &compute = *entryAt(p, place).mutable_compute();
  auto &call = *compute.mutable_calls(int(r() % uint32_t(compute.calls_size())));
  const auto &body = o.model.bodies.bodies(int(call.body()));
  std::vector<int> slots;
  for (int s = 0; s < call.slots_size(); ++s)
    if (body.slots(s).kind() == bundle::STATE)
      slots.push_back(s);
  if (!all)
    slots = {slots[r() % slots.size()]};
  const int64_t by = r() % 2 ? 16 : -16;
  const auto &program = p[size_t(place.program)];
  for (int s : slots) {
    auto &slot = *call.mutable_slots(s);
    const uint64_t offset = slot.region().offset() + uint64_t(by * 4);
    if (slot.value().begin() + by < 0 || slot.value().end() + by > o.model.summary.groups(int(slot.value().id())).elements() ||
        offset > program.arenas(int(slot.region().arena())).bytes() - slot.region().bytes())
      return false;
    slot.mutable_region()->set_offset(offset);
    slot.mutable_value()->set_begin(slot.value().begin() + by);
    slot.mutable_value()->set_end(slot.value().end() + by);
  }
  w = at(p, place);
  return true;
}

/// The border between two owners moves.
/// \param where  0: on all members of one collective; 1: on one member; 2: of all collectives of the group and of the state.
bool moveBorder(Programs &p, Random &r, std::string &w, int where) {
  Place place = pickEntry(p, r, [](const Entry &e) { return isOwned(e) && ownersOf(e) > 1; });
  if (!place)
    return false;
  const uint32_t id = entryAt(p, place).id(), device = p[size_t(place.program)].device();
  auto groupOf = [](const Entry &e) { return e.has_all_gather() ? e.all_gather().group() : e.reduce_scatter().group(); };
  const uint32_t group = groupOf(entryAt(p, place));
  const int64_t step = 64 * int64_t(1 + r() % 2) * (r() % 2 ? 1 : -1);
  const int which = int(r() % uint32_t(ownersOf(entryAt(p, place)) - 1));
  w = at(p, place) + " by " + std::to_string(step) + " elements";
  uint32_t left = 0, right = 0;
  for (auto &program : p) {
    for (auto &entry : *program.mutable_entries()) {
      if (!isOwned(entry) || (where == 2 ? groupOf(entry) != group : entry.id() != id) || (where == 1 && program.device() != device))
        continue;
      auto *shards = extentsOf(entry);
      auto *shard = shardOf(entry);
      if (which + 1 >= shards->members_size() || shards->end(which) + step <= shards->begin(which) ||
          shards->begin(which + 1) + step >= shards->end(which + 1) || shards->end(which) != shards->begin(which + 1))
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
        if (state.value().id() == group && (state.value().kind() == bundle::Value::PARAMETERS || state.value().kind() == bundle::Value::MOMENTS)) {
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

void addExtents(MutationList &list) {
  auto add = [&](const char *name, decltype(Mutation::apply) apply) { list.push_back({"extents", name, std::move(apply)}); };
  add("border moved in one collective", [](Programs &p, const RealCase &, Random &r, std::string &w) { return moveBorder(p, r, w, 0); });
  add("border moved on one member", [](Programs &p, const RealCase &, Random &r, std::string &w) { return moveBorder(p, r, w, 1); });
  add("border moved everywhere but in updates", [](Programs &p, const RealCase &, Random &r, std::string &w) { return moveBorder(p, r, w, 2); });
  add("extents of two owners exchanged", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return isOwned(e) && ownersOf(e) > 1; });
    if (!place)
      return false;
    w = at(p, place);
    const int i = int(r() % uint32_t(ownersOf(entryAt(p, place)) - 1));
    forHalves(p, entryAt(p, place).id(), [&](bundle::Program &program, Entry &entry) {
      auto *shards = extentsOf(entry);
      shards->mutable_members()->SwapElements(i, i + 1);
      for (int k : {i, i + 1})
        if (shards->members(k) == program.device())
          shardOf(entry)->set_bytes(uint64_t(shards->end(k) - shards->begin(k)) * 4);
    });
    return true;
  });
  add("owner missing", [](Programs &p, const RealCase &, Random &r, std::string &w) { // its elements reach nobody, or come from nobody
    Place place = pickEntry(p, r, [](const Entry &e) { return isOwned(e) && ownersOf(e) > 1; });
    if (!place)
      return false;
    w = at(p, place);
    const int i = int(r() % uint32_t(ownersOf(entryAt(p, place))));
    const uint32_t id = entryAt(p, place).id(), victim = extentsOf(entryAt(p, place))->members(i);
    forHalves(p, id, [&](bundle::Program &program, Entry &entry) {
      auto *shards = extentsOf(entry);
      shards->mutable_members()->erase(shards->mutable_members()->begin() + i);
      shards->mutable_begin()->erase(shards->mutable_begin()->begin() + i);
      shards->mutable_end()->erase(shards->mutable_end()->begin() + i);
      if (program.device() == victim)
        shardOf(entry)->Clear();
    });
    for (auto &program : p)
      for (int e = program.entries_size() - 1; e >= 0; --e)
        if (program.device() == victim && program.entries(e).id() == id &&
            !(program.entries(e).has_all_gather() ? program.entries(e).all_gather().full().bytes()
                                                  : program.entries(e).reduce_scatter().full().bytes()))
          eraseEntry(program, e);
    return true;
  });
  add("state shorter", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    auto &program = p[r() % p.size()];
    if (!program.state_size())
      return false;
    auto &state = *program.mutable_state(int(r() % uint32_t(program.state_size())));
    if (state.value().end() - state.value().begin() <= 16)
      return false;
    state.mutable_value()->set_end(state.value().end() - 16);
    state.mutable_region()->set_bytes(state.region().bytes() - 64);
    w = "device " + std::to_string(program.device());
    return true;
  });
  add("norm misses part of a shard", [](Programs &p, const RealCase &o, Random &r, std::string &w) { return shrinkCall(p, o, r, w, Compute::NORM); });
  add("update misses part of a shard",
      [](Programs &p, const RealCase &o, Random &r, std::string &w) { return shrinkCall(p, o, r, w, Compute::UPDATE_GROUP); });
  add("norm of shifted elements",
      [](Programs &p, const RealCase &o, Random &r, std::string &w) { return shiftCall(p, o, r, w, Compute::NORM, true); });
  add("update of shifted elements",
      [](Programs &p, const RealCase &o, Random &r, std::string &w) { return shiftCall(p, o, r, w, Compute::UPDATE_GROUP, true); });
  add("one slot of an update shifted",
      [](Programs &p, const RealCase &o, Random &r, std::string &w) { return shiftCall(p, o, r, w, Compute::UPDATE_GROUP, false); });
}

void addVersions(MutationList &list) {
  auto add = [&](const char *name, decltype(Mutation::apply) apply) { list.push_back({"versions", name, std::move(apply)}); };
  auto isUpdate = [](const Entry &e) { return isTask(e, Compute::UPDATE_GROUP); };
  add("update too early", [=](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place update = pickEntry(p, r, isUpdate);
    if (!update)
      return false;
    const uint32_t queue = entryAt(p, update).queue(), id = entryAt(p, update).id();
    Place earlier = pickOther(p, r, update, [&](const Entry &e) { return e.has_compute() && e.queue() == queue && e.id() < id; });
    if (!earlier)
      return false;
    w = at(p, update) + " and " + at(p, earlier);
    swapPayload(entryAt(p, update), entryAt(p, earlier));
    return true;
  });
  add("gather too late", [](Programs &p, const RealCase &, Random &r, std::string &w) { // exchanged with another collective, on all members
    Place gather = pickEntry(p, r, [](const Entry &e) { return e.has_all_gather(); });
    Place other = pickEntry(p, r, isCollective);
    if (!gather || entryAt(p, gather).id() == entryAt(p, other).id())
      return false;
    uint32_t x = entryAt(p, gather).id(), y = entryAt(p, other).id();
    for (auto &program : p) { // where a device has only one of the two, ids would no longer fit
      int found = 0;
      for (auto &entry : program.entries())
        found += entry.id() == x || entry.id() == y;
      if (found == 1)
        return false;
    }
    w = at(p, gather) + " and " + at(p, other);
    swapEverywhere(p, x, y);
    return true;
  });
  add("gather after the updates", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place gather = pickEntry(p, r, [](const Entry &e) { return e.has_all_gather(); });
    if (!gather)
      return false;
    w = at(p, gather);
    const bool declared = r() % 2;
    forHalves(p, entryAt(p, gather).id(), [&](bundle::Program &, Entry &e) { e.mutable_all_gather()->mutable_value()->set_version(declared); });
    moveEntry(p, entryAt(p, gather).id(), UINT32_MAX);
    return true;
  });
  add("gather dropped",
      [](Programs &p, const RealCase &, Random &r, std::string &w) { return dropEntry(p, r, w, [](const Entry &e) { return e.has_all_gather(); }); });
  add("reduction dropped", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    return dropEntry(p, r, w, [](const Entry &e) { return e.has_reduce_scatter() || e.has_all_reduce(); });
  });
  add("reduction before the last backward", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place reduction = pickEntry(p, r, [](const Entry &e) { return e.has_reduce_scatter(); });
    if (!reduction)
      return false;
    Place backward = pickEntry(p, r, [](const Entry &e) { return isTask(e, Compute::B); });
    const uint32_t id = entryAt(p, reduction).id(), before = entryAt(p, backward).id();
    if (before > id)
      return false;
    w = at(p, reduction) + " before " + at(p, backward);
    moveEntry(p, id, before);
    return true;
  });
  add("update dropped", [=](Programs &p, const RealCase &, Random &r, std::string &w) { return dropEntry(p, r, w, isUpdate); });
  add("update doubled", [=](Programs &p, const RealCase &, Random &r, std::string &w) { return doubleEntry(p, r, w, isUpdate); });
  add("update before the decision", [=](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place decide = pickEntry(p, r, [](const Entry &e) { return isTask(e, Compute::DECIDE); });
    if (!decide)
      return false;
    Place update = pickOther(p, r, decide, isUpdate);
    if (!update)
      return false;
    w = at(p, decide) + " and " + at(p, update);
    swapPayload(entryAt(p, decide), entryAt(p, update));
    return true;
  });
  add("norm after the sum", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place norm = pickEntry(p, r, [](const Entry &e) { return isTask(e, Compute::NORM) || isTask(e, Compute::SUM_LOSS); });
    if (!norm)
      return false;
    w = at(p, norm);
    moveEntry(p, entryAt(p, norm).id(), UINT32_MAX);
    return true;
  });
  add("declared version changed", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_all_gather() || isTask(e, Compute::UPDATE_GROUP); });
    if (!place)
      return false;
    w = at(p, place);
    forHalves(p, entryAt(p, place).id(), [&](bundle::Program &, Entry &e) {
      if (e.has_all_gather()) {
        e.mutable_all_gather()->mutable_value()->set_version(1);
        return;
      }
      for (auto &call : *e.mutable_compute()->mutable_calls())
        for (auto &slot : *call.mutable_slots())
          if (slot.value().kind() == bundle::Value::PARAMETERS)
            slot.mutable_value()->set_version(1);
    });
    return true;
  });
}

} // namespace

void test::addStateMutations(MutationList &list) {
  addGroups(list);
  addExtents(list);
  addVersions(list);
}
