// Scales: what multiplies the first gradients of a step, and who decides the next.
#include "Edit.h"
#include "Mutations.h"

using namespace zorse;
using namespace zorse::test;

namespace {

bool isScaling(const Entry &e) { return isTask(e, Compute::SCALE_SEEDS); }

bool onScaling(Programs &p, Random &r, std::string &w, const std::function<void(bundle::Program &, int entry)> &change) {
  Place place = pickEntry(p, r, isScaling);
  if (!place)
    return false;
  w = at(p, place);
  change(p[size_t(place.program)], place.entry);
  return true;
}

/// Exchanges two entries of one device's compute queue; false when there is no such pair.
bool exchange(Programs &p, Random &r, std::string &w, const std::function<bool(const Entry &)> &with) {
  Place a = pickEntry(p, r, isScaling);
  if (!a)
    return false;
  Place b = pickOther(p, r, a, [&](const Entry &e) { return with(e); });
  if (!b || a.program != b.program)
    return false;
  w = at(p, a) + " and " + at(p, b);
  swapPayload(entryAt(p, a), entryAt(p, b));
  return true;
}

/// The first slot of `kind` in the only call of an entry.
bundle::SlotBinding *slotOf(const RealCase &o, Entry &e, bundle::SlotKind kind) {
  auto &call = *e.mutable_compute()->mutable_calls(0);
  const auto &body = o.model.bodies.bodies(int(call.body()));
  for (int s = 0; s < body.slots_size(); ++s)
    if (body.slots(s).kind() == kind)
      return call.mutable_slots(s);
  return nullptr;
}

} // namespace

void test::addScaleMutations(MutationList &list) {
  auto add = [&](const char *name, decltype(Mutation::apply) apply) { list.push_back({"scales", name, std::move(apply)}); };
  add("seeds not scaled", [](Programs &p, const RealCase &, Random &r, std::string &w) { return onScaling(p, r, w, eraseEntry); });
  add("a scaling without its call", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    return onScaling(p, r, w, [](bundle::Program &program, int e) { program.mutable_entries(e)->mutable_compute()->clear_calls(); });
  });
  add("seeds scaled twice", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    spreadIds(p);
    return onScaling(p, r, w, [](bundle::Program &program, int e) {
      Entry copy = program.entries(e);
      copy.set_id(copy.id() + 1);
      copy.clear_waits();
      insertEntry(program, e + 1, copy);
    });
  });
  add("seeds scaled behind a backward", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    return exchange(p, r, w, [](const Entry &e) { return isTask(e, Compute::B); });
  });
  add("seeds scaled behind the decision", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    return exchange(p, r, w, [](const Entry &e) { return isTask(e, Compute::DECIDE); });
  });
  add("a scaling that evaluations run", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    return onScaling(p, r, w, [](bundle::Program &program, int e) { program.mutable_entries(e)->set_phase(bundle::FORWARD); });
  });
  add("a scaling without waits", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    return onScaling(p, r, w, [](bundle::Program &program, int e) { program.mutable_entries(e)->clear_waits(); });
  });
  add("a scaling of other bytes", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    const bundle::SlotKind kind = r() % 2 ? bundle::SCALARS : bundle::OPTIMIZER_STEP_SLOT;
    const uint64_t by = kind == bundle::SCALARS ? 64 * (1 + r() % 4) : 8 * (1 + r() % 3);
    return onScaling(p, r, w, [&](bundle::Program &program, int e) {
      auto *region = slotOf(o, *program.mutable_entries(e), kind)->mutable_region();
      region->set_offset(region->offset() >= by ? region->offset() - by : region->offset() + by);
    });
  });
  add("a scale that is not kept", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    return onScaling(p, r, w, [](bundle::Program &program, int) {
      for (int s = program.state_size() - 1; s >= 0; --s)
        if (program.state(s).value().kind() == bundle::Value::OPTIMIZER_STEP)
          program.mutable_state()->DeleteSubrange(s, 1);
    });
  });
  add("a device that scales and does not decide", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    return onScaling(p, r, w, [](bundle::Program &program, int) {
      for (int e = program.entries_size() - 1; e >= 0; --e)
        if (isTask(program.entries(e), Compute::DECIDE))
          return eraseEntry(program, e);
    });
  });
  add("a decision from other bytes", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    if (!pickEntry(p, r, isScaling))
      return false;
    Place place = pickEntry(p, r, [](const Entry &e) { return isTask(e, Compute::DECIDE); });
    if (!place)
      return false;
    w = at(p, place);
    auto *region = slotOf(o, entryAt(p, place), r() % 2 ? bundle::OPTIMIZER_STEP_SLOT : bundle::SUMS_SLOT)->mutable_region();
    region->set_offset(region->offset() >= 32 ? region->offset() - 32 : region->offset() + 32);
    return true;
  });
}
