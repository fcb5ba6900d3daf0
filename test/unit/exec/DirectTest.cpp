// Tests programs with GPU-to-GPU transfers. Programs of random plans are correct, and every kind of
// fault in them is detected. Incompatible orders of launches have a separate finding.
#include "ProgramCases.h"

#include "Interpreter.h"

#include <algorithm>
#include <map>

using namespace zorse;
using namespace zorse::test;

namespace {

/// Makes a case in which all devices use transports through host memory, and some of them also
/// direct transfers, in one group or two.
ProgramCase makeDirectCase(int seed, bool copies = true) {
  SyntheticOptions options;
  options.units = 2 + seed % 5;
  options.tied = seed % 2;
  options.copies = copies && seed % 3 == 0;
  options.sumTerms = 2 + uint32_t(seed % 3);
  options.seed = uint32_t(seed);
  ProgramCase made;
  made.model = makeModel(options);
  static const int64_t batches[] = {7, 8, 13, 32};
  made.plan = step::randomPlan(made.model.summary, batches[seed % 4], 2 + seed * 7 % 5, seed);
  if (seed % 5 < 3)
    made.plan.gradientWire = seed % 2 ? step::GradientWire::Bf16BetweenNodes
                                      : step::GradientWire::Bf16BetweenSites;
  made.plan.communication = step::Communication::Overlapped; // plans without overlap have redundant
                                                             // waits, and removing one is no fault
  for (size_t d = 0; d < made.plan.devices.size(); ++d) {
    step::PlanDevice &device = made.plan.devices[d];
    device.hostStaged = true;
    device.d2dGroup = seed % 4 == 3 && d == 0 ? -1 : seed % 4 == 2 ? int32_t(d % 2) : 0;
    made.options.hostStaged.push_back(true);
    made.options.d2dGroups.push_back(device.d2dGroup);
  }
  step::LoweringOptions expand;
  expand.directChunk = seed % 2 ? 512 : 4 << 20;
  writePrograms(made, expand);
  return made;
}

bool isDirect(const bundle::Program &program, const bundle::Instruction &instruction) {
  return program.queues(int(instruction.queue())).kind() == bundle::DEVICE_TO_DEVICE;
}

/// Positions of a device's launches.
std::vector<int> launchesOf(const bundle::Program &program) {
  std::vector<int> places;
  for (int e = 0; e < program.instructions_size(); ++e)
    if (isDirect(program, program.instructions(e)))
      places.push_back(e);
  return places;
}

bundle::Instruction *pickDirect(Programs &programs, Random &random,
                                const std::function<bool(const bundle::Instruction &)> &wanted) {
  return pickOf(programs, random,
                [&](const bundle::Program &program, const bundle::Instruction &instruction) {
                  return isDirect(program, instruction) && wanted(instruction);
                });
}

/// Whether launches in these orders do not deadlock. A launch completes when all of its devices
/// have reached it.
bool ends(const Programs &programs) {
  std::vector<std::vector<uint32_t>> order(programs.size());
  std::map<uint32_t, std::vector<size_t>> members;
  for (size_t d = 0; d < programs.size(); ++d)
    for (int e : launchesOf(programs[d])) {
      order[d].push_back(programs[d].instructions(e).id());
      members[programs[d].instructions(e).id()].push_back(d);
    }
  std::vector<size_t> at(programs.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (const auto &[id, devices] : members)
      if (std::all_of(devices.begin(), devices.end(), [&, id = id](size_t d) {
            return at[d] < order[d].size() && order[d][at[d]] == id;
          })) {
        for (size_t d : devices)
          ++at[d];
        moved = true;
      }
  }
  for (size_t d = 0; d < programs.size(); ++d)
    if (at[d] < order[d].size())
      return false;
  return true;
}

const std::vector<Mistake> &mistakes() {
  using bundle::Instruction;
  static const std::vector<Mistake> all = {
      {"an image in the host's memory for a direct transfer",
       [](const ProgramCase &, Programs &p, Random &r) {
         for (bundle::Program &program : p)
           for (int a = 0; a < program.arenas_size(); ++a)
             if (program.arenas(a).kind() != bundle::DEVICE)
               if (Instruction *instruction = pickDirect(p, r, [](const Instruction &e) {
                     return e.has_send() && e.send().region().bytes() > 0;
                   })) {
                 instruction->mutable_send()->mutable_region()->set_arena(uint32_t(a));
                 instruction->mutable_send()->mutable_region()->set_offset(0);
                 return true;
               }
         return false;
       }},
      {"another number of elements in a round, on one device",
       [](const ProgramCase &, Programs &p, Random &r) {
         Instruction *instruction = pickDirect(p, r, [](const Instruction &e) {
           return e.has_reduce_scatter() && e.reduce_scatter().contributors_size() > 1;
         });
         if (instruction)
           instruction->mutable_reduce_scatter()->set_chunk(instruction->reduce_scatter().chunk() +
                                                            128);
         return instruction != nullptr;
       }},
      {"no memory for terms",
       [](const ProgramCase &, Programs &p, Random &r) {
         Instruction *instruction = pickDirect(p, r, [](const Instruction &e) {
           return e.reduce_scatter().receive_buffer().bytes() > 0;
         });
         if (instruction)
           instruction->mutable_reduce_scatter()->clear_receive_buffer();
         return instruction != nullptr;
       }},
      {"less memory for terms of the sums",
       [](const ProgramCase &, Programs &p, Random &r) {
         Instruction *instruction = pickDirect(p, r, [](const Instruction &e) {
           return e.all_reduce().receive_buffer().bytes() > 0;
         });
         if (instruction)
           instruction->mutable_all_reduce()->mutable_receive_buffer()->set_bytes(
               instruction->all_reduce().receive_buffer().bytes() - 128);
         return instruction != nullptr;
       }},
      {"terms that arrive in what is summed",
       [](const ProgramCase &, Programs &p, Random &r) {
         Instruction *instruction = pickDirect(p, r, [](const Instruction &e) {
           return e.reduce_scatter().receive_buffer().bytes() > 0 &&
                  e.reduce_scatter().full().bytes() > 0;
         });
         if (instruction)
           instruction->mutable_reduce_scatter()->mutable_receive_buffer()->set_offset(
               instruction->reduce_scatter().full().offset());
         return instruction != nullptr;
       }},
      {"terms that arrive in memory that another instruction needs", // the first bytes of an arena
                                                                     // contain state or scalars
       [](const ProgramCase &, Programs &p, Random &r) {
         Instruction *instruction = pickDirect(p, r, [](const Instruction &e) {
           return e.all_reduce().receive_buffer().bytes() > 0 &&
                  e.all_reduce().receive_buffer().offset() > 0;
         });
         if (!instruction)
           return false;
         bundle::Region *parts = instruction->mutable_all_reduce()->mutable_receive_buffer();
         for (const bundle::Program &program : p)
           for (const bundle::Instruction &other : program.instructions())
             if (&other == instruction && program.state_size() > 0) {
               parts->set_offset(program.state(0).region().offset() / 64 * 64);
               return true;
             }
         return false;
       }},
      {"no memory for rounded terms that are sent",
       [](const ProgramCase &, Programs &p, Random &r) {
         Instruction *instruction = pickDirect(p, r, [](const Instruction &e) {
           return e.reduce_scatter().send_buffer().bytes() > 0;
         });
         if (instruction)
           instruction->mutable_reduce_scatter()->clear_send_buffer();
         return instruction != nullptr;
       }},
      {"terms rounded into the accumulator",
       [](const ProgramCase &, Programs &p, Random &r) {
         Instruction *instruction = pickDirect(p, r, [](const Instruction &e) {
           return e.reduce_scatter().send_buffer().bytes() > 0;
         });
         if (instruction)
           instruction->mutable_reduce_scatter()->mutable_send_buffer()->set_offset(
               instruction->reduce_scatter().full().offset());
         return instruction != nullptr;
       }},
      {"terms rounded on one device",
       [](const ProgramCase &, Programs &p, Random &r) {
         Instruction *instruction = pickDirect(
             p, r, [](const Instruction &e) { return e.reduce_scatter().term_type() != 0; });
         if (instruction)
           instruction->mutable_reduce_scatter()->clear_term_type();
         return instruction != nullptr;
       }},
      {"one half of a transfer through the host",
       [](const ProgramCase &, Programs &p, Random &r) {
         for (bundle::Program &program : p)
           for (Instruction &instruction : *program.mutable_instructions())
             if (isDirect(program, instruction) &&
                 (instruction.has_send() || instruction.has_receive()) && r() % 2) {
               program.add_queues()->set_kind(instruction.has_send() ? bundle::SEND_QUEUE
                                                                     : bundle::RECEIVE_QUEUE);
               program.mutable_queues(program.queues_size() - 1)->set_id(9);
               instruction.set_queue(uint32_t(program.queues_size() - 1));
               return true;
             }
         return false;
       }},
      {"a second queue of launches",
       [](const ProgramCase &, Programs &p, Random &r) {
         bundle::Program &program = p[r() % p.size()];
         const std::vector<int> places = launchesOf(program);
         if (places.size() < 2)
           return false;
         program.add_queues()->set_kind(bundle::DEVICE_TO_DEVICE);
         program.mutable_queues(program.queues_size() - 1)->set_id(1);
         program.mutable_instructions(places.back())
             ->set_queue(uint32_t(program.queues_size() - 1));
         return true;
       }},
      {"a task on the queue of launches",
       [](const ProgramCase &, Programs &p, Random &r) {
         bundle::Program &program = p[r() % p.size()];
         const std::vector<int> places = launchesOf(program);
         if (places.empty())
           return false;
         for (Instruction &instruction : *program.mutable_instructions())
           if (instruction.has_compute()) {
             instruction.set_queue(program.instructions(places[0]).queue());
             return true;
           }
         return false;
       }},
      {"one wait less before a launch",
       [](const ProgramCase &, Programs &p, Random &r) {
         Instruction *instruction =
             pickDirect(p, r, [](const Instruction &e) { return e.waits_size() > 0; });
         if (instruction)
           instruction->mutable_waits()->DeleteSubrange(
               int(r() % uint32_t(instruction->waits_size())), 1);
         return instruction != nullptr;
       }},
  };
  return all;
}

} // namespace

TEST(Direct, EveryMistakeIsFound) {
  int changed = 0, found = 0, direct = 0;
  for (int seed = 0; seed < 100; ++seed) {
    const ProgramCase c = makeDirectCase(seed);
    for (const verify::Finding &finding : check(c, c.programs))
      ADD_FAILURE() << "seed " << seed << ": " << verify::toString(finding, c.view);
    for (const bundle::Program &program : c.programs)
      direct += int(launchesOf(program).size());
    for (size_t m = 0; m < mistakes().size(); ++m) {
      Random random(uint32_t(seed * 100 + int(m)));
      Programs programs = c.programs;
      if (!mistakes()[m].apply(c, programs, random))
        continue;
      ++changed;
      const bool seen = !check(c, programs).empty();
      found += seen;
      EXPECT_TRUE(seen) << "seed " << seed << ": " << mistakes()[m].name << " is not found";
    }
  }
  printf("%d direct halves, %d of %d mistakes found\n", direct, found, changed);
  EXPECT_GE(changed, 450);
}

// Devices of different groups must not have direct transfers.
TEST(Direct, OnlyInsideAGroup) {
  ProgramCase c = makeDirectCase(4);
  ASSERT_TRUE(check(c, c.programs).empty());
  c.options.d2dGroups.back() = 7;
  const auto findings = check(c, c.programs);
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings[0].code, verify::Code::Reach) << findings[0].message;
  c.options.d2dGroups.clear();
  EXPECT_FALSE(check(c, c.programs).empty());
}

// Programs with direct transfers compute the same as the model, and contain no copies between
// device and host if all transfers are direct.
TEST(Direct, ComputesTheSame) {
  for (int seed = 0; seed < 40; ++seed) {
    const ProgramCase c = makeDirectCase(seed, /*copies=*/false); // the interpreter does not
                                                                  // support 16-bit types
    const interpret::Steps steps = "ETT";
    const auto expected =
        interpret::reference(c.model.summary, c.model.functions,
                             {c.plan.batch, c.plan.schedule.splitBackward,
                              c.plan.optimizerStep == step::OptimizerStep::InBackward},
                             steps);
    const auto harm = interpret::findHarm(c.model.summary, c.model.functions, c.programs, expected,
                                          steps, 5, uint32_t(seed));
    EXPECT_FALSE(harm.harmful) << "seed " << seed << ": " << harm.what;
    const bool offloads = std::any_of(
        c.plan.cells.begin(), c.plan.cells.end(),
        [](const step::Cell &cell) { return cell.activations == step::Activations::Offload; });
    if (seed % 4 < 2 && c.plan.offload.empty() && !offloads)
      for (const bundle::Program &program : c.programs)
        for (const bundle::Arena &arena : program.arenas())
          EXPECT_EQ(arena.kind(), bundle::DEVICE) << "seed " << seed;
  }
}

// Launches of one device in another order are always rejected. If the devices deadlock, there is a
// finding about it.
TEST(Direct, LaunchOrdersThatDoNotFitAreFound) {
  int mutants = 0, rejected = 0, stuck = 0, said = 0;
  for (int seed = 0; seed < 120; ++seed) {
    const ProgramCase c = makeDirectCase(seed);
    Random random{uint32_t(seed)};
    for (int attempt = 0; attempt < 12; ++attempt) {
      Programs programs = c.programs;
      bundle::Program &program = programs[random() % programs.size()];
      const std::vector<int> places = launchesOf(program);
      if (places.size() < 2)
        continue;
      // Swap two neighbors or any two launches; ids move with them or stay.
      const size_t first = random() % (places.size() - 1);
      const size_t second = attempt % 3 ? first + 1
                                        : first + 1 + random() % (places.size() - 1 - first);
      bundle::Instruction *a = program.mutable_instructions(places[first]),
                          *b = program.mutable_instructions(places[second]);
      const uint32_t one = a->id(), other = b->id();
      a->Swap(b);
      if (attempt % 2) {
        a->set_id(one);
        b->set_id(other);
      }
      ++mutants;
      const auto findings = check(c, programs);
      rejected += !findings.empty();
      EXPECT_FALSE(findings.empty())
          << "seed " << seed << ", attempt " << attempt << ": launches " << one << " and " << other
          << " of " << program.device_name() << " exchanged";
      if (ends(programs))
        continue;
      ++stuck;
      const bool launch = std::any_of(
          findings.begin(), findings.end(),
          [](const verify::Finding &finding) { return finding.code == verify::Code::Launch; });
      said += launch;
      EXPECT_TRUE(launch) << "seed " << seed << ", attempt " << attempt << ": "
                          << (findings.empty() ? "" : findings[0].message);
    }
  }
  printf("%d of %d exchanged launches rejected; %d of %d that never end by their order\n", rejected,
         mutants, said, stuck);
  EXPECT_GE(mutants, 500);
  EXPECT_GE(stuck, 150);
}

// Rotates the launches of one device by one position.
TEST(Direct, RotatedLaunchesAreFound) {
  int circles = 0, said = 0;
  for (int seed = 0; seed < 200 && circles < 30; ++seed) {
    const ProgramCase c = makeDirectCase(seed);
    for (size_t d = 0; d < c.programs.size(); ++d) { // rotate the launches of one device
      Programs programs = c.programs;
      bundle::Program &program = programs[d];
      const std::vector<int> places = launchesOf(program);
      for (size_t i = 0; i + 1 < places.size(); ++i)
        program.mutable_instructions(places[i])->Swap(program.mutable_instructions(places[i + 1]));
      if (places.size() < 2 || ends(programs))
        continue;
      ++circles;
      const auto findings = check(c, programs);
      said += std::any_of(findings.begin(), findings.end(), [](const verify::Finding &finding) {
        return finding.code == verify::Code::Launch;
      });
    }
  }
  EXPECT_GE(circles, 10);
  EXPECT_EQ(said, circles);
}

TEST(Direct, IsTimedAlikeWithoutEntries) {
  for (int seed = 0; seed < 40; ++seed)
    expectTimedAlikeWithoutInstructions(makeDirectCase(seed), "seed " + std::to_string(seed));
}
