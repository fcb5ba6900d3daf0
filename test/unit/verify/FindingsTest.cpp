// One test per finding code: the smallest change to correct programs that causes it. Tests of
// collectives and of the commit: CollectiveFindingsTest.cpp, CommitFindingsTest.cpp.
#include "FindingsSupport.h"
#include "SummaryFunctions.h"

#include "zorse/Summary/Summary.h"

#include <limits>

using namespace zorse;
using namespace zorse::test;
using verify::Code;

TEST(Findings, Malformed) {
  Case test({}, pipeline());
  find(test, 0, isSend).mutable_send()->mutable_region()->set_arena(7);
  expectFinding(test, Code::Malformed, {"arena 7 of 1", "instruction", "d0"});

  Case nan({}, oneDevice());
  nan.programs[0].mutable_instructions(3)->set_planned_end(
      std::numeric_limits<double>::quiet_NaN());
  expectFinding(nan, Code::Malformed, {"not a number"});

  Case function({}, oneDevice());
  find(function, 0, task(bundle::Compute::F))
      .mutable_compute()
      ->mutable_calls(0)
      ->set_function(1000);
  expectFinding(function, Code::Malformed, {"function 1000 does not exist"});

  for (auto column : {&bundle::Call::mutable_regions, &bundle::Call::mutable_values}) {
    Case row({}, oneDevice());
    auto &rows =
        *(find(row, 0, task(bundle::Compute::F)).mutable_compute()->mutable_calls(0)->*column)();
    rows.Set(0, 1000);
    expectFinding(row, Code::Malformed, {"to a region or a value that does not exist"});
  }
  Case values({}, oneDevice());
  find(values, 0, task(bundle::Compute::F))
      .mutable_compute()
      ->mutable_calls(0)
      ->mutable_values()
      ->RemoveLast();
  expectFinding(values, Code::Malformed, {"to a region or a value that does not exist"});
}

TEST(Findings, Plan) {
  Case overlap({}, pipeline());
  overlap.view.cells[3].firstSample = 2;
  expectFinding(overlap, Code::Plan);
  Case gap({}, pipeline());
  gap.view.cells.pop_back();
  expectFinding(gap, Code::Plan, {"cells cover"});
}

TEST(Findings, Unsupported) {
  Case test({}, oneDevice());
  find(test, 0, task(bundle::Compute::B)).mutable_compute()->set_task(bundle::Compute::R);
  expectFinding(test, Code::Unsupported);
}

TEST(Findings, Unmatched) {
  Case missing({}, pipeline());
  erase(missing.programs[0], find(missing, 0, isSend));
  expectFinding(missing, Code::Unmatched, {"no other half", "from d0"});

  Case peer({}, SerialPlan{4, 3, {{0, 2, 0, 4, 0}, {2, 4, 0, 2, 1}, {2, 4, 2, 4, 2}}, {}});
  find(peer, 0, isSend).mutable_send()->set_peer(2);
  expectFinding(peer, Code::Unmatched);

  Case member({}, dataParallel(makeModel({})));
  erase(member.programs[1], find(member, 1, isReduction));
  expectFinding(member, Code::Unmatched, {"reduce-scatter", "d1"});
}

TEST(Findings, Mismatched) {
  Case value({}, pipeline());
  auto &receive = *find(value, 1, isReceive).mutable_receive();
  receive.mutable_value()->set_begin(receive.value().begin() + 1);
  receive.mutable_value()->set_end(receive.value().end() + 1);
  expectFinding(value, Code::Mismatched, {"expects another value"});

  Case extents({}, dataParallel(makeModel({})));
  auto &reduce = *find(extents, 0, isReduction).mutable_reduce_scatter();
  std::swap(*reduce.mutable_contributors()->Mutable(0), *reduce.mutable_contributors()->Mutable(1));
  expectFinding(extents, Code::Mismatched, {"differs from the half on"});
}

TEST(Findings, Order) {
  Case ids({}, oneDevice());
  ids.programs[0].mutable_instructions(4)->set_id(0);
  expectFinding(ids, Code::Order, {"ascending"});

  Case wait({}, oneDevice());
  auto *late = wait.programs[0].mutable_instructions(1)->add_waits();
  late->set_queue(5);
  late->set_position(0);
  expectFinding(wait, Code::Order, {"a deadlock"});
}

TEST(Findings, Race) {
  Case local({}, oneDevice());
  find(local, 0, task(bundle::Compute::F)).clear_waits(); // runs while its input is loaded
  expectFinding(local, Code::Race, {"F(units 0-4, samples 0-8) on d0", "load of input 'labels'"});

  Case steps({}, oneDevice());
  steps.programs[0].mutable_instructions(0)->clear_waits(); // the next step's scalars are loaded
                                                            // while this step reads them
  expectFinding(steps, Code::Race, {"in the step before"});
}

TEST(Findings, Alias) {
  Case test({}, oneDevice());
  auto &forward = find(test, 0, task(bundle::Compute::F));
  *argument(test, forward, bundle::WORKSPACE).mutable_region() =
      argument(test, forward, bundle::BOUNDARY_OUT).region();
  argument(test, forward, bundle::WORKSPACE).mutable_region()->set_bytes(64 * 8);
  expectFinding(test, Code::Alias, {"overlap"});
}

TEST(Findings, Bounds) {
  Case test({}, oneDevice());
  auto &region =
      *argument(test, find(test, 0, task(bundle::Compute::F)), bundle::SAVED).mutable_region();
  region.set_offset(test.programs[0].arenas(0).bytes() - 64);
  expectFinding(test, Code::Bounds, {"leave arena 0"});
  region.set_offset(std::numeric_limits<uint64_t>::max() - 64);
  expectFinding(test, Code::Bounds);
}

TEST(Findings, Limit) {
  Case test({}, oneDevice());
  test.view.devices[0].memoryBytes = int64_t(test.programs[0].arenas(0).bytes()) - 1;
  expectFinding(test, Code::Limit, {"arenas need"});
}

TEST(Findings, Residence) {
  Case test({}, oneDevice());
  test.view.offload.push_back(
      {{}, {}, {verify::PlanView::Tier::NotNamed, verify::PlanView::Tier::Host}});
  expectFinding(test, Code::Residence,
                {"moments", "memory of kind DEVICE", "the plan keeps it on the host"});
  // The last rule applies.
  test.view.offload.push_back(
      {{0}, {}, {verify::PlanView::Tier::NotNamed, verify::PlanView::Tier::Device}});
  EXPECT_TRUE(test.findings().empty()) << test.text();
}

TEST(Findings, PlaceOfUpdates) {
  Case test({}, oneDevice());
  using verify::PlanView;
  PlanView::Offload rule;
  rule.tiers[PlanView::Update] = PlanView::Tier::Host;
  test.view.offload.push_back(rule);
  expectFinding(
      test, Code::Residence,
      {"update of group", "done by the device", "the plan gives it to the host's processor"});
}

TEST(Findings, TasksReachTheDeviceAlone) {
  Case test({}, oneDevice());
  auto &program = test.programs[0];
  auto &host = *program.add_arenas();
  host.set_kind(bundle::PINNED_HOST);
  auto &region =
      *argument(test, find(test, 0, task(bundle::Compute::F)), bundle::SAVED).mutable_region();
  host.set_bytes(region.bytes());
  region.set_arena(uint32_t(program.arenas_size() - 1));
  region.set_offset(0);
  expectFinding(test, Code::Reach, {"memory of the host"});
}

TEST(Findings, Alignment) {
  Case test({}, oneDevice());
  test.programs[0].mutable_arenas(0)->set_bytes(test.programs[0].arenas(0).bytes() + 64);
  test.programs[0].set_planned_bytes(test.programs[0].arenas(0).bytes());
  auto &region =
      *argument(test, find(test, 0, task(bundle::Compute::F)), bundle::SAVED).mutable_region();
  region.set_offset(region.offset() + 32);
  expectFinding(test, Code::Alignment, {"multiple of 64"});
}

TEST(Findings, Size) {
  Case shortArgument({}, oneDevice()); // a short accumulator
  auto &region = *argument(shortArgument, find(shortArgument, 0, task(bundle::Compute::B)),
                           bundle::PARAMETER_GRADIENT)
                      .mutable_region();
  region.set_bytes(region.bytes() - 64);
  expectFinding(shortArgument, Code::Size, {"d_w3", "expects"});

  Case transfer({}, pipeline()); // both halves have the same, too small size
  uint32_t id = find(transfer, 0, isSend).id();
  for (auto &program : transfer.programs)
    for (auto &instruction : *program.mutable_instructions())
      if (instruction.id() == id) {
        auto *half = instruction.has_send() ? instruction.mutable_send()->mutable_region()
                                            : instruction.mutable_receive()->mutable_region();
        half->set_bytes(half->bytes() - 64);
      }
  expectFinding(transfer, Code::Size);
}

TEST(Findings, Task) {
  Case missing({}, pipeline());
  erase(missing.programs[0], find(missing, 0, task(bundle::Compute::B)));
  expectFinding(missing, Code::Task, {"B(units 0-2", "occurs 0 times"});

  Case elsewhere({}, pipeline());
  find(elsewhere, 0, task(bundle::Compute::F)).mutable_compute()->set_cell(3);
  expectFinding(elsewhere, Code::Task, {"its cell belongs to d1"});
}

TEST(Findings, SplitBackward) {
  EXPECT_EQ(Case({}, split(pipeline())).text(), "");
  EXPECT_EQ(Case({}, split(oneDeviceTwoCells())).text(), "");

  Case missing({}, split(pipeline()));
  erase(missing.programs[0], find(missing, 0, task(bundle::Compute::W)));
  expectFinding(missing, Code::Task, {"W(units 0-2", "occurs 0 times, expects once"});

  Case unplanned({}, split(oneDevice())); // the plan does not split
  unplanned.view.splitBackward = false;
  expectFinding(unplanned, Code::Call, {"the task has no further units"});

  Case whole({}, oneDevice()); // the plan splits, the programs do not
  whole.view.splitBackward = true;
  expectFinding(whole, Code::Call);

  Case early({}, split(oneDevice())); // W in the place of B
  std::swap(*find(early, 0, task(bundle::Compute::B)).mutable_compute(),
            *find(early, 0, task(bundle::Compute::W)).mutable_compute());
  expectFinding(early, Code::Undefined);

  SyntheticOptions options;
  options.units = 6;
  Case block(options, split({8, 1, {{0, 6, 0, 4, 0}, {0, 6, 4, 8, 0}}, {}})); // the block of the
                                                                              // other cell
  auto &mine = find(block, 0, task(bundle::Compute::W), 0),
       &other = find(block, 0, task(bundle::Compute::W), 1);
  for (int c = 0; c < mine.compute().calls_size(); ++c)
    if (classOf(block.model.summary, block.model.summary.units(mine.compute().calls(c).unit()))
            .saved_for_weight_grad_bytes()
            .per_row())
      *argument(block, mine, bundle::SAVED_FOR_WEIGHT_GRAD, c).mutable_region() =
          argument(block, other, bundle::SAVED_FOR_WEIGHT_GRAD, c).region();
  expectFinding(block, Code::Undefined, {"deferred block of"});

  Case both({}, split(oneDevice())); // B and W both add parameter gradients
  for (const auto &unit : both.model.summary.units())
    if (unit.splits())
      *both.model.functions.mutable_functions(
          int(functionIndexOf(both.model.summary, unit, bundle::UnitFunction::INPUT_GRADIENTS))) =
          both.model.functions.functions(
              int(functionIndexOf(both.model.summary, unit, bundle::UnitFunction::BACKWARD)));
  expectFinding(both, Code::Malformed, {"gradients of values only"});
}

TEST(Findings, Recompute) {
  Case planned({}, oneDevice()); // the plan recomputes, the programs do not
  planned.view.cells[0].recompute = true;
  expectFinding(planned, Code::Call, {"call 0 is of unit 3, expects unit 0"});

  Case more({}, oneDevice()); // the recomputation of the last unit also computes its loss
  more.view.cells[0].recompute = true;
  const auto &last = more.model.summary.units(3);
  ASSERT_TRUE(findFunction(classOf(more.model.summary, last), bundle::UnitFunction::RECOMPUTE));
  auto &argument = *more.model.functions
                        .mutable_functions(int(functionIndexOf(more.model.summary, last,
                                                               bundle::UnitFunction::RECOMPUTE)))
                        ->add_arguments();
  argument.set_kind(bundle::LOSS);
  argument.set_mode(bundle::WRITE);
  argument.set_name("loss");
  expectFinding(more, Code::Malformed, {"recomputes its saved block changes argument 'loss', too"});
}

TEST(Findings, Call) {
  Case base({}, oneDeviceTwoCells());
  find(base, 0, task(bundle::Compute::F)).mutable_compute()->mutable_calls(1)->set_sample_base(3);
  expectFinding(base, Code::Call, {"is called for samples 3-8"});

  Case instances({}, oneDevice());
  find(instances, 0, task(bundle::Compute::B))
      .mutable_compute()
      ->mutable_calls(0)
      ->set_rng_id_base(77);
  expectFinding(instances, Code::Call, {"random instances from 77"});

  Case order({}, oneDevice());
  find(order, 0, task(bundle::Compute::F)).mutable_compute()->mutable_calls()->SwapElements(0, 1);
  expectFinding(order, Code::Call, {"expects unit 0"});

  Case decay({}, oneDevice());
  find(decay, 0, task(bundle::Compute::UPDATE_GROUP))
      .mutable_compute()
      ->mutable_calls(0)
      ->set_function(decay.model.summary.update_rules(1).function());
  expectFinding(decay, Code::Call, {"whose update rule is 'decay'"});
}

/// A rule that updates blocks of 32 elements, with states of one entry per block and per element.
static Case blocks() {
  SyntheticOptions options;
  options.block = 32;
  return Case(options, oneDevice());
}

TEST(Findings, BlocksAreWhole) {
  Case good = blocks();
  EXPECT_EQ(good.text(), "");

  Case inside = blocks(); // one row less, from the middle of a block on
  auto &update = find(inside, 0, task(bundle::Compute::UPDATE_GROUP));
  auto &call = *update.mutable_compute()->mutable_calls(0);
  call.set_rows(call.rows() - 1);
  for (uint32_t state : {0u, 1u}) {
    EditedArgument edited = argument(inside, update, bundle::STATE, 0, state);
    edited.mutable_value()->set_begin(edited.value().begin() + 16);
    edited.mutable_value()->set_end(edited.value().end() - 16);
    edited.mutable_region()->set_offset(edited.region().offset() + 64);
    edited.mutable_region()->set_bytes(edited.region().bytes() - 128);
  }
  for (uint32_t state : {0u, 1u}) {
    const int entries = state ? 32 : 1;
    EditedArgument edited = argument(inside, update, bundle::STATE, 0, 2 + state);
    edited.mutable_value()->set_end(edited.value().end() - entries);
    edited.mutable_region()->set_bytes(edited.region().bytes() - 4 * uint64_t(entries));
  }
  expectFinding(inside, Code::Call, {"are no whole blocks of 32 elements"});

  Case odd = blocks();
  for (auto &rule : *odd.model.summary.mutable_update_rules())
    rule.set_block(0, 160);
  expectFinding(odd, Code::Malformed, {"is not made of the blocks of its update rule"});

  Case empty = blocks();
  empty.model.summary.mutable_update_rules(0)->mutable_states(0)->set_entries(0);
  expectFinding(empty, Code::Malformed, {"a state of an impossible size"});

  Case types = blocks();
  types.model.summary.mutable_update_rules(0)->mutable_states(0)->set_type(bundle::U8);
  expectFinding(types, Code::Malformed, {"optimizer states of another type"});
}

TEST(Findings, StatesBelongToTheirBlocks) {
  Case shifted = blocks(); // the first state of another block
  auto &update = find(shifted, 0, task(bundle::Compute::UPDATE_GROUP));
  EditedArgument state = argument(shifted, update, bundle::STATE, 0, 2);
  state.mutable_value()->set_begin(state.value().begin() + 1);
  state.mutable_value()->set_end(state.value().end() + 1);
  expectFinding(shifted, Code::Call, {"argument 'moments'", "differs from the task"});

  Case small = blocks(); // a state with one number per element, of which the program keeps one per
                         // block
  for (auto &rule : *small.model.summary.mutable_update_rules())
    rule.mutable_states(0)->set_entries(32);
  EXPECT_FALSE(small.findings().empty());
}

TEST(Findings, Declared) {
  Case test({}, oneDeviceTwoCells());
  argument(test, find(test, 0, task(bundle::Compute::F)), bundle::BOUNDARY_OUT)
      .mutable_value()
      ->set_id(1);
  expectFinding(test, Code::Declared, {"declares value 'h1'", "expects value 'h0'"});
}

TEST(Findings, Undefined) {
  Case test({}, oneDevice());
  erase(test.programs[0],
        find(test, 0, [](const bundle::Instruction &e) { return e.has_load_input(); }));
  expectFinding(test, Code::Undefined, {"input 'ids', samples 0-8", "nothing has written"});

  Case overwrite({}, oneDevice()); // the first contribution is added to undefined bytes
  argument(overwrite, find(overwrite, 0, task(bundle::Compute::B)), bundle::PARAMETER_GRADIENT)
      .set_overwrite(false);
  expectFinding(overwrite, Code::Undefined, {"first contribution"});
}

TEST(Findings, Stale) {
  // The update reads the decision before it is made and therefore gets the one of the previous
  // step. In the first step, it reads the loaded state, not undefined bytes.
  Case test({}, oneDevice());
  auto &program = test.programs[0];
  int decide = -1, update = -1;
  for (int e = 0; e < program.instructions_size(); ++e) {
    if (task(bundle::Compute::CLIP_AND_CHECK)(program.instructions(e)))
      decide = e;
    if (task(bundle::Compute::UPDATE_GROUP)(program.instructions(e)))
      update = update < 0 ? e : update;
  }
  std::swap(*program.mutable_instructions(decide)->mutable_compute(),
            *program.mutable_instructions(update)->mutable_compute());
  program.mutable_instructions(decide)->set_phase(bundle::UPDATE_STATE);
  program.mutable_instructions(update)->set_phase(bundle::GRAD_NORM);
  expectFinding(test, Code::Stale, {"optimizer step"});
}

TEST(Findings, StaleWeight) {
  Case test({}, oneDevice()); // an update before the backward that needs the old version
  auto &program = test.programs[0];
  auto &backward = find(test, 0, task(bundle::Compute::B));
  auto &update = find(test, 0, task(bundle::Compute::UPDATE_GROUP));
  std::swap(*backward.mutable_compute(), *update.mutable_compute());
  backward.set_phase(bundle::UPDATE_STATE);
  update.set_phase(bundle::BACKWARD);
  (void)program;
  EXPECT_FALSE(test.findings().empty());
}

TEST(Findings, WrongValue) {
  Case test({}, oneDeviceTwoCells()); // the saved block of the other micro-batch has another size,
                                      // so use the input of another cell
  auto &forward = find(test, 0, task(bundle::Compute::F));
  auto &second = find(test, 0, task(bundle::Compute::F), 1);
  EditedArgument input = argument(test, second, bundle::INPUT);
  *input.mutable_region() = argument(test, forward, bundle::INPUT).region();
  input.mutable_region()->set_bytes(64 * 3);
  expectFinding(test, Code::WrongValue, {"F(units 0-4, samples 5-8) on d0", "load of input 'ids'"});
}

TEST(Findings, Contributions) {
  Case twice({}, oneDeviceTwoCells());
  auto &backward = find(twice, 0, task(bundle::Compute::B), 1);
  argument(twice, backward, bundle::PARAMETER_GRADIENT).set_overwrite(true); // loses the first
                                                                             // micro-batch
  expectFinding(twice, Code::Contributions, {"misses the contribution of unit 3", "samples 0-5"});

  Case members({}, dataParallel(makeModel({})));
  uint32_t id = find(members, 0, [](const bundle::Instruction &e) {
                  return e.has_reduce_scatter() && e.reduce_scatter().shards().members_size() == 2;
                }).id();
  for (auto &program : members.programs)
    for (auto &instruction : *program.mutable_instructions())
      if (instruction.id() == id) {
        instruction.mutable_reduce_scatter()->mutable_contributors()->RemoveLast();
        if (program.device() == 1)
          instruction.mutable_reduce_scatter()->clear_full();
      }
  expectFinding(members, Code::Contributions, {"misses contributor d1"});
}

TEST(Findings, TypeOfState) {
  Case test({}, oneDevice());
  test.programs[0].mutable_state(0)->set_type(bundle::BF16);
  expectFinding(test, Code::Mismatched, {"element type", "is not the group's"});
}

TEST(Findings,
     EvaluationFirst) { // an evaluation must not depend on data of an earlier training step
  Case test({}, pipeline());
  for (auto &instruction : *test.programs[1].mutable_instructions())
    if (isReceive(instruction) && instruction.phase() == bundle::FORWARD) {
      uint32_t id = instruction.id();
      for (auto &program : test.programs)
        for (auto &half : *program.mutable_instructions())
          if (half.id() == id)
            half.set_phase(bundle::BACKWARD);
      break;
    }
  expectFinding(test, Code::Undefined, {"F(units 2-4"});
}

TEST(Findings, NameTasks) {
  Case test({}, pipeline());
  auto &send = *find(test, 0, isSend, 1).mutable_send();
  send.mutable_region()->set_offset(find(test, 0, isSend, 0).send().region().offset());
  expectFinding(test, Code::WrongValue,
                {"d0: instruction", "send of value 'h1'", "to d1", "hold value 'h0'",
                 "F(units 0-2, samples 0-4)"});
}

TEST(Findings, BodiesWithImpossibleModes) {
  Case test({}, oneDevice());
  auto &function = *test.model.functions.mutable_functions(int(functionIndexOf(
      test.model.summary, test.model.summary.units(1), bundle::UnitFunction::FORWARD)));
  for (auto &s : *function.mutable_arguments())
    if (s.kind() == bundle::PARAMETER)
      s.set_mode(bundle::WRITE);
  expectFinding(test, Code::Malformed, {"unit1", "mode"});

  Case commit({}, oneDevice()); // a decision must read the sums
  auto &decide = *commit.model.functions.mutable_functions(
      int(commit.model.summary.clip_and_check_function()));
  decide.mutable_arguments(0)->set_mode(bundle::UPDATE);
  expectFinding(commit, Code::Malformed, {"no argument for the sums"});
}
