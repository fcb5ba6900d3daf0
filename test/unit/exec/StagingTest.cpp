// Tests devices with transports that reach only host memory. The verifier must detect every kind of
// fault in the copies between device and host.
#include "ProgramCases.h"

using namespace zorse;
using namespace zorse::test;

namespace {

bool isCopyOfValue(const bundle::Instruction &instruction, bundle::Value::Kind kind) {
  return instruction.has_copy() && instruction.copy().value().kind() == kind;
}

/// Whether an instruction copies between the two arenas of a device: 0 is its own memory, 1 its
/// host's.
bool crosses(const bundle::Instruction &instruction, bool out) {
  return instruction.has_copy() && instruction.copy().from().arena() == (out ? 0u : 1u) &&
         instruction.copy().to().arena() == (out ? 1u : 0u);
}

bundle::Region *imageOf(bundle::Instruction &instruction) {
  switch (instruction.what_case()) {
  case bundle::Instruction::kSend:
    return instruction.mutable_send()->mutable_region();
  case bundle::Instruction::kReceive:
    return instruction.mutable_receive()->mutable_region();
  case bundle::Instruction::kAllReduce:
    return instruction.mutable_all_reduce()->mutable_region();
  case bundle::Instruction::kAllGather:
    return instruction.mutable_all_gather()->mutable_full();
  case bundle::Instruction::kReduceScatter:
    return instruction.mutable_reduce_scatter()->mutable_full();
  default:
    return nullptr;
  }
}

const std::vector<Mistake> &mistakes() {
  static const std::vector<Mistake> all = {
      {"a transfer of memory of the device",
       [](const ProgramCase &c, Programs &p, Random &r) {
         std::vector<bundle::Region *> images;
         for (size_t d = 0; d < p.size(); ++d)
           for (bundle::Instruction &instruction : *p[d].mutable_instructions())
             if (bundle::Region *image = imageOf(instruction);
                 image && image->bytes() && c.plan.devices[d].hostStaged &&
                 image->bytes() <= p[d].arenas(0).bytes())
               images.push_back(image);
         if (images.empty())
           return false;
         bundle::Region &image = *images[r() % images.size()];
         image.set_arena(0);
         image.set_offset(0);
         return true;
       }},
      {"a copy from another place",
       [](const ProgramCase &, Programs &p, Random &r) {
         bundle::Instruction *instruction = pick(p, r, [](const bundle::Instruction &e) {
           return crosses(e, true) || crosses(e, false);
         });
         if (instruction)
           instruction->mutable_copy()->mutable_from()->set_offset(
               instruction->copy().from().offset() + 64);
         return instruction != nullptr;
       }},
      {"a copy to another place",
       [](const ProgramCase &, Programs &p, Random &r) {
         bundle::Instruction *instruction = pick(p, r, [](const bundle::Instruction &e) {
           return crosses(e, true) || crosses(e, false);
         });
         if (instruction)
           instruction->mutable_copy()->mutable_to()->set_offset(instruction->copy().to().offset() +
                                                                 64);
         return instruction != nullptr;
       }},
      {"a copy of another value",
       [](const ProgramCase &, Programs &p, Random &r) {
         bundle::Instruction *instruction = pick(p, r, [](const bundle::Instruction &e) {
           return e.has_copy() && e.copy().value().end() > e.copy().value().begin();
         });
         if (instruction)
           instruction->mutable_copy()->mutable_value()->set_id(instruction->copy().value().id() +
                                                                1);
         return instruction != nullptr;
       }},
      {"a copy of the sums of this device for those of all",
       [](const ProgramCase &, Programs &p, Random &r) {
         bundle::Instruction *instruction = pick(p, r, [](const bundle::Instruction &e) {
           return isCopyOfValue(e, bundle::Value::LOCAL_METRICS);
         });
         if (instruction)
           instruction->mutable_copy()->mutable_value()->set_kind(bundle::Value::GLOBAL_METRICS);
         return instruction != nullptr;
       }},
      {"a copy of the sums of all for those of this device",
       [](const ProgramCase &, Programs &p, Random &r) {
         bundle::Instruction *instruction = pick(p, r, [](const bundle::Instruction &e) {
           return isCopyOfValue(e, bundle::Value::GLOBAL_METRICS);
         });
         if (instruction)
           instruction->mutable_copy()->mutable_value()->set_kind(bundle::Value::LOCAL_METRICS);
         return instruction != nullptr;
       }},
      {"an accumulator that is copied as a sum",
       [](const ProgramCase &c, Programs &p, Random &r) {
         bundle::Instruction *instruction = pick(p, r, [&](const bundle::Instruction &e) {
           return isCopyOfValue(e, bundle::Value::GRADIENTS) && c.plan.devices.size() > 1;
         });
         if (instruction)
           instruction->mutable_copy()->mutable_value()->set_kind(bundle::Value::REDUCED_GRADIENTS);
         return instruction != nullptr;
       }},
      {"a copy that waits for nothing, and that nothing waits for",
       [](const ProgramCase &, Programs &p, Random &r) {
         bundle::Instruction *instruction = pick(p, r, [](const bundle::Instruction &e) {
           return crosses(e, true) && e.waits_size() > 0;
         });
         if (instruction)
           instruction->clear_waits();
         return instruction != nullptr;
       }},
      {"one wait less",
       [](const ProgramCase &c, Programs &p, Random &r) {
         if (c.plan.communication != step::Communication::Overlapped) // some waits only prevent
                                                                      // overlap of a device's
                                                                      // instructions
           return false;
         std::vector<bundle::Instruction *> waiting;
         for (size_t d = 0; d < p.size(); ++d)
           for (bundle::Instruction &instruction : *p[d].mutable_instructions())
             if (c.plan.devices[d].hostStaged && instruction.waits_size() > 0)
               waiting.push_back(&instruction);
         if (waiting.empty())
           return false;
         bundle::Instruction &instruction = *waiting[r() % waiting.size()];
         instruction.mutable_waits()->DeleteSubrange(int(r() % uint32_t(instruction.waits_size())),
                                                     1);
         return true;
       }},
      {"a copy in a phase that evaluations skip",
       [](const ProgramCase &, Programs &p, Random &r) {
         bundle::Instruction *instruction = pick(p, r, [](const bundle::Instruction &e) {
           return crosses(e, false) && e.phase() == bundle::FORWARD;
         });
         if (instruction)
           instruction->set_phase(bundle::BACKWARD);
         return instruction != nullptr;
       }},
  };
  return all;
}

} // namespace

TEST(Staging, EveryMistakeIsFound) {
  expectEveryMistakeIsFound(mistakes(), 80, 350, /*copies=*/false, /*staged=*/true);
  expectEveryMistakeIsFound(mistakes(), 60, 250, /*copies=*/true, /*staged=*/true);
}

TEST(Staging, IsTimedAlikeWithoutEntries) {
  for (int seed = 0; seed < 60; ++seed)
    expectTimedAlikeWithoutInstructions(makeCase(seed, seed % 2, /*staged=*/true),
                                        "seed " + std::to_string(seed));
}
