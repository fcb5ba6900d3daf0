// Offsets: bytes elsewhere. Sizes: too few or too many. Lifetimes: buffers that share bytes while both are needed.
#include "Edit.h"
#include "Mutations.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::test;

namespace {

bool moveRegion(bundle::Program &program, bundle::Region &region, Random &r, std::string &w, bool onLive) {
  uint64_t size = program.arenas(int(region.arena())).bytes(), old = region.offset();
  if (onLive) {
    std::vector<uint64_t> offsets;
    for (auto *other : regionsOf(program))
      if (other->arena() == region.arena() && other->offset() != region.offset() && other->offset() + region.bytes() <= size)
        offsets.push_back(other->offset());
    if (offsets.empty())
      return false;
    region.set_offset(offsets[r() % offsets.size()]);
  } else {
    uint64_t step = 64 * (1 + r() % 2);
    if (r() % 2 && region.offset() >= step)
      region.set_offset(region.offset() - step);
    else if (region.offset() + region.bytes() + step <= size)
      region.set_offset(region.offset() + step);
    else
      return false;
  }
  w = "device " + std::to_string(program.device()) + ": bytes " + std::to_string(old) + " become " + std::to_string(region.offset());
  return region.offset() != old;
}

bool swapSlots(Programs &p, const RealCase &o, Random &r, std::string &w, const SlotWanted &wanted) {
  for (int attempt = 0; attempt < 40; ++attempt) {
    SlotPlace a = pickSlot(p, o.model.bodies, r, wanted);
    if (!a)
      return false;
    SlotPlace b = pickSlot(p, o.model.bodies, r, wanted, a.place.program);
    auto *x = slotAt(p, a).mutable_region(), *y = slotAt(p, b).mutable_region();
    if (x->bytes() != y->bytes() || x->offset() == y->offset())
      continue;
    x->Swap(y);
    w = at(p, a.place) + " and " + at(p, b.place);
    return true;
  }
  return false;
}

/// The buffer of a random value, with all its uses on its device, moves: onto another buffer, or by some blocks.
bool moveBuffer(Programs &p, Random &r, std::string &w, const std::function<bool(bundle::Value::Kind)> &wanted) {
  auto &program = p[r() % p.size()];
  struct Use {
    bundle::Region *region;
    bundle::Value value;
  };
  std::vector<Use> uses;
  auto use = [&](bundle::Region *region, const bundle::Value &value) {
    if (region->bytes())
      uses.push_back({region, value});
  };
  for (auto &state : *program.mutable_state())
    use(state.mutable_region(), state.value());
  for (int e = 0; e < program.entries_size(); ++e) {
    auto &entry = *program.mutable_entries(e);
    switch (entry.what_case()) {
    case Entry::kCompute:
      for (auto &call : *entry.mutable_compute()->mutable_calls())
        for (auto &slot : *call.mutable_slots())
          use(slot.mutable_region(), slot.value());
      break;
    case Entry::kCopy:
      use(entry.mutable_copy()->mutable_from(), entry.copy().value());
      use(entry.mutable_copy()->mutable_to(), entry.copy().value());
      break;
    case Entry::kSend:
      use(entry.mutable_send()->mutable_region(), entry.send().value());
      break;
    case Entry::kReceive:
      use(entry.mutable_receive()->mutable_region(), entry.receive().value());
      break;
    case Entry::kLoadInput:
      use(entry.mutable_load_input()->mutable_region(), entry.load_input().value());
      break;
    case Entry::kAllGather:
      use(entry.mutable_all_gather()->mutable_full(), entry.all_gather().value());
      use(entry.mutable_all_gather()->mutable_shard(), entry.all_gather().value());
      break;
    case Entry::kReduceScatter:
      use(entry.mutable_reduce_scatter()->mutable_full(), entry.reduce_scatter().value());
      use(entry.mutable_reduce_scatter()->mutable_shard(), entry.reduce_scatter().value());
      break;
    default:
      break;
    }
  }
  std::vector<size_t> candidates;
  for (size_t i = 0; i < uses.size(); ++i)
    if (wanted(uses[i].value.kind()))
      candidates.push_back(i);
  if (candidates.empty())
    return false;
  const Use chosen = uses[candidates[r() % candidates.size()]];
  auto gradients = [](bundle::Value::Kind kind) { return kind == bundle::Value::REDUCED_GRADIENTS ? bundle::Value::GRADIENTS : kind; };
  auto same = [&](const Use &u) {
    return u.region->arena() == chosen.region->arena() && gradients(u.value.kind()) == gradients(chosen.value.kind()) &&
           u.value.id() == chosen.value.id() && (chosen.value.kind() != bundle::Value::MOMENTS || u.value.cut() == chosen.value.cut());
  };
  // The buffer: bytes that uses of the value join to the chosen ones.
  uint64_t begin = chosen.region->offset(), end = begin + chosen.region->bytes();
  for (bool grown = true; grown;) {
    grown = false;
    for (const Use &u : uses)
      if (same(u) && u.region->offset() < end && begin < u.region->offset() + u.region->bytes() &&
          (u.region->offset() < begin || u.region->offset() + u.region->bytes() > end)) {
        begin = std::min(begin, u.region->offset());
        end = std::max(end, u.region->offset() + u.region->bytes());
        grown = true;
      }
  }
  const uint64_t size = program.arenas(int(chosen.region->arena())).bytes();
  const Use &other = uses[r() % uses.size()];
  uint64_t to = r() % 4 == 0 ? begin + 64 * (1 + r() % 3) : other.region->offset() / 64 * 64;
  if (to == begin || to + (end - begin) > size || other.region->arena() != chosen.region->arena())
    return false;
  for (Use &u : uses)
    if (same(u) && u.region->offset() >= begin && u.region->offset() + u.region->bytes() <= end)
      u.region->set_offset(u.region->offset() - begin + to);
  w = "device " + std::to_string(program.device()) + ": bytes " + std::to_string(begin) + "-" + std::to_string(end) + " become " + std::to_string(to);
  return true;
}

void addOffsets(MutationList &list) {
  auto add = [&](const char *name, decltype(Mutation::apply) apply) { list.push_back({"offsets", name, std::move(apply)}); };
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
  add("transfer's or copy's offset shifted by a row", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return isTransfer(e) || e.has_copy(); });
    if (!place)
      return false;
    auto &entry = entryAt(p, place);
    auto &region = entry.has_send()      ? *entry.mutable_send()->mutable_region()
                   : entry.has_receive() ? *entry.mutable_receive()->mutable_region()
                   : r() % 2             ? *entry.mutable_copy()->mutable_from()
                                         : *entry.mutable_copy()->mutable_to();
    return moveRegion(p[size_t(place.program)], region, r, w, false);
  });
  add("collective's offset shifted", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, isCollective);
    if (!place)
      return false;
    auto &entry = entryAt(p, place);
    auto *region = entry.has_all_reduce() ? entry.mutable_all_reduce()->mutable_region() : nullptr;
    if (entry.has_all_gather())
      region = r() % 2 ? entry.mutable_all_gather()->mutable_full() : entry.mutable_all_gather()->mutable_shard();
    if (entry.has_reduce_scatter())
      region = r() % 2 ? entry.mutable_reduce_scatter()->mutable_full() : entry.mutable_reduce_scatter()->mutable_shard();
    return region->bytes() && moveRegion(p[size_t(place.program)], *region, r, w, r() % 2);
  });
  add("state moved", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    auto &program = p[r() % p.size()];
    return program.state_size() &&
           moveRegion(program, *program.mutable_state(int(r() % uint32_t(program.state_size())))->mutable_region(), r, w, r() % 2);
  });
  add("scalars or report elsewhere", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_load_scalars() || e.has_report(); });
    if (!place)
      return false;
    auto &entry = entryAt(p, place);
    return moveRegion(p[size_t(place.program)],
                      entry.has_report() ? *entry.mutable_report()->mutable_region() : *entry.mutable_load_scalars()->mutable_region(), r, w,
                      r() % 2);
  });
  add("equal slots swapped", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    return swapSlots(p, o, r, w, [](const Entry &, const bundle::Call &, const bundle::Slot &s) { return s.kind() != bundle::WORKSPACE; });
  });
  add("slot in another arena", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    SlotPlace s = pickSlot(p, o.model.bodies, r,
                           [](const Entry &, const bundle::Call &, const bundle::Slot &slot) { return slot.kind() != bundle::WORKSPACE; });
    if (!s)
      return false;
    auto &program = p[size_t(s.place.program)];
    auto *arena = program.add_arenas();
    arena->set_kind(bundle::HOST);
    arena->set_bytes(program.arenas(0).bytes());
    slotAt(p, s).mutable_region()->set_arena(uint32_t(program.arenas_size() - 1));
    w = at(p, s.place);
    return true;
  });
}

void addSizes(MutationList &list) {
  auto add = [&](const char *name, decltype(Mutation::apply) apply) { list.push_back({"sizes", name, std::move(apply)}); };
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
  add("transfer a row shorter", [](Programs &p, const RealCase &o, Random &r, std::string &w) { // both halves, bytes and declared samples
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_send() && e.send().value().end() - e.send().value().begin() > 1; });
    if (!place)
      return false;
    const auto value = entryAt(p, place).send().value();
    const uint64_t row = uint64_t(o.model.summary.values(int(value.id())).bytes_per_row());
    const bool last = r() % 2;
    w = at(p, place);
    forHalves(p, entryAt(p, place).id(), [&](bundle::Program &, Entry &entry) {
      auto *region = entry.has_send() ? entry.mutable_send()->mutable_region() : entry.mutable_receive()->mutable_region();
      auto *v = entry.has_send() ? entry.mutable_send()->mutable_value() : entry.mutable_receive()->mutable_value();
      region->set_bytes(region->bytes() - row);
      if (last) {
        v->set_end(v->end() - 1);
      } else {
        v->set_begin(v->begin() + 1);
        region->set_offset(region->offset() + row);
      }
    });
    return true;
  });
  add("transfer's bytes shorter", [](Programs &p, const RealCase &, Random &r, std::string &w) { // both halves agree on too little
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_send() && e.send().region().bytes() > 64; });
    if (!place)
      return false;
    w = at(p, place);
    forHalves(p, entryAt(p, place).id(), [](bundle::Program &, Entry &entry) {
      auto *region = entry.has_send() ? entry.mutable_send()->mutable_region() : entry.mutable_receive()->mutable_region();
      region->set_bytes(region->bytes() - 64);
    });
    return true;
  });
  add("copy a row shorter", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_copy() && e.copy().value().end() - e.copy().value().begin() > 1; });
    if (!place)
      return false;
    auto &copy = *entryAt(p, place).mutable_copy();
    const uint64_t row = copy.from().bytes() / uint64_t(copy.value().end() - copy.value().begin()); // of state, an element
    copy.mutable_from()->set_bytes(copy.from().bytes() - row);
    copy.mutable_to()->set_bytes(copy.to().bytes() - row);
    copy.mutable_value()->set_end(copy.value().end() - 1);
    w = at(p, place);
    return true;
  });
  add("load a row shorter", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_load_input() && e.load_input().rows() > 1; });
    if (!place)
      return false;
    auto &load = *entryAt(p, place).mutable_load_input();
    load.set_rows(load.rows() - 1);
    load.mutable_value()->set_end(load.value().end() - 1);
    load.mutable_region()->set_bytes(load.region().bytes() - uint64_t(o.model.summary.inputs(int(load.input())).bytes_per_row()));
    w = at(p, place);
    return true;
  });
  add("arena shorter", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    auto &program = p[r() % p.size()];
    if (!program.arenas_size() || program.arenas(0).bytes() <= 64)
      return false;
    program.mutable_arenas(0)->set_bytes(program.arenas(0).bytes() - 64);
    program.set_planned_bytes(program.planned_bytes() - 64);
    w = "device " + std::to_string(program.device());
    return true;
  });
  add("report of part of the block", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_report(); });
    if (!place)
      return false;
    auto &report = *entryAt(p, place).mutable_report();
    if (r() % 2) { // the sums alone
      report.mutable_region()->set_offset(report.region().offset() + 256);
      report.mutable_region()->set_bytes(128);
      report.mutable_value()->set_kind(r() % 2 ? bundle::Value::GLOBAL_SUM : bundle::Value::SUMS);
    } else {
      report.mutable_region()->set_bytes(256);
    }
    w = at(p, place);
    return true;
  });
}

void addLifetimes(MutationList &list) {
  auto add = [&](const char *name, decltype(Mutation::apply) apply) { list.push_back({"lifetimes", name, std::move(apply)}); };
  using Kind = bundle::Value::Kind;
  using Value = bundle::Value;
  add("activations share bytes too early", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    return moveBuffer(
        p, r, w, [](Kind k) { return k == Value::ACTIVATION || k == Value::ACTIVATION_GRADIENT || k == Value::INPUT_ROWS || k == Value::LOSS_ROWS; });
  });
  add("saved block shares bytes too early",
      [](Programs &p, const RealCase &, Random &r, std::string &w) { return moveBuffer(p, r, w, [](Kind k) { return k == Value::SAVED_BLOCK; }); });
  add("gradients share bytes too early", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    return moveBuffer(p, r, w, [](Kind k) { return k == Value::GRADIENTS || k == Value::REDUCED_GRADIENTS; });
  });
  add("parameters share bytes",
      [](Programs &p, const RealCase &, Random &r, std::string &w) { return moveBuffer(p, r, w, [](Kind k) { return k == Value::PARAMETERS; }); });
  add("optimizer state shares bytes", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    return moveBuffer(p, r, w, [](Kind k) { return k == Value::MOMENTS || k == Value::OPTIMIZER_STEP; });
  });
  add("workspace on a live buffer", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    SlotPlace s = pickSlot(p, o.model.bodies, r,
                           [](const Entry &, const bundle::Call &, const bundle::Slot &slot) { return slot.kind() == bundle::WORKSPACE; });
    return s && moveRegion(p[size_t(s.place.program)], *slotAt(p, s).mutable_region(), r, w, true);
  });
  add("load before the last reader", [](Programs &p, const RealCase &, Random &r, std::string &w) { // what arrives over what is still needed
    Place place = pickEntry(p, r, [](const Entry &e) { return (e.has_load_input() || e.has_receive()) && e.waits_size() > 0; });
    if (!place)
      return false;
    w = at(p, place);
    entryAt(p, place).clear_waits();
    const uint32_t id = entryAt(p, place).id();
    Place other = pickOther(p, r, place, [&](const Entry &e) { return e.id() < id && e.id() > 0; });
    if (other)
      moveEntry(p, id, entryAt(p, other).id());
    return true;
  });
  add("load dropped", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    return dropEntry(p, r, w, [](const Entry &e) { return e.has_load_input() || e.has_load_scalars(); });
  });
  add("copy dropped",
      [](Programs &p, const RealCase &, Random &r, std::string &w) { return dropEntry(p, r, w, [](const Entry &e) { return e.has_copy(); }); });
}

} // namespace

void test::addPlaceMutations(MutationList &list) {
  addOffsets(list);
  addSizes(list);
  addLifetimes(list);
}
