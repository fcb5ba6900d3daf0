// Programs of random plans of small models, and faults in them that the verifier must detect.
#pragma once

#include "RandomPlan.h"
#include "zorse/Step/WriteProgram.h"
#include "zorse/Verify/Verify.h"

#include "SyntheticModel.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <vector>

namespace zorse::test {

using Random = std::mt19937;
using Programs = std::vector<bundle::Program>;

struct ProgramCase {
  SyntheticModel model;
  step::Plan plan;
  Programs programs;
  verify::PlanView view;
  verify::VerifyOptions options;
};

/// Makes the programs and the view of a case from its model and plan.
inline void writePrograms(ProgramCase &made, step::LoweringOptions expand = {}) {
  expand.functions = &made.model.functions;
  auto graph = step::lowerPlan(made.model.summary, made.plan, expand);
  EXPECT_FALSE(graph.failed()) << graph.message();
  for (uint32_t device = 0; !graph.failed() && device < made.plan.devices.size(); ++device)
    if (auto program = step::writeProgram(*graph, device, made.model.functions); !program.failed())
      made.programs.push_back(std::move(*program));
    else
      ADD_FAILURE() << program.message();
  auto view = verify::readPlanView(step::writePlan(made.plan, made.model.summary));
  EXPECT_FALSE(view.failed()) << view.message();
  made.view = *view;
}

/// \param staged  every second device uses transports through host memory.
inline ProgramCase makeCase(int seed, bool copies, bool staged) {
  SyntheticOptions options;
  options.units = 2 + seed % 5;
  options.tied = seed % 2;
  options.copies = copies;
  options.seed = uint32_t(seed);
  ProgramCase made;
  made.model = makeModel(options);
  static const int64_t batches[] = {1, 7, 8, 13, 32};
  made.plan = step::randomPlan(made.model.summary, batches[seed % 5], 1 + seed * 7 % 6, seed);
  for (size_t d = 0; d < made.plan.devices.size(); ++d) {
    made.plan.devices[d].hostStaged = staged && (d + size_t(seed)) % 2 == 0;
    made.options.hostStaged.push_back(made.plan.devices[d].hostStaged);
  }
  writePrograms(made);
  return made;
}

inline std::vector<verify::Finding> check(const ProgramCase &c, const Programs &programs) {
  return verify::verifyPrograms(c.model.summary, c.model.functions, c.view, programs, c.options);
}

/// Picks one of the instructions for which `wanted` holds; null if there is none.
inline bundle::Instruction *
pickOf(Programs &programs, Random &random,
       const std::function<bool(const bundle::Program &, const bundle::Instruction &)> &wanted) {
  std::vector<bundle::Instruction *> found;
  for (bundle::Program &program : programs)
    for (bundle::Instruction &instruction : *program.mutable_instructions())
      if (wanted(program, instruction))
        found.push_back(&instruction);
  return found.empty() ? nullptr : found[random() % found.size()];
}
inline bundle::Instruction *pick(Programs &programs, Random &random,
                                 const std::function<bool(const bundle::Instruction &)> &wanted) {
  return pickOf(programs, random,
                [&](const bundle::Program &, const bundle::Instruction &instruction) {
                  return wanted(instruction);
                });
}

/// Expects that times and memory peaks are the same without instructions.
inline void expectTimedAlikeWithoutInstructions(const ProgramCase &c, const std::string &name) {
  step::LoweringOptions expand;
  step::TimeOptions time;
  expand.functions = time.functions = &c.model.functions;
  auto full = step::lowerPlan(c.model.summary, c.plan, expand);
  auto times = step::timeStep(c.model.summary, c.plan, time);
  ASSERT_FALSE(full.failed() || times.failed()) << full.message() << times.message();
  EXPECT_EQ(full->stepTime, times->stepTime) << name;
  EXPECT_EQ(full->numInstructions, times->numInstructions) << name;
  for (size_t d = 0; d < c.plan.devices.size(); ++d)
    EXPECT_EQ(full->devices[d].memory.peakLiveBytes, times->devices[d].memory.peakLiveBytes)
        << name << ", device " << d;
}

struct Mistake {
  const char *name;
  /// Returns false if the programs have no place for it.
  std::function<bool(const ProgramCase &, Programs &, Random &)> apply;
};

/// Expects that the programs of `count` seeds are correct and that every possible fault of
/// `mistakes` is detected. At least `least` faults must be possible.
inline void expectEveryMistakeIsFound(const std::vector<Mistake> &mistakes, int count, int min,
                                      bool copies, bool staged) {
  int changed = 0, found = 0;
  for (int seed = 0; seed < count; ++seed) {
    const ProgramCase c = makeCase(seed, copies, staged);
    for (const verify::Finding &finding : check(c, c.programs))
      ADD_FAILURE() << "seed " << seed << ": " << verify::toString(finding, c.view);
    for (size_t m = 0; m < mistakes.size(); ++m) {
      Random random(uint32_t(seed * 100 + int(m)));
      Programs programs = c.programs;
      if (!mistakes[m].apply(c, programs, random))
        continue;
      ++changed;
      const bool seen = !check(c, programs).empty();
      found += seen;
      EXPECT_TRUE(seen) << "seed " << seed << ": " << mistakes[m].name << " is not found";
    }
  }
  printf("%d of %d mistakes found\n", found, changed);
  EXPECT_GE(changed, min);
}

} // namespace zorse::test
