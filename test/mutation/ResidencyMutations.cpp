// State that comes from the host and goes back, and activations that go there and come back: left out, at the wrong time, of another home, into
// another image, of another version.
#include "Edit.h"
#include "Mutations.h"

#include "zorse/Summary/Summary.h"

using namespace zorse;
using namespace zorse::test;

namespace {

bundle::MemoryKind kindOf(const bundle::Program &program, const bundle::Region &region) { return program.arenas(int(region.arena())).kind(); }

/// What a device keeps on its host: a kind of values, and what their copies are called.
struct Kept {
  const char *fetch, *store;
  bool (*is)(bundle::Value::Kind kind);
};
const Kept kKept[] = {
    {"fetch", "store",
     [](bundle::Value::Kind kind) {
       return kind == bundle::Value::PARAMETERS || kind == bundle::Value::MOMENTS || kind == bundle::Value::REDUCED_GRADIENTS;
     }},
    {"return of activations", "offload",
     [](bundle::Value::Kind kind) { return kind == bundle::Value::SAVED_BLOCK || kind == bundle::Value::ACTIVATION; }},
};

/// A random copy from or to a host.
Place pickCopy(const Programs &p, Random &r, const Kept &kept, bool fromHost, int program = -1, int not_ = -1) {
  Place place;
  size_t count = 0;
  for (size_t d = 0; d < p.size(); ++d)
    for (int e = 0; e < p[d].entries_size(); ++e) {
      const Entry &entry = p[d].entries(e);
      if ((program >= 0 && int(d) != program) || e == not_ || !entry.has_copy() || !kept.is(entry.copy().value().kind()))
        continue;
      if (kindOf(p[d], fromHost ? entry.copy().from() : entry.copy().to()) != bundle::DEVICE && r() % ++count == 0)
        place = {int(d), e};
    }
  return place;
}

bool isRepeated(const Entry &e, const bundle::Call &call, const RealCase &o) {
  if (!e.has_compute() || e.compute().task() != bundle::Compute::B || call.unit() < 0)
    return false;
  const auto &unit = o.model.summary.units(call.unit());
  const auto *repeats = findFunction(classOf(o.model.summary, unit), bundle::UnitFunction::RECOMPUTE);
  return call.body() == functionOf(o.model.summary, unit, bundle::UnitFunction::FORWARD).body() || (repeats && call.body() == repeats->body());
}

/// A random call with which a B begins, of what its F did. \returns its index in `call`
Place pickRepeated(const Programs &p, const RealCase &o, Random &r, int &call) {
  Place place;
  size_t count = 0;
  for (size_t d = 0; d < p.size(); ++d)
    for (int e = 0; e < p[d].entries_size(); ++e)
      for (int c = 0; p[d].entries(e).has_compute() && c < p[d].entries(e).compute().calls_size(); ++c)
        if (isRepeated(p[d].entries(e), p[d].entries(e).compute().calls(c), o) && r() % ++count == 0) {
          place = {int(d), e};
          call = c;
        }
  return place;
}

} // namespace

void test::addResidencyMutations(MutationList &list) {
  auto add = [&](const std::string &name, decltype(Mutation::apply) apply) { list.push_back({"residency", name, std::move(apply)}); };
  for (int way = 0; way < 4; ++way) {
    const bool fetch = way % 2 == 0;
    const Kept &kept = kKept[way / 2];
    const std::string name = fetch ? kept.fetch : kept.store;
    add(name + " dropped", [fetch, &kept](Programs &p, const RealCase &, Random &r, std::string &w) {
      Place place = pickCopy(p, r, kept, fetch);
      if (!place)
        return false;
      w = at(p, place);
      eraseEntry(p[size_t(place.program)], place.entry);
      return true;
    });
    add(name + " somewhere else in the list", [fetch, &kept](Programs &p, const RealCase &, Random &r, std::string &w) {
      Place place = pickCopy(p, r, kept, fetch);
      if (!place)
        return false;
      const auto &program = p[size_t(place.program)];
      const Entry &other = program.entries(int(r() % uint32_t(program.entries_size())));
      w = at(p, place) + " before entry " + std::to_string(other.id());
      moveEntry(p, entryAt(p, place).id(), other.id());
      return true;
    });
    add(name + (fetch ? " from another home" : " into another home"), [fetch, &kept](Programs &p, const RealCase &, Random &r, std::string &w) {
      for (int attempt = 0; attempt < 20; ++attempt) {
        Place place = pickCopy(p, r, kept, fetch), other = place ? pickCopy(p, r, kept, fetch, place.program, place.entry) : Place();
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
    add(name + (fetch ? " of the next version" : " of the version before"), [fetch, &kept](Programs &p, const RealCase &, Random &r, std::string &w) {
      Place place = pickCopy(p, r, kept, fetch);
      if (!place ||
          (entryAt(p, place).copy().value().kind() != bundle::Value::PARAMETERS && entryAt(p, place).copy().value().kind() != bundle::Value::MOMENTS))
        return false;
      entryAt(p, place).mutable_copy()->mutable_value()->set_version(fetch ? 1 : 0);
      w = at(p, place);
      return true;
    });
    add(name + " without its waits", [fetch, &kept](Programs &p, const RealCase &, Random &r, std::string &w) {
      Place place = pickCopy(p, r, kept, fetch);
      if (!place || entryAt(p, place).waits_size() == 0)
        return false;
      w = at(p, place);
      entryAt(p, place).clear_waits();
      return true;
    });
    add(name + " in another phase", [fetch, &kept](Programs &p, const RealCase &, Random &r, std::string &w) {
      Place place = pickCopy(p, r, kept, fetch);
      if (!place)
        return false;
      const bundle::Phase phases[] = {bundle::LOAD, bundle::GATHER, bundle::FORWARD, bundle::BACKWARD, bundle::COMMIT, bundle::UPDATE_STATE};
      entryAt(p, place).set_phase(phases[r() % 6]);
      w = at(p, place);
      return true;
    });
  }
  add("return of activations into another image", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    for (int attempt = 0; attempt < 20; ++attempt) {
      Place place = pickCopy(p, r, kKept[1], true), other = place ? pickCopy(p, r, kKept[1], true, place.program, place.entry) : Place();
      if (!other)
        return false;
      auto &to = *entryAt(p, place).mutable_copy()->mutable_to();
      const auto &image = entryAt(p, other).copy().to();
      if (to.bytes() != image.bytes() || to.offset() == image.offset())
        continue;
      to.set_offset(image.offset());
      w = at(p, place) + " into the image of " + at(p, other);
      return true;
    }
    return false;
  });
  add("repeated call dropped", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    int call = 0;
    Place place = pickRepeated(p, o, r, call);
    if (!place)
      return false;
    w = at(p, place) + ", call " + std::to_string(call);
    entryAt(p, place).mutable_compute()->mutable_calls()->DeleteSubrange(call, 1);
    return true;
  });
  add("repeated call after the backward", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    int call = 0;
    Place place = pickRepeated(p, o, r, call);
    if (!place)
      return false;
    w = at(p, place) + ", call " + std::to_string(call);
    auto &calls = *entryAt(p, place).mutable_compute()->mutable_calls();
    for (int c = call; c + 1 < calls.size(); ++c)
      calls.SwapElements(c, c + 1);
    return true;
  });
  add("repeated call of other samples", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    int call = 0;
    Place place = pickRepeated(p, o, r, call);
    if (!place)
      return false;
    w = at(p, place) + ", call " + std::to_string(call);
    auto &repeated = *entryAt(p, place).mutable_compute()->mutable_calls(call);
    repeated.set_sample_base(repeated.sample_base() + 1);
    return true;
  });
  add("repeated call of other random instances", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    int call = 0;
    Place place = pickRepeated(p, o, r, call);
    if (!place)
      return false;
    w = at(p, place) + ", call " + std::to_string(call);
    auto &repeated = *entryAt(p, place).mutable_compute()->mutable_calls(call);
    repeated.set_instance_base(repeated.instance_base() + 1);
    return true;
  });
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

  // The place of an update, and the decision that comes to it.
  auto arenaOf = [](const bundle::Program &program, bool onHost) {
    for (int a = 0; a < program.arenas_size(); ++a)
      if ((program.arenas(a).kind() != bundle::DEVICE) == onHost)
        return a;
    return -1;
  };
  auto isByHost = [](const bundle::Program &program, const Entry &e) {
    return kindOf(program, e.compute().calls(0).slots(0).region()) != bundle::DEVICE;
  };
  auto pickUpdate = [isByHost](const Programs &p, Random &r, bool byHost) {
    Place place;
    size_t count = 0;
    for (size_t d = 0; d < p.size(); ++d)
      for (int e = 0; e < p[d].entries_size(); ++e)
        if (isTask(p[d].entries(e), Compute::UPDATE_GROUP) && isByHost(p[d], p[d].entries(e)) == byHost && r() % ++count == 0)
          place = {int(d), e};
    return place;
  };
  for (bool byHost : {true, false})
    for (bool all : {true, false})
      add(byHost ? (all ? "update of the host in memory of the device" : "update of the host with a slot on the device")
                 : (all ? "update of the device in memory of the host" : "update of the device with a slot on the host"),
          [pickUpdate, arenaOf, byHost, all](Programs &p, const RealCase &, Random &r, std::string &w) {
            Place place = pickUpdate(p, r, byHost);
            const int other = place ? arenaOf(p[size_t(place.program)], !byHost) : -1;
            if (other < 0)
              return false;
            auto *calls = entryAt(p, place).mutable_compute()->mutable_calls();
            auto *one = calls->Mutable(int(r() % uint32_t(calls->size())));
            const int chosen = int(r() % uint32_t(one->slots_size()));
            for (auto &call : *calls)
              for (int s = 0; s < call.slots_size(); ++s)
                if (all || (&call == one && s == chosen)) {
                  auto *region = call.mutable_slots(s)->mutable_region();
                  region->set_offset(freshBytes(p[size_t(place.program)], uint32_t(other), region->bytes()));
                  region->set_arena(uint32_t(other));
                }
            w = at(p, place);
            return true;
          });
  add("update on the host dropped", [pickUpdate](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickUpdate(p, r, true);
    if (!place)
      return false;
    w = at(p, place);
    eraseEntry(p[size_t(place.program)], place.entry);
    return true;
  });
  add("update on the host without its waits", [pickUpdate](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickUpdate(p, r, true);
    if (!place || entryAt(p, place).waits_size() == 0)
      return false;
    w = at(p, place);
    entryAt(p, place).clear_waits();
    return true;
  });
  add("update on the host of a copy", [pickUpdate](Programs &p, const RealCase &o, Random &r, std::string &w) {
    Place place = pickUpdate(p, r, true);
    if (!place)
      return false;
    auto &program = p[size_t(place.program)];
    auto *call = entryAt(p, place).mutable_compute()->mutable_calls(0);
    for (int s = 0; s < call->slots_size(); ++s)
      if (const auto &slot = o.model.bodies.bodies(int(call->body())).slots(s); slot.kind() == bundle::STATE && slot.index() == 0) {
        auto *region = call->mutable_slots(s)->mutable_region();
        region->set_offset(freshBytes(program, region->arena(), region->bytes()));
        w = at(p, place);
        return true;
      }
    return false;
  });
  for (auto kind : {bundle::Value::STEP_SCALARS, bundle::Value::OPTIMIZER_STEP}) {
    auto isDecision = [kind](const Entry &e) { return e.has_copy() && e.copy().value().kind() == kind; };
    const bool scalars = kind == bundle::Value::STEP_SCALARS;
    add(scalars ? "scalars not brought to the host" : "optimizer step not brought to the host",
        [isDecision](Programs &p, const RealCase &, Random &r, std::string &w) {
          Place place = pickEntry(p, r, isDecision);
          if (!place)
            return false;
          w = at(p, place);
          eraseEntry(p[size_t(place.program)], place.entry);
          return true;
        });
    add(scalars ? "scalars brought to the host at another time" : "optimizer step brought to the host at another time",
        [isDecision](Programs &p, const RealCase &, Random &r, std::string &w) {
          Place place = pickEntry(p, r, isDecision);
          if (!place)
            return false;
          const auto &program = p[size_t(place.program)];
          const Entry &other = program.entries(int(r() % uint32_t(program.entries_size())));
          w = at(p, place) + " before entry " + std::to_string(other.id());
          moveEntry(p, entryAt(p, place).id(), other.id());
          return true;
        });
    add(scalars ? "scalars to the host without waits" : "optimizer step to the host without waits",
        [isDecision](Programs &p, const RealCase &, Random &r, std::string &w) {
          Place place = pickEntry(p, r, [&](const Entry &e) { return isDecision(e) && e.waits_size() > 0; });
          if (!place)
            return false;
          w = at(p, place);
          entryAt(p, place).clear_waits();
          return true;
        });
  }

  // Commit by group.
  auto byGroup = [&list](const char *name, decltype(Mutation::apply) apply) {
    list.push_back(
        {"commit", name, [apply](Programs &p, const RealCase &o, Random &r, std::string &w) { return o.plan.commitsByGroup && apply(p, o, r, w); }});
  };
  auto sumsOf = [](Programs &p, const RealCase &o, Place place) -> bundle::Region * {
    auto *call = entryAt(p, place).mutable_compute()->mutable_calls(0);
    for (int s = 0; s < call->slots_size(); ++s)
      if (o.model.bodies.bodies(int(call->body())).slots(s).kind() == bundle::SUMS_SLOT)
        return call->mutable_slots(s)->mutable_region();
    return nullptr;
  };
  byGroup("decision by the sums so far", [sumsOf](Programs &p, const RealCase &o, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return isTask(e, Compute::DECIDE); });
    auto *sums = place ? sumsOf(p, o, place) : nullptr;
    if (!sums)
      return false;
    sums->set_offset(sums->offset() - sums->bytes()); // those that tasks add to lie before
    w = at(p, place);
    return true;
  });
  byGroup("loss or norm added to what decisions read", [sumsOf](Programs &p, const RealCase &o, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return isTask(e, Compute::NORM) || isTask(e, Compute::SUM_LOSS); });
    auto *sums = place ? sumsOf(p, o, place) : nullptr;
    if (!sums)
      return false;
    sums->set_offset(sums->offset() + sums->bytes());
    w = at(p, place);
    return true;
  });
  for (auto task : {Compute::DECIDE, Compute::UPDATE_GROUP}) {
    const bool decides = task == Compute::DECIDE;
    byGroup(decides ? "decision somewhere else in the list" : "update somewhere else in the list",
            [task](Programs &p, const RealCase &, Random &r, std::string &w) {
              Place place = pickEntry(p, r, [&](const Entry &e) { return isTask(e, task); });
              if (!place)
                return false;
              const auto &program = p[size_t(place.program)];
              const Entry &other = program.entries(int(r() % uint32_t(program.entries_size())));
              w = at(p, place) + " before entry " + std::to_string(other.id());
              moveEntry(p, entryAt(p, place).id(), other.id());
              return true;
            });
    byGroup(decides ? "decision without its waits" : "update without its waits", [task](Programs &p, const RealCase &, Random &r, std::string &w) {
      Place place = pickEntry(p, r, [&](const Entry &e) { return isTask(e, task) && e.waits_size() > 0; });
      if (!place)
        return false;
      w = at(p, place);
      entryAt(p, place).clear_waits();
      return true;
    });
    byGroup(decides ? "decision on another queue" : "update on another queue", [task](Programs &p, const RealCase &, Random &r, std::string &w) {
      Place place = pickEntry(p, r, [&](const Entry &e) { return isTask(e, task); });
      if (!place)
        return false;
      auto &program = p[size_t(place.program)];
      Entry moved = entryAt(p, place);
      moved.set_queue(uint32_t(r() % uint32_t(program.queues_size())));
      if (moved.queue() == entryAt(p, place).queue())
        return false;
      w = at(p, place);
      eraseEntry(program, place.entry);
      insertEntry(program, place.entry, moved);
      return true;
    });
  }
}
