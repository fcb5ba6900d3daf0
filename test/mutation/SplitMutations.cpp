// The backward in two tasks: W left out, doubled, too early, too late, or with the wrong block; contributions by both.
#include "Edit.h"
#include "Mutations.h"

#include "zorse/Summary/Summary.h"

using namespace zorse;
using namespace zorse::test;

namespace {

bool isB(const Entry &e) { return isTask(e, Compute::B); }
bool isW(const Entry &e) { return isTask(e, Compute::W); }

Place partner(const Programs &p, Place w) {
  const auto &program = p[size_t(w.program)];
  const int cell = program.entries(w.entry).compute().cell();
  for (int e = 0; e < program.entries_size(); ++e)
    if (isB(program.entries(e)) && program.entries(e).compute().cell() == cell)
      return {w.program, e};
  return {};
}

/// The two parts of a split unit in the tasks of one cell.
struct Parts {
  Place b, w;
  bundle::Call *inBackward = nullptr, *inWeights = nullptr;
};
Parts pickParts(Programs &p, const RealCase &o, Random &r) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    Parts parts;
    parts.w = pickEntry(p, r, isW);
    parts.b = parts.w ? partner(p, parts.w) : Place{};
    if (!parts.b)
      continue;
    auto &calls = *entryAt(p, parts.w).mutable_compute()->mutable_calls();
    parts.inWeights = calls.Mutable(int(r() % uint32_t(calls.size())));
    for (auto &call : *entryAt(p, parts.b).mutable_compute()->mutable_calls())
      if (call.unit() == parts.inWeights->unit() && o.model.summary.units(call.unit()).splits())
        parts.inBackward = &call;
    if (parts.inBackward)
      return parts;
  }
  return {};
}

const bundle::SlotBinding *findSlot(const RealCase &o, const bundle::Call &call, const bundle::Slot &wanted) {
  const auto &body = o.model.bodies.bodies(int(call.body()));
  for (int s = 0; s < body.slots_size(); ++s)
    if (body.slots(s).kind() == wanted.kind() && body.slots(s).index() == wanted.index())
      return &call.slots(s);
  return nullptr;
}

} // namespace

void test::addSplitMutations(MutationList &list) {
  auto add = [&](const char *name, decltype(Mutation::apply) apply) { list.push_back({"split backward", name, std::move(apply)}); };
  add("W dropped", [](Programs &p, const RealCase &, Random &r, std::string &w) { return dropEntry(p, r, w, isW); });
  add("W doubled", [](Programs &p, const RealCase &, Random &r, std::string &w) { return doubleEntry(p, r, w, isW); });
  add("W before its B", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    Parts parts = pickParts(p, o, r);
    if (!parts.w)
      return false;
    w = at(p, parts.w) + " before " + at(p, parts.b);
    moveEntry(p, entryAt(p, parts.w).id(), entryAt(p, parts.b).id());
    return true;
  });
  add("W after everything", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, isW);
    if (!place)
      return false;
    w = at(p, place);
    moveEntry(p, entryAt(p, place).id(), UINT32_MAX);
    return true;
  });
  add("B and W exchanged", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    Parts parts = pickParts(p, o, r);
    if (!parts.w)
      return false;
    w = at(p, parts.w) + " and " + at(p, parts.b);
    swapPayload(entryAt(p, parts.w), entryAt(p, parts.b));
    return true;
  });
  for (bundle::SlotKind kind : {bundle::DEFERRED, bundle::SAVED, bundle::BOUNDARY_OUT_GRADIENT})
    add(kind == bundle::DEFERRED ? "deferred block of another task"
        : kind == bundle::SAVED  ? "W with another saved block"
                                 : "W with another gradient",
        [kind](Programs &p, const RealCase &o, Random &r, std::string &w) {
          auto wanted = [&](const Entry &e, const bundle::Call &, const bundle::Slot &s) { return isW(e) && s.kind() == kind; };
          for (int attempt = 0; attempt < 40; ++attempt) {
            SlotPlace a = pickSlot(p, o.model.bodies, r, wanted);
            if (!a)
              return false;
            SlotPlace b = pickSlot(
                p, o.model.bodies, r, [&](const Entry &, const bundle::Call &, const bundle::Slot &s) { return s.kind() == kind; }, a.place.program);
            auto *x = slotAt(p, a).mutable_region();
            const auto &y = slotAt(p, b).region();
            if (x->bytes() != y.bytes() || x->offset() == y.offset())
              continue;
            *x = y;
            w = at(p, a.place) + " with that of " + at(p, b.place);
            return true;
          }
          return false;
        });
  add("deferred block that nobody wrote", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    SlotPlace s =
        pickSlot(p, o.model.bodies, r, [](const Entry &, const bundle::Call &, const bundle::Slot &slot) { return slot.kind() == bundle::DEFERRED; });
    if (!s)
      return false;
    auto &region = *slotAt(p, s).mutable_region();
    region.set_offset(freshBytes(p[size_t(s.place.program)], region.arena(), region.bytes()));
    w = at(p, s.place);
    return true;
  });
  add("gradients of parameters in B and in W", [](Programs &p, const RealCase &o, Random &r, std::string &w) { // the whole backward in B's place
    Parts parts = pickParts(p, o, r);
    if (!parts.w)
      return false;
    const auto &unit = o.model.summary.units(parts.inWeights->unit());
    bundle::Call whole = *parts.inBackward;
    const uint32_t backward = functionOf(o.model.summary, unit, bundle::UnitFunction::BACKWARD).body();
    whole.set_body(backward);
    whole.clear_slots();
    for (const auto &slot : o.model.bodies.bodies(int(backward)).slots()) {
      const auto *found = findSlot(o, *parts.inBackward, slot);
      found = found ? found : findSlot(o, *parts.inWeights, slot);
      if (!found && slot.kind() != bundle::WORKSPACE)
        return false;
      auto &binding = *whole.add_slots();
      if (found)
        binding = *found;
      const uint64_t bytes = uint64_t(slot.bytes().fixed() + slot.bytes().per_row() * whole.rows());
      if (binding.region().bytes() != bytes) { // a workspace of its own
        binding.mutable_region()->set_bytes(bytes);
        binding.mutable_region()->set_offset(freshBytes(p[size_t(parts.b.program)], 0, bytes));
      }
      if (r() % 2)
        binding.set_overwrite(false);
    }
    *parts.inBackward = whole;
    w = at(p, parts.b) + " and " + at(p, parts.w);
    return true;
  });
  add("call of W dropped", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return isW(e) && e.compute().calls_size() > 1; });
    if (!place)
      return false;
    auto *calls = entryAt(p, place).mutable_compute()->mutable_calls();
    calls->DeleteSubrange(int(r() % uint32_t(calls->size())), 1);
    w = at(p, place);
    return true;
  });
}
