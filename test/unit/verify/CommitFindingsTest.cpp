// Findings in the commit of a step: sums, norms, decisions, updates, reports. One change to correct
// programs each.
#include "FindingsSupport.h"

#include "zorse/Summary/Summary.h"

using namespace zorse;
using namespace zorse::test;
using verify::Code;

TEST(Findings, Update) {
  Case missing({}, oneDevice());
  erase(missing.programs[0], find(missing, 0, task(bundle::Compute::UPDATE_GROUP)));
  expectFinding(missing, Code::Update, {"after a step", "after 1 updates, which have had 0"});

  Case owners({}, dataParallel(makeModel({})));
  auto &state = *owners.programs[1].mutable_state(0);
  ASSERT_EQ(state.value().kind(), bundle::Value::PARAMETERS);
  state.mutable_value()->set_begin(state.value().begin() + 16);
  state.mutable_region()->set_offset(state.region().offset() + 64);
  state.mutable_region()->set_bytes(state.region().bytes() - 64);
  EXPECT_FALSE(owners.findings().empty());
}

TEST(Findings, Loss) {
  Case missing({}, oneDeviceTwoCells());
  erase(missing.programs[0], find(missing, 0, task(bundle::Compute::SUM_LOSS)));
  expectFinding(missing, Code::Loss, {"misses the contribution of unit 3"});
}

TEST(Findings, Norm) {
  Case missing({}, oneDevice());
  find(missing, 0, task(bundle::Compute::NORM)).mutable_compute()->mutable_calls()->RemoveLast();
  expectFinding(missing, Code::Norm, {"misses the contribution of group"});

  Case members({}, dataParallel(makeModel({}))); // the decision uses only this device's sums
  for (auto &program : members.programs)
    erase(program, find(members, int(program.device()),
                        [](const bundle::Instruction &e) { return e.has_all_reduce(); }));
  expectFinding(members, Code::Norm, {"expects that of all owners"});
}

TEST(Findings, NormOfPadding) {
  Case test({}, oneDevice());
  auto &norm = find(test, 0, [&](const bundle::Instruction &e) {
    return task(bundle::Compute::NORM)(e) && e.compute().calls_size() > 1;
  });
  auto &call = *norm.mutable_compute()->mutable_calls(0);
  EditedArgument state(test.programs[0], call, 0);
  int64_t next =
      bundle::ArgumentBindings(test.programs[0], norm.compute().calls(1))[0].value.begin();
  state.mutable_region()->set_bytes(uint64_t(next - state.value().begin()) * 4);
  call.set_rows(next - state.value().begin());
  state.mutable_value()->set_end(next);
  expectFinding(test, Code::Norm, {"padding"});
}

TEST(Findings, Report) {
  Case test({}, oneDevice()); // reports the number of updates, but not the loss
  auto &report = *find(test, 0, [](const bundle::Instruction &e) {
                    return e.has_read_metrics();
                  }).mutable_read_metrics();
  for (const auto &state : test.programs[0].state())
    if (state.value().kind() == bundle::Value::OPTIMIZER_STEP) {
      *report.mutable_region() = state.region();
      *report.mutable_value() = state.value();
      report.mutable_value()->set_version(1);
    }
  for (auto &instruction : *test.programs[0].mutable_instructions())
    if (instruction.has_read_metrics())
      instruction.set_phase(bundle::GRAD_NORM);
  expectFinding(test, Code::Report, {"expects the whole block"});

  auto isReport = [](const bundle::Instruction &e) { return e.has_read_metrics(); };
  Case phase({}, oneDevice());
  find(phase, 0, isReport).set_phase(bundle::GRAD_NORM);
  expectFinding(phase, Code::Report, {"in evaluation"});

  Case missing({}, oneDevice());
  uint32_t queue = find(missing, 0, isReport).queue();
  uint32_t computes = 0;
  for (const auto &instruction : missing.programs[0].instructions())
    computes += instruction.queue() == 0;
  for (auto &instruction : *missing.programs[0].mutable_instructions()) // its waiters now wait for
                                                                        // the last update
    for (auto &wait : *instruction.mutable_waits())
      if (wait.queue() == queue) {
        wait.set_queue(0);
        wait.set_position(computes - 1);
      }
  erase(missing.programs[0], bundle::Instruction(find(missing, 0, isReport)));
  expectFinding(missing, Code::Report, {"no device reports", "in training"});

  Case sums({}, oneDevice()); // the host copies the whole block, independent of the region
  auto &part = *find(sums, 0, isReport).mutable_read_metrics();
  part.mutable_region()->set_offset(part.region().offset() + kScalarsBytes);
  part.mutable_region()->set_bytes(128);
  part.mutable_value()->set_kind(bundle::Value::GLOBAL_METRICS);
  expectFinding(sums, Code::Report, {"expects the whole block"});

  Case twice({}, oneDevice());
  bundle::Instruction copy = find(twice, 0, isReport);
  copy.set_id(twice.programs[0].instructions(twice.programs[0].instructions_size() - 1).id() + 1);
  *twice.programs[0].add_instructions() = copy;
  for (auto &instruction : *twice.programs[0].mutable_instructions())
    for (auto &wait : *instruction.mutable_waits())
      if (wait.queue() == queue)
        wait.set_position(wait.position() + 1);
  expectFinding(twice, Code::Report, {"a second report"});
}

TEST(Findings,
     NormWithoutClipping) { // clipping can be enabled when the run starts, and the norm is printed
  SyntheticOptions options;
  options.clipNorm = 0;
  Case test(options, oneDevice());
  for (int e = test.programs[0].instructions_size() - 1; e > 0; --e)
    if (task(bundle::Compute::NORM)(test.programs[0].instructions(e)))
      erase(test.programs[0], bundle::Instruction(test.programs[0].instructions(e)));
  expectFinding(test, Code::Norm, {"misses the contribution of group"});
}

TEST(Findings, CommitByGroup) { // a decision that precedes all sums must not read any
  SyntheticOptions options;
  options.clipNorm = 0;
  Case test(options, oneDevice());
  test.view.commitsByGroup = true;
  expectFinding(test, Code::WrongValue,
                {"decides by bytes that hold", "expects sums without anything added"});
  auto decides = task(bundle::Compute::CLIP_AND_CHECK);
  auto &region = *argument(test, find(test, 0, decides), bundle::LOCAL_METRICS).mutable_region();
  region.set_offset(region.offset() + region.bytes());
  EXPECT_TRUE(test.findings().empty()) << test.text();
  test.view.commitsByGroup = false;
  expectFinding(test, Code::WrongValue, {"reads the sums of all devices"});
}

TEST(Findings, ClippingWhereGroupsCommit) {
  Case test({}, oneDevice());
  test.view.commitsByGroup = true;
  expectFinding(test, Code::Plan, {"commits by group", "clipped"});
}
