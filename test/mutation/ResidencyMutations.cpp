// State that comes from the host and goes back: left out, at the wrong time, of another home, of another version.
#include "Edit.h"
#include "Mutations.h"

using namespace zorse;
using namespace zorse::test;

namespace {

bundle::MemoryKind kindOf(const bundle::Program &program, const bundle::Region &region) { return program.arenas(int(region.arena())).kind(); }

bool isState(const Entry &e) {
  const auto kind = e.has_copy() ? e.copy().value().kind() : bundle::Value::NONE;
  return kind == bundle::Value::PARAMETERS || kind == bundle::Value::MOMENTS || kind == bundle::Value::REDUCED_GRADIENTS;
}

/// A random copy of state from or to a host.
Place pickCopy(const Programs &p, Random &r, bool fromHost, int program = -1, int not_ = -1) {
  Place place;
  size_t count = 0;
  for (size_t d = 0; d < p.size(); ++d)
    for (int e = 0; e < p[d].entries_size(); ++e) {
      const Entry &entry = p[d].entries(e);
      if ((program >= 0 && int(d) != program) || e == not_ || !isState(entry))
        continue;
      if (kindOf(p[d], fromHost ? entry.copy().from() : entry.copy().to()) != bundle::DEVICE && r() % ++count == 0)
        place = {int(d), e};
    }
  return place;
}

} // namespace

void test::addResidencyMutations(MutationList &list) {
  auto add = [&](const char *name, decltype(Mutation::apply) apply) { list.push_back({"residency", name, std::move(apply)}); };
  for (bool fetch : {true, false}) {
    add(fetch ? "fetch dropped" : "store dropped", [fetch](Programs &p, const RealCase &, Random &r, std::string &w) {
      Place place = pickCopy(p, r, fetch);
      if (!place)
        return false;
      w = at(p, place);
      eraseEntry(p[size_t(place.program)], place.entry);
      return true;
    });
    add(fetch ? "fetch somewhere else in the list" : "store somewhere else in the list",
        [fetch](Programs &p, const RealCase &, Random &r, std::string &w) {
          Place place = pickCopy(p, r, fetch);
          if (!place)
            return false;
          const auto &program = p[size_t(place.program)];
          const Entry &other = program.entries(int(r() % uint32_t(program.entries_size())));
          w = at(p, place) + " before entry " + std::to_string(other.id());
          moveEntry(p, entryAt(p, place).id(), other.id());
          return true;
        });
    add(fetch ? "fetch from another home" : "store into another home", [fetch](Programs &p, const RealCase &, Random &r, std::string &w) {
      for (int attempt = 0; attempt < 20; ++attempt) {
        Place place = pickCopy(p, r, fetch), other = place ? pickCopy(p, r, fetch, place.program, place.entry) : Place();
        if (!other)
          return false;
        auto region = [&](Place of) {
          auto *copy = entryAt(p, of).mutable_copy();
          return fetch ? copy->mutable_from() : copy->mutable_to();
        };
        if (region(place)->bytes() != region(other)->bytes() || region(place)->offset() == region(other)->offset())
          continue;
        region(place)->set_offset(region(other)->offset());
        w = at(p, place) + " with the home of " + at(p, other);
        return true;
      }
      return false;
    });
    add(fetch ? "fetch of the next version" : "store of the version before", [fetch](Programs &p, const RealCase &, Random &r, std::string &w) {
      Place place = pickCopy(p, r, fetch);
      if (!place || entryAt(p, place).copy().value().kind() == bundle::Value::REDUCED_GRADIENTS)
        return false;
      entryAt(p, place).mutable_copy()->mutable_value()->set_version(fetch ? 1 : 0);
      w = at(p, place);
      return true;
    });
    add(fetch ? "fetch without its waits" : "store without its waits", [fetch](Programs &p, const RealCase &, Random &r, std::string &w) {
      Place place = pickCopy(p, r, fetch);
      if (!place || entryAt(p, place).waits_size() == 0)
        return false;
      w = at(p, place);
      entryAt(p, place).clear_waits();
      return true;
    });
    add(fetch ? "fetch in another phase" : "store in another phase", [fetch](Programs &p, const RealCase &, Random &r, std::string &w) {
      Place place = pickCopy(p, r, fetch);
      if (!place)
        return false;
      const bundle::Phase phases[] = {bundle::LOAD, bundle::GATHER, bundle::FORWARD, bundle::BACKWARD, bundle::COMMIT, bundle::UPDATE_STATE};
      entryAt(p, place).set_phase(phases[r() % 6]);
      w = at(p, place);
      return true;
    });
  }
  add("state of the host on the device", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    for (int attempt = 0; attempt < 20; ++attempt) {
      auto &program = p[r() % p.size()];
      for (auto &arena : *program.mutable_arenas())
        if (arena.kind() != bundle::DEVICE) {
          arena.set_kind(bundle::DEVICE);
          program.set_planned_bytes(program.planned_bytes() + arena.bytes());
          w = "device " + std::to_string(program.device());
          return true;
        }
    }
    return false;
  });
}
