// exchange-mutants BUNDLE: changes the programs of a bundle with groups of devices, one exchange or
// segment at a time, in ways that are always harmful. Prints the number of mutants that the
// verifier rejects. Exits with 1 if it accepts one, or rejects the unchanged programs.
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

  /// Calls `change` for every exchange, on all devices that take part in it.
  void ofExchanges(const char *name, const std::function<bool(Instruction &)> &change) {
    for (const Instruction &original : bundle.programs[0].instructions()) {
      if (!isExchange(original))
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

  runtime::Bundle bundle;
  int made = 0, accepted = 0;

private:
  void count(const char *name, uint64_t id, const Programs &programs) {
    ++made;
    if (!accepts(programs))
      return;
    ++accepted;
    std::printf("FAIL accepted: %s, instruction %llu\n", name, static_cast<unsigned long long>(id));
  }

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
  mutants.ofTasks("a segment of other samples", [](Instruction &instruction) {
    bundle::Call &call = *instruction.mutable_compute()->mutable_calls(0);
    call.set_sample_base(call.sample_base() + call.rows());
    return true;
  });
}

} // namespace

int main(int argc, char **argv) {
  if (argc != 2) {
    std::fprintf(stderr, "exchange-mutants BUNDLE\n");
    return 2;
  }
  Result<runtime::Bundle> bundle = runtime::loadBundle(argv[1]);
  if (bundle.failed()) {
    std::fprintf(stderr, "error: %s\n", bundle.message().c_str());
    return 2;
  }
  Mutants mutants(std::move(*bundle));
  if (!mutants.accepts(mutants.bundle.programs)) {
    std::printf("FAIL the unchanged programs are rejected\n");
    return 1;
  }
  changeExchanges(mutants);
  changeTasks(mutants);
  std::printf("%d of %d mutants of exchanges and segments are rejected\n",
              mutants.made - mutants.accepted, mutants.made);
  return mutants.accepted || mutants.made == 0;
}
