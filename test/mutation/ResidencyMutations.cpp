// Mutations of the copies of state and activations between device and host: missing, at the wrong
// time, from another persistent buffer, into another device buffer, or of another version.
#include "Change.h"

#include "zorse/Summary/Summary.h"

using namespace zorse;
using namespace zorse::test;

namespace {

bundle::MemoryKind kindOf(const bundle::Program &program, const bundle::Region &region) {
  return program.arenas(int(region.arena())).kind();
}

/// A kind of values that a device keeps on its host, and the names of their copies.
struct Kept {
  const char *fetch, *store;
  bool (*is)(bundle::Value::Kind kind);
};
const Kept kKept[] = {
    {"fetch", "store",
     [](bundle::Value::Kind kind) {
       return kind == bundle::Value::PARAMETERS || kind == bundle::Value::MOMENTS ||
              kind == bundle::Value::REDUCED_GRADIENTS;
     }},
    {"return of activations", "offload",
     [](bundle::Value::Kind kind) {
       return kind == bundle::Value::SAVED_BLOCK || kind == bundle::Value::ACTIVATION;
     }},
};

/// Picks a random copy from or to a host. If `other` is given, the copy is another one on the same
/// device.
Place pickCopy(const Change &m, const Kept &kept, bool fromHost, Place other = {}) {
  return pickWhere(m.programs, m.random, [&](const bundle::Program &program, const Instruction &e) {
    if (!e.has_copy() || !kept.is(e.copy().value().kind()))
      return false;
    if (other && (&program != &m.programs[size_t(other.program)] ||
                  &e == &program.instructions(other.instruction)))
      return false;
    return kindOf(program, fromHost ? e.copy().from() : e.copy().to()) != bundle::DEVICE;
  });
}

/// Moves one end of a copy to that of another copy, of equal size at another offset.
bool takeEnd(Change &m, const Kept &kept, bool fetch, bool from, const char *word) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    Place place = pickCopy(m, kept, fetch),
          other = place ? pickCopy(m, kept, fetch, place) : Place();
    if (!other)
      return false;
    auto region = [&](Place of) {
      auto *copy = instructionAt(m.programs, of).mutable_copy();
      return from ? copy->mutable_from() : copy->mutable_to();
    };
    if (region(place)->bytes() != region(other)->bytes() ||
        region(place)->offset() == region(other)->offset())
      continue;
    region(place)->set_offset(region(other)->offset());
    m.what = at(m.programs, place) + word + at(m.programs, other);
    return true;
  }
  return false;
}

bool otherVersion(Change &m, bool fetch) {
  auto &value = valueOf(m.instruction());
  if (value.kind() != bundle::Value::PARAMETERS && value.kind() != bundle::Value::MOMENTS)
    return false;
  value.set_version(fetch ? 1 : 0);
  return true;
}

bool anotherPhase(Change &m) {
  const bundle::Phase phases[] = {bundle::LOAD,     bundle::GATHER,    bundle::FORWARD,
                                  bundle::BACKWARD, bundle::GRAD_NORM, bundle::UPDATE_STATE};
  m.instruction().set_phase(phases[m.draw(6)]);
  return true;
}

void addCopies(MutationList &list, const Kept &kept, bool fetch) {
  const std::string name = fetch ? kept.fetch : kept.store;
  const Pick copy = [&kept, fetch](Change &m) { return pickCopy(m, kept, fetch); };
  addRows(list, "residency",
          {
              {name + " dropped", copy, dropHalf},
              {name + " somewhere else in the list", copy, moveAnywhere},
              {name + (fetch ? " from another home" : " into another home"), nullptr,
               [&kept, fetch](Change &m) {
                 return takeEnd(m, kept, fetch, fetch, " with the home of ");
               }},
              {name + (fetch ? " of the next version" : " of the version before"), copy,
               [fetch](Change &m) { return otherVersion(m, fetch); }},
              {name + " without its waits", copy, dropWaits},
              {name + " in another phase", copy, anotherPhase},
          });
}

bool isRepeated(const Instruction &e, const bundle::Call &call,
                const bundle::ModelSummary &summary) {
  if (!e.has_compute() || e.compute().task() != bundle::Compute::B || call.unit() < 0)
    return false;
  const auto &unit = summary.units(call.unit());
  const auto *repeats = findFunction(classOf(summary, unit), bundle::UnitFunction::RECOMPUTE);
  return call.function() == functionOf(summary, unit, bundle::UnitFunction::FORWARD).function() ||
         (repeats && call.function() == repeats->function());
}

/// Picks a random call at the start of a B that recomputes its F.
Place pickRepeated(Change &m) {
  Place place;
  size_t count = 0;
  for (size_t d = 0; d < m.programs.size(); ++d)
    for (int e = 0; e < m.programs[d].instructions_size(); ++e) {
      const Instruction &instruction = m.programs[d].instructions(e);
      for (int c = 0; c < instruction.compute().calls_size(); ++c)
        if (isRepeated(instruction, instruction.compute().calls(c), m.original.model.summary) &&
            m.random() % ++count == 0) {
          place = {int(d), e};
          m.call = c;
        }
    }
  return place;
}

using Calls = google::protobuf::RepeatedPtrField<bundle::Call>;
Row onRepeated(const char *name, void (*edit)(Calls &calls, int repeated)) {
  return {name, pickRepeated, [edit](Change &m) {
            m.what += ", call " + std::to_string(m.call);
            edit(*m.compute().mutable_calls(), m.call);
            return true;
          }};
}

bool moveToDevice(Change &m) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    auto &program = m.drawProgram();
    for (auto &arena : *program.mutable_arenas())
      if (arena.kind() != bundle::DEVICE) {
        arena.set_kind(bundle::DEVICE);
        program.set_planned_bytes(program.planned_bytes() + arena.bytes());
        return true;
      }
  }
  return false;
}

// Device or host of an update, and the decision that is copied there.

bool isByHost(const bundle::Program &program, const Instruction &e) {
  return kindOf(program, bundle::ArgumentBindings(program, e.compute().calls(0))[0].region) !=
         bundle::DEVICE;
}

Pick updateBy(bool host) {
  return [host](Change &m) {
    return pickWhere(m.programs, m.random,
                     [&](const bundle::Program &program, const Instruction &e) {
                       return isUpdate(e) && isByHost(program, e) == host;
                     });
  };
}

/// Moves all arguments of an update, or one of them, to the memory in which the update does not
/// run.
bool moveArguments(Change &m, bool all) {
  auto &program = m.program();
  const bool toHost = !isByHost(program, m.instruction());
  int other = 0;
  while (other < program.arenas_size() &&
         (program.arenas(other).kind() != bundle::DEVICE) != toHost)
    ++other;
  if (other == program.arenas_size())
    return false;
  auto *calls = m.compute().mutable_calls();
  const auto *one = &m.drawCall();
  const int chosen = m.draw(bundle::ArgumentBindings(program, *one).size());
  for (auto &call : *calls)
    for (int s = 0; s < bundle::ArgumentBindings(program, call).size(); ++s)
      if (all || (&call == one && s == chosen)) {
        auto *region = EditedArgument(program, call, s).mutable_region();
        region->set_offset(freshBytes(program, uint32_t(other), region->bytes()));
        region->set_arena(uint32_t(other));
      }
  return true;
}

bool updateCopy(Change &m) {
  auto *region = m.regionOf(bundle::STATE, 0);
  if (!region)
    return false;
  region->set_offset(freshBytes(m.program(), region->arena(), region->bytes()));
  return true;
}

void addDecisions(MutationList &list, const std::string &name, bundle::Value::Kind kind) {
  auto copies = [kind](const Instruction &e) {
    return e.has_copy() && e.copy().value().kind() == kind;
  };
  addRows(list, "residency",
          {
              {name + " not brought to the host", copies, dropHalf},
              {name + " brought to the host at another time", copies, moveAnywhere},
              {name + " to the host without waits",
               [copies](const Instruction &e) { return copies(e) && hasWaits(e); }, dropWaits},
          });
}

// Updates by group.

Pick byGroup(const Wanted &wanted) {
  return [wanted](Change &m) {
    return m.original.plan.commitsByGroup ? pickInstruction(m.programs, m.random, wanted) : Place();
  };
}

/// Replaces sums. The sums that tasks add to lie before the sums that decisions read.
bool otherSums(Change &m, bool next) {
  auto *sums = m.regionOf(bundle::LOCAL_METRICS);
  if (!sums)
    return false;
  sums->set_offset(next ? sums->offset() + sums->bytes() : sums->offset() - sums->bytes());
  return true;
}

void addCommits(MutationList &list, const std::string &name, Compute::Task task) {
  addRows(list, "commit",
          {
              {name + " somewhere else in the list", byGroup(taskIs(task)), moveAnywhere},
              {name + " without its waits",
               byGroup([task](const Instruction &e) { return isTask(e, task) && hasWaits(e); }),
               dropWaits},
              {name + " on another queue", byGroup(taskIs(task)), anotherQueue},
          });
}

} // namespace

void test::addResidencyMutations(MutationList &list) {
  for (const Kept &kept : kKept)
    for (bool fetch : {true, false})
      addCopies(list, kept, fetch);
  addRows(list, "residency",
          {
              {"return of activations into another image", nullptr,
               [](Change &m) { return takeEnd(m, kKept[1], true, false, " into the image of "); }},
              onRepeated("repeated call dropped",
                         [](Calls &calls, int c) { calls.DeleteSubrange(c, 1); }),
              onRepeated("repeated call after the backward",
                         [](Calls &calls, int c) {
                           for (; c + 1 < calls.size(); ++c)
                             calls.SwapElements(c, c + 1);
                         }),
              onRepeated("repeated call of other samples",
                         [](Calls &calls, int c) {
                           calls[c].set_sample_base(calls[c].sample_base() + 1);
                         }),
              onRepeated("repeated call of other random instances",
                         [](Calls &calls, int c) {
                           calls[c].set_rng_id_base(calls[c].rng_id_base() + 1);
                         }),
              {"state of the host on the device", nullptr, moveToDevice},
              {"update of the host in memory of the device", updateBy(true),
               [](Change &m) { return moveArguments(m, true); }},
              {"update of the host with an argument on the device", updateBy(true),
               [](Change &m) { return moveArguments(m, false); }},
              {"update of the device in memory of the host", updateBy(false),
               [](Change &m) { return moveArguments(m, true); }},
              {"update of the device with an argument on the host", updateBy(false),
               [](Change &m) { return moveArguments(m, false); }},
              {"update on the host dropped", updateBy(true), dropHalf},
              {"update on the host without its waits", updateBy(true), dropWaits},
              {"update on the host of a copy", updateBy(true), updateCopy},
          });
  addDecisions(list, "scalars", bundle::Value::STEP_SCALARS);
  addDecisions(list, "optimizer step", bundle::Value::OPTIMIZER_STEP);
  addRows(list, "commit",
          {
              {"decision by the sums so far", byGroup(isDecision),
               [](Change &m) { return otherSums(m, false); }},
              {"loss or norm added to what decisions read", byGroup(addsToSums),
               [](Change &m) { return otherSums(m, true); }},
          });
  addCommits(list, "decision", Compute::CLIP_AND_CHECK);
  addCommits(list, "update", Compute::UPDATE_GROUP);
}
