// Tests that the verifier detects every kind of fault in casts, gathers of copies, and their
// readers. After each change, some unit reads other bytes than the copy of this step's parameters,
// or it is not determined which bytes it reads.
#include "EditedArgument.h"
#include "ProgramCases.h"
#include "ShardRanges.h"

#include <map>
#include <optional>

using namespace zorse;
using namespace zorse::test;

namespace {

bool isCast(const bundle::Instruction &instruction) {
  return instruction.has_compute() &&
         instruction.compute().task() == bundle::Compute::CAST_PARAMETERS;
}
bool isCopyGather(const bundle::Instruction &instruction) {
  return instruction.has_all_gather() &&
         instruction.all_gather().value().kind() == bundle::Value::LOW_PRECISION_PARAMETERS;
}

/// The call of a cast and its program; null if there is none.
struct Cast {
  bundle::Program *program = nullptr;
  bundle::Call *call = nullptr;
  EditedArgument argument(int index) const { return {*program, *call, index}; }
};

Cast cast(Programs &programs, Random &random) {
  bundle::Instruction *instruction = pick(programs, random, isCast);
  for (bundle::Program &program : programs)
    for (bundle::Instruction &other : *program.mutable_instructions())
      if (&other == instruction)
        return {&program, instruction->mutable_compute()->mutable_calls(0)};
  return {};
}

/// Picks an argument of a unit's call that reads a copy.
std::optional<EditedArgument> reader(Programs &programs, Random &random) {
  std::vector<EditedArgument> found;
  for (bundle::Program &program : programs)
    for (bundle::Instruction &instruction : *program.mutable_instructions())
      if (instruction.has_compute() && !isCast(instruction))
        for (bundle::Call &call : *instruction.mutable_compute()->mutable_calls())
          for (const EditedArgument &argument : argumentsOf(program, call))
            if (argument.value().kind() == bundle::Value::LOW_PRECISION_PARAMETERS)
              found.push_back(argument);
  return found.empty() ? std::nullopt : std::optional(found[random() % found.size()]);
}

const std::vector<Mistake> &mutations() {
  static const std::vector<Mistake> all = {
      {"a cast that does nothing",
       [](const ProgramCase &, Programs &p, Random &r) {
         bundle::Instruction *instruction = pick(p, r, isCast);
         if (instruction)
           instruction->mutable_compute()->clear_calls();
         return instruction != nullptr;
       }},
      {"a cast of fewer elements",
       [](const ProgramCase &, Programs &p, Random &r) {
         const Cast made = cast(p, r);
         if (!made.call || made.call->rows() <= 128)
           return false;
         made.call->set_rows(made.call->rows() - 128);
         for (int s : {0, 1}) {
           EditedArgument argument = made.argument(s);
           argument.mutable_value()->set_end(argument.value().end() - 128);
           argument.mutable_region()->set_bytes(argument.region().bytes() - 128 * (s ? 2 : 4));
         }
         return true;
       }},
      {"a cast to another place",
       [](const ProgramCase &, Programs &p, Random &r) {
         const Cast made = cast(p, r);
         if (made.call)
           made.argument(1).mutable_region()->set_offset(made.argument(1).region().offset() +
                                                         64 * (1 + r() % 4));
         return made.call != nullptr;
       }},
      {"a cast of other elements",
       [](const ProgramCase &, Programs &p, Random &r) {
         const Cast made = cast(p, r);
         if (made.call)
           made.argument(0).mutable_region()->set_offset(made.argument(0).region().offset() +
                                                         512 * (1 + r() % 2));
         return made.call != nullptr;
       }},
      {"a cast that declares the parameters it makes",
       [](const ProgramCase &, Programs &p, Random &r) {
         const Cast made = cast(p, r);
         if (made.call)
           made.argument(1).mutable_value()->set_kind(bundle::Value::PARAMETERS);
         return made.call != nullptr;
       }},
      {"a cast of the next version",
       [](const ProgramCase &, Programs &p, Random &r) {
         const Cast made = cast(p, r);
         if (made.call)
           made.argument(0).mutable_value()->set_version(1);
         return made.call != nullptr;
       }},
      {"a cast in the phase of updates, which evaluations skip",
       [](const ProgramCase &, Programs &p, Random &r) {
         bundle::Instruction *instruction = pick(p, r, isCast);
         if (instruction)
           instruction->set_phase(bundle::UPDATE_STATE);
         return instruction != nullptr;
       }},
      {"a cast of another group",
       [](const ProgramCase &c, Programs &p, Random &r) {
         bundle::Instruction *instruction = pick(p, r, isCast);
         if (instruction)
           instruction->mutable_compute()->set_group((instruction->compute().group() + 1) %
                                                     c.model.summary.groups_size());
         return instruction != nullptr && c.model.summary.groups_size() > 1;
       }},
      {"a cast by another function",
       [](const ProgramCase &c, Programs &p, Random &r) {
         bundle::Call *call = cast(p, r).call;
         if (call)
           call->set_function(r() % 2 ? c.model.summary.norm_function()
                                      : c.model.summary.update_rules(1).function());
         return call != nullptr;
       }},
      {"readers that do not wait for the cast",
       [](const ProgramCase &, Programs &p, Random &r) {
         // Removes all waits of one device's gathers of copies after the cast, so that they do not
         // wait for the cast.
         bundle::Program &program = p[r() % p.size()];
         bool casts = false, changed = false;
         for (bundle::Instruction &instruction : *program.mutable_instructions()) {
           casts |= isCast(instruction);
           if (casts && isCopyGather(instruction)) {
             changed |= instruction.waits_size() > 0;
             instruction.clear_waits();
           }
         }
         return changed;
       }},
      {"a gather of the parameters themselves",
       [](const ProgramCase &, Programs &p, Random &r) {
         bundle::Instruction *instruction = pick(p, r, isCopyGather);
         if (instruction)
           instruction->mutable_all_gather()->mutable_value()->set_kind(bundle::Value::PARAMETERS);
         return instruction != nullptr;
       }},
      {"a gather in f32, on all its members",
       [](const ProgramCase &, Programs &p, Random &r) {
         bundle::Instruction *instruction = pick(p, r, isCopyGather);
         if (!instruction)
           return false;
         const uint64_t id = instruction->id();
         for (bundle::Program &program : p)
           for (bundle::Instruction &other : *program.mutable_instructions())
             if (other.id() == id)
               other.mutable_all_gather()->set_type(bundle::F32);
         return true;
       }},
      {"a gather of a shard that was not cast",
       [](const ProgramCase &, Programs &p, Random &r) {
         bundle::Instruction *instruction = pick(p, r, [](const bundle::Instruction &e) {
           return isCopyGather(e) && e.all_gather().shard().bytes() > 0;
         });
         if (instruction)
           instruction->mutable_all_gather()->mutable_shard()->set_offset(
               instruction->all_gather().shard().offset() + 256);
         return instruction != nullptr;
       }},
      {"a unit that reads another part of the copy",
       [](const ProgramCase &, Programs &p, Random &r) {
         auto argument = reader(p, r);
         if (argument)
           argument->mutable_region()->set_offset(argument->region().offset() + 64 * (1 + r() % 3));
         return argument.has_value();
       }},
      {"a unit that declares the parameters themselves",
       [](const ProgramCase &, Programs &p, Random &r) {
         auto argument = reader(p, r);
         if (argument)
           argument->mutable_value()->set_kind(bundle::Value::PARAMETERS);
         return argument.has_value();
       }},
      {"copies kept as state",
       [](const ProgramCase &, Programs &p, Random &r) {
         bundle::Program &program = p[r() % p.size()];
         for (bundle::PersistentState &state : *program.mutable_state())
           if (state.value().kind() == bundle::Value::PARAMETERS) {
             state.mutable_value()->set_kind(bundle::Value::LOW_PRECISION_PARAMETERS);
             return true;
           }
         return false;
       }},
  };
  return all;
}

} // namespace

TEST(Copies, EveryMistakeIsFound) {
  expectEveryMistakeIsFound(mutations(), 80, 800, /*copies=*/true, /*staged=*/false);
}

// Bytes per parameter of a group with copies: 12 of state on its owner (the parameter and Adam's
// two moments), 2 on every reader, 4 on every contributor.
TEST(Copies, TakeTwoBytesPerParameter) {
  int gathers = 0;
  for (int seed = 0; seed < 20; ++seed) {
    const ProgramCase c = makeCase(seed, /*copies=*/true, /*staged=*/false);
    for (const bundle::Program &program : c.programs) {
      std::map<uint32_t, uint64_t> state;
      for (const bundle::PersistentState &part : program.state())
        if (part.value().kind() != bundle::Value::OPTIMIZER_STEP)
          state[part.value().id()] += part.region().bytes();
      for (const bundle::Instruction &instruction : program.instructions()) {
        if (isCast(instruction)) {
          const bundle::Call &call = instruction.compute().calls(0);
          const bundle::ArgumentBindings bindings(program, call);
          EXPECT_EQ(bindings[1].region.bytes(), 2 * uint64_t(call.rows()));
          EXPECT_EQ(state[bindings[0].value.id()], 12 * uint64_t(call.rows()));
        }
        auto elements = [&](uint32_t group) {
          return uint64_t(c.model.summary.groups(int(group)).elements());
        };
        if (isCopyGather(instruction) && instruction.all_gather().full().bytes()) {
          const bundle::AllGather &gather = instruction.all_gather();
          const Compact run = bundle::shardsOf(gather.reads(), program.device());
          EXPECT_EQ(gather.full().bytes(),
                    2 * (gather.reads().members_size() ? uint64_t(run.elements())
                                                       : elements(gather.group())));
          ++gathers;
        }
        if (instruction.has_reduce_scatter() && instruction.reduce_scatter().full().bytes()) {
          const bundle::ReduceScatter &reduce = instruction.reduce_scatter();
          const Compact run = bundle::shardsOf(reduce.terms(), program.device());
          EXPECT_EQ(reduce.full().bytes(),
                    4 * (reduce.terms().members_size() ? uint64_t(run.elements())
                                                       : elements(reduce.group())));
        }
      }
    }
  }
  EXPECT_GT(gathers, 20);
}
