// Tests plans in which devices own several runs of a group: programs of random plans are correct
// for every kind of transport memory.
#include "Interpreter.h"
#include "ProgramCases.h"
#include "zorse/Summary/Summary.h"

using namespace zorse;
using namespace zorse::test;

namespace {

/// Splits every group into pieces of one to three times 512 bytes, each with a random owner.
void dealOwners(step::Plan &plan, const bundle::ModelSummary &summary, Random &random) {
  plan.owners.clear();
  for (int g = 0; g < summary.groups_size(); ++g) {
    const auto &group = summary.groups(g);
    if (!group.trainable())
      continue;
    step::GroupOwners owners;
    owners.group = g;
    const auto block = int64_t(kStateAlignment / elementBytes(group.type()));
    for (int64_t begin = 0, end; begin < group.elements(); begin = end) {
      end = std::min(group.elements(), begin + block * int64_t(1 + random() % 3));
      step::Owner owner;
      owner.device = uint32_t(random() % plan.devices.size());
      owner.begin = begin;
      owner.end = end;
      owners.owners.push_back(owner);
    }
    plan.owners.push_back(owners);
  }
}

ProgramCase makeRunsCase(int seed) {
  SyntheticOptions options;
  options.units = 2 + seed % 5;
  options.tied = seed % 2;
  options.irregular = seed / 2 % 2;
  options.copies = seed % 5 == 4;
  options.sumTerms = 2 + uint32_t(seed % 3);
  options.seed = uint32_t(seed);
  ProgramCase made;
  made.model = makeModel(options);
  static const int64_t batches[] = {7, 8, 13, 32};
  made.plan = step::randomPlan(made.model.summary, batches[seed % 4], 2 + uint32_t(seed % 3), seed);
  Random random(seed);
  dealOwners(made.plan, made.model.summary, random);
  for (step::PlanDevice &device : made.plan.devices) { // transports that reach device memory, host
                                                       // staging, or direct transfers
    device.hostStaged = seed % 3 != 0;
    device.d2dGroup = seed % 3 == 2 ? 0 : -1;
    made.options.hostStaged.push_back(device.hostStaged);
    made.options.d2dGroups.push_back(device.d2dGroup);
  }
  step::LoweringOptions expand;
  expand.directChunk = seed % 2 ? 512 : 4 << 20;
  writePrograms(made, expand);
  return made;
}

} // namespace

TEST(OwnedRuns, ProgramsAreRight) {
  int several = 0;
  for (int seed = 0; seed < 60; ++seed) {
    const ProgramCase c = makeRunsCase(seed);
    for (const verify::Finding &finding : check(c, c.programs))
      ADD_FAILURE() << "seed " << seed << ": " << verify::toString(finding, c.view);
    for (const bundle::Program &program : c.programs)
      for (const bundle::Instruction &instruction : program.instructions()) {
        const auto &shards = instruction.has_all_gather() ? instruction.all_gather().shards()
                                                          : instruction.reduce_scatter().shards();
        several += std::count(shards.members().begin(), shards.members().end(), program.device()) >
                   1;
      }
    if (seed % 5 == 4) // the interpreter does not support 16-bit types
      continue;
    const auto expected =
        interpret::reference(c.model.summary, c.model.functions,
                             {c.plan.batch, c.plan.schedule.splitBackward,
                              c.plan.optimizerStep == step::OptimizerStep::InBackward},
                             "ETTET");
    EXPECT_EQ(interpret::findHarm(c.model.summary, c.model.functions, c.programs, expected, "ETTET",
                                  5, uint32_t(seed))
                  .what,
              "")
        << "seed " << seed;
  }
  EXPECT_GT(several, 50);
}

TEST(OwnedRuns, AreTimedAlikeWithoutEntries) {
  for (int seed = 0; seed < 60; seed += 3)
    expectTimedAlikeWithoutInstructions(makeRunsCase(seed), "seed " + std::to_string(seed));
}
