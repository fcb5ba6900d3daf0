// exchange-mutants [--roundings] BUNDLE: changes the programs of a bundle with groups of devices,
// one exchange, segment or collective of parts at a time, in ways that are always harmful. Prints
// the number of mutants that the verifier rejects. Exits with 1 if it accepts one, or rejects the
// unchanged programs.
#include "zorse/Verify/Verify.h"
#include "zorse/runtime/Bundle.h"

#include <cstdio>
#include <functional>

using namespace zorse;
using bundle::Instruction;
using Programs = std::vector<bundle::Program>;

namespace {

bool isExchange(const Instruction &instruction) {
  return (instruction.has_all_gather() &&
          instruction.all_gather().value().kind() == bundle::Value::EXCHANGED) ||
         (instruction.has_reduce_scatter() &&
          instruction.reduce_scatter().value().kind() == bundle::Value::EXCHANGED);
}

bundle::Value &valueOf(Instruction &instruction) {
  return instruction.has_all_gather() ? *instruction.mutable_all_gather()->mutable_value()
                                      : *instruction.mutable_reduce_scatter()->mutable_value();
}

bundle::ShardRanges &shardsOf(Instruction &instruction) {
  return instruction.has_all_gather() ? *instruction.mutable_all_gather()->mutable_shards()
                                      : *instruction.mutable_reduce_scatter()->mutable_shards();
}

/// Runs of the members of a collective that have different elements.
bundle::ShardRanges &partsOf(Instruction &instruction) {
  return instruction.has_all_gather() ? *instruction.mutable_all_gather()->mutable_reads()
                                      : *instruction.mutable_reduce_scatter()->mutable_terms();
}

bool hasParts(const Instruction &instruction) {
  return instruction.all_gather().reads().members_size() ||
         instruction.reduce_scatter().terms().members_size();
}

void removeRun(bundle::ShardRanges &runs, int index) {
  for (auto *list : {runs.mutable_begin(), runs.mutable_end()})
    list->erase(list->begin() + index);
  runs.mutable_members()->erase(runs.mutable_members()->begin() + index);
}

class Mutants {
public:
  explicit Mutants(runtime::Bundle bundle) : bundle(std::move(bundle)) {
    auto read = verify::readPlanView(this->bundle.plan);
    if (!read.failed())
      view = std::move(*read);
  }

  bool accepts(const Programs &programs) const {
    return verify::verifyPrograms(bundle.summary, bundle.functions, view, programs).empty();
  }

  using Change = std::function<bool(Instruction &)>;

  void ofExchanges(const char *name, const Change &change) { ofAll(isExchange, name, change); }

  /// Calls `change` for every collective of members with different elements.
  void ofParts(const char *name, const Change &change) { ofAll(hasParts, name, change); }

  /// Calls `change` for every instruction of a kind, on all devices that take part in it.
  void ofAll(bool (*isOfKind)(const Instruction &), const char *name, const Change &change) {
    for (const Instruction &original : bundle.programs[0].instructions()) {
      if (!isOfKind(original))
        continue;
      Programs programs = bundle.programs;
      bool changed = false;
      for (bundle::Program &program : programs)
        for (Instruction &instruction : *program.mutable_instructions())
          if (instruction.id() == original.id())
            changed = change(instruction) || changed;
      if (changed)
        count(name, original.id(), programs);
    }
  }

  /// Calls `change` for every task of a cell, on one device.
  void ofTasks(const char *name, const std::function<bool(Instruction &)> &change) {
    for (size_t d = 0; d < bundle.programs.size(); ++d)
      for (int i = 0; i < bundle.programs[d].instructions_size(); ++i) {
        if (bundle.programs[d].instructions(i).compute().calls().empty() ||
            bundle.programs[d].instructions(i).compute().calls(0).unit() < 0)
          continue;
        Programs programs = bundle.programs;
        if (change(*programs[d].mutable_instructions(i)))
          count(name, programs[d].instructions(i).id(), programs);
      }
  }

  void count(const char *name, uint64_t id, const Programs &programs) {
    ++made;
    if (!accepts(programs))
      return;
    ++accepted;
    std::printf("FAIL accepted: %s, instruction %llu\n", name, static_cast<unsigned long long>(id));
  }

  runtime::Bundle bundle;
  int made = 0, accepted = 0;

private:
  verify::PlanView view;
};

void changeExchanges(Mutants &mutants) {
  mutants.ofExchanges("the exchange of another number", [](Instruction &instruction) {
    valueOf(instruction).set_cut(valueOf(instruction).cut() + 1);
    return true;
  });
  mutants.ofExchanges("samples of another micro-batch", [](Instruction &instruction) {
    bundle::Value &value = valueOf(instruction);
    const int64_t rows = value.end() - value.begin();
    value.set_begin(value.begin() >= rows ? value.begin() - rows : value.begin() + rows);
    value.set_end(value.begin() + rows);
    return true;
  });
  mutants.ofExchanges("a part that no device has", [](Instruction &instruction) {
    bundle::ShardRanges &shards = shardsOf(instruction);
    shards.set_begin(1, shards.begin(1) + 16);
    return true;
  });
  mutants.ofExchanges("no wait for the tasks before", [](Instruction &instruction) {
    const bool waits = instruction.waits_size() != 0;
    instruction.clear_waits();
    return waits;
  });
  mutants.ofExchanges("one contributor less", [](Instruction &instruction) {
    if (!instruction.has_reduce_scatter())
      return false;
    instruction.mutable_reduce_scatter()->mutable_contributors()->RemoveLast();
    return true;
  });
}

void changeTasks(Mutants &mutants) {
  mutants.ofTasks("another segment", [](Instruction &instruction) {
    bundle::Call &call = *instruction.mutable_compute()->mutable_calls(0);
    if (call.segment() == 0)
      return false;
    call.set_segment(call.segment() - 1);
    return true;
  });
  mutants.ofTasks("no wait for the exchange", [](Instruction &instruction) {
    const bool follows = instruction.compute().calls(0).segment() > 0 && instruction.waits_size();
    if (follows)
      instruction.clear_waits();
    return follows;
  });
  mutants.ofTasks("a segment left out", [](Instruction &instruction) {
    if (instruction.compute().calls(0).segment() == 0)
      return false;
    instruction.mutable_compute()->mutable_calls()->DeleteSubrange(0, 1);
    return true;
  });
  mutants.ofTasks("a first contribution that is added", [](Instruction &instruction) {
    for (bundle::Call &call : *instruction.mutable_compute()->mutable_calls())
      for (bool &overwrites : *call.mutable_overwrites())
        if (std::exchange(overwrites, false))
          return true;
    return false;
  });
  mutants.ofTasks("a segment of other samples", [](Instruction &instruction) {
    bundle::Call &call = *instruction.mutable_compute()->mutable_calls(0);
    call.set_sample_base(call.sample_base() + call.rows());
    return true;
  });
}

void changeParts(Mutants &mutants) {
  auto ofRuns = [&](const char *name, auto change) {
    mutants.ofParts(
        name, [&](Instruction &instruction) { return change(partsOf(instruction), instruction); });
  };
  ofRuns("a member without its last run", [](bundle::ShardRanges &runs, Instruction &) {
    removeRun(runs, runs.members_size() - 1);
    return true;
  });
  ofRuns("a run that begins 128 elements late", [](bundle::ShardRanges &runs, Instruction &) {
    runs.set_begin(0, runs.begin(0) + 128);
    return true;
  });
  ofRuns("a run that ends 128 elements early", [](bundle::ShardRanges &runs, Instruction &) {
    runs.set_end(0, runs.end(0) - 128);
    return true;
  });
  ofRuns("the runs of two members exchanged", [](bundle::ShardRanges &runs, Instruction &) {
    const uint32_t first = runs.members(0), last = runs.members(runs.members_size() - 1);
    for (uint32_t &member : *runs.mutable_members())
      member = member == first ? last : member == last ? first : member;
    return first != last;
  });
  ofRuns("a shard without an owner", [](bundle::ShardRanges &, Instruction &instruction) {
    removeRun(shardsOf(instruction), 0);
    return true;
  });
  ofRuns("a shard of another device", [](bundle::ShardRanges &runs, Instruction &instruction) {
    bundle::ShardRanges &shards = shardsOf(instruction);
    const uint32_t other =
        runs.members(shards.members(0) == runs.members(0) ? runs.members_size() - 1 : 0);
    const bool differs = other != shards.members(0);
    shards.set_members(0, other);
    return differs;
  });
  ofRuns("no runs", [](bundle::ShardRanges &runs, Instruction &) {
    runs.Clear();
    return true;
  });
}

/// Changes whether the terms of sums are rounded.
void changeRounding(Mutants &mutants) {
  auto isSum = [](const Instruction &instruction) { return instruction.has_reduce_scatter(); };
  mutants.ofAll(isSum, "terms rounded, or not, against the plan", [](Instruction &instruction) {
    auto &sum = *instruction.mutable_reduce_scatter();
    sum.set_term_type(sum.term_type() ? bundle::ELEMENT_TYPE_UNSPECIFIED : bundle::BF16);
    return true;
  });
  mutants.ofAll(isSum, "terms rounded to f16", [](Instruction &instruction) {
    instruction.mutable_reduce_scatter()->set_term_type(bundle::F16);
    return true;
  });
}

/// Binds a device's units to other parts of parameters than the programs do.
void changeUnits(Mutants &mutants) {
  bundle::ModelSummary &summary = mutants.bundle.summary;
  for (int g = 0; g < summary.device_groups_size(); ++g)
    for (int m = 0; m < summary.device_groups(g).members_size(); ++m)
      for (int u = 0; u < summary.device_groups(g).members(m).units_size(); ++u) {
        bundle::UnitInfo &unit =
            *summary.mutable_device_groups(g)->mutable_members(m)->mutable_units(u);
        for (int p = 0; p < unit.parts_size(); ++p) {
          const bundle::UnitInfo original = unit;
          auto &part = *unit.mutable_parts(p);
          const int64_t size = part.end(0) - part.begin(0),
                        by = part.begin(0) >= size ? -size : size;
          part.set_begin(0, part.begin(0) + by);
          part.set_end(0, part.end(0) + by);
          mutants.count("another part of a parameter", original.parameters(0),
                        mutants.bundle.programs);
          unit = original;
        }
      }
}

} // namespace

int main(int argc, char **argv) {
  const bool roundings = argc == 3 && std::string(argv[1]) == "--roundings";
  if (argc != 2 && !roundings) {
    std::fprintf(stderr, "exchange-mutants [--roundings] BUNDLE\n");
    return 2;
  }
  Result<runtime::Bundle> bundle = runtime::loadBundle(argv[argc - 1]);
  if (bundle.failed()) {
    std::fprintf(stderr, "error: %s\n", bundle.message().c_str());
    return 2;
  }
  Mutants mutants(std::move(*bundle));
  if (!mutants.accepts(mutants.bundle.programs)) {
    std::printf("FAIL the unchanged programs are rejected\n");
    return 1;
  }
  if (!roundings) {
    changeExchanges(mutants);
    changeTasks(mutants);
    changeParts(mutants);
    changeUnits(mutants);
  }
  changeRounding(mutants);
  std::printf("%d of %d mutants of %sroundings are rejected\n", mutants.made - mutants.accepted,
              mutants.made, roundings ? "" : "exchanges, segments, parts and ");
  return mutants.accepted || mutants.made == 0;
}
