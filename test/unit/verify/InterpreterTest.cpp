// Tests that the interpreter accepts correct programs under every interleaving and rejects
// incorrect ones.
#include "Interpreter.h"
#include "VerifyTestSupport.h"

#include <gtest/gtest.h>

using namespace zorse;
using namespace zorse::test;

static std::string harm(const Case &test, int interleavings = 25) {
  auto expected = interpret::reference(test.model.summary, test.model.functions,
                                       {test.plan.batch, test.plan.splitBackward, false}, "ETTET");
  return interpret::findHarm(test.model.summary, test.model.functions, test.programs, expected,
                             "ETTET", interleavings, 1)
      .what;
}

TEST(Interpreter, CorrectProgramsEqualTheReference) {
  EXPECT_EQ(harm(Case({}, oneDevice())), "");
  EXPECT_EQ(harm(Case({}, oneDeviceTwoCells())), "");
  EXPECT_EQ(harm(Case({}, pipeline())), "");
  EXPECT_EQ(harm(Case({}, dataParallel(makeModel({})))), "");
  EXPECT_EQ(harm(Case({}, ownersInTurns(makeModel({})))), "");
  EXPECT_EQ(harm(Case({}, ownersInTurns(makeModel({}), /*compact=*/true))), "");
  EXPECT_EQ(harm(Case({}, split(oneDeviceTwoCells()))), "");
  EXPECT_EQ(harm(Case({}, split(pipeline()))), "");
}

TEST(Interpreter, SeesARace) {
  Case test({}, pipeline());
  for (auto &instruction : *test.programs[1].mutable_instructions())
    if (instruction.has_compute() && instruction.compute().task() == bundle::Compute::F)
      instruction.clear_waits();
  EXPECT_NE(harm(test, 100), "");
}

TEST(Interpreter, SeesADeadlock) {
  Case test({}, pipeline());
  // Waits for the last compute instruction of the same step.
  auto *wait = test.programs[0].mutable_instructions(2)->add_waits();
  for (const auto &instruction : test.programs[0].instructions())
    wait->set_position(wait->position() + (instruction.queue() == 0));
  wait->set_position(wait->position() - 1);
  EXPECT_NE(harm(test).find("deadlock"), std::string::npos) << harm(test);
}

TEST(Interpreter, SeesAnotherResult) {
  Case test({}, oneDeviceTwoCells());
  for (auto &instruction : *test.programs[0].mutable_instructions())
    if (instruction.has_compute() && instruction.compute().task() == bundle::Compute::B)
      for (auto &call : *instruction.mutable_compute()->mutable_calls())
        call.set_sample_base(0);
  EXPECT_NE(harm(test), "");
}
