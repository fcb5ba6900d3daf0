// One test per finding code: the smallest change to correct programs that causes it.
#include "EditedArgument.h"
#include "SummaryFunctions.h"
#include "VerifyTestSupport.h"

#include "zorse/Summary/Summary.h"

#include <gtest/gtest.h>

#include <limits>

using namespace zorse;
using namespace zorse::test;
using verify::Code;

namespace {

/// Expects a finding with this code and a text that contains all words.
void expectFinding(const Case &test, Code code, std::initializer_list<const char *> words = {}) {
  std::string all;
  for (const auto &finding : test.findings()) {
    std::string text = verify::toString(finding, test.view);
    bool fits = finding.code == code;
    for (const char *word : words)
      fits = fits && text.find(word) != std::string::npos;
    if (fits)
      return;
    all += text + "\n";
  }
  ADD_FAILURE() << "expects a finding [" << verify::name(code) << "]" << (words.size() ? std::string(" with '") + *words.begin() + "'" : "")
                << ", found:\n"
                << all;
}

template <typename Wanted> bundle::Instruction &find(Case &test, int program, Wanted wanted, int nth = 0) {
  for (auto &instruction : *test.programs[program].mutable_instructions())
    if (wanted(instruction) && nth-- == 0)
      return instruction;
  ADD_FAILURE() << "no such instruction";
  return *test.programs[program].mutable_instructions(0);
}
auto task(bundle::Compute::Task t) {
  return [t](const bundle::Instruction &e) { return e.has_compute() && e.compute().task() == t; };
}
bool isSend(const bundle::Instruction &e) { return e.has_send(); }
bool isReceive(const bundle::Instruction &e) { return e.has_receive(); }
bool isReduction(const bundle::Instruction &e) { return e.has_reduce_scatter(); }

/// An argument of an instruction of the first program.
EditedArgument argument(Case &test, bundle::Instruction &instruction, bundle::ArgumentKind kind, int call = 0, uint32_t index = 0) {
  auto &c = *instruction.mutable_compute()->mutable_calls(call);
  const auto &function = test.model.functions.functions(int(c.function()));
  for (int s = 0; s < function.arguments_size(); ++s)
    if (function.arguments(s).kind() == kind && function.arguments(s).index() == index)
      return {test.programs[0], c, s};
  ADD_FAILURE() << "no such argument";
  return {test.programs[0], c, 0};
}

void erase(bundle::Program &program, const bundle::Instruction &instruction) {
  for (int e = 0; e < program.instructions_size(); ++e)
    if (program.instructions(e).id() == instruction.id()) {
      // Its waiters now wait for the previous instruction of its queue.
      uint32_t queue = instruction.queue(), position = 0;
      for (int before = 0; before < e; ++before)
        position += program.instructions(before).queue() == queue;
      program.mutable_instructions()->DeleteSubrange(e, 1);
      for (auto &other : *program.mutable_instructions())
        for (auto &wait : *other.mutable_waits())
          if (wait.queue() == queue && wait.position() >= position && wait.position() > 0)
            wait.set_position(wait.position() - 1);
      return;
    }
}

} // namespace

TEST(Findings, Malformed) {
  Case test({}, pipeline());
  find(test, 0, isSend).mutable_send()->mutable_region()->set_arena(7);
  expectFinding(test, Code::Malformed, {"arena 7 of 1", "instruction", "d0"});

  Case nan({}, oneDevice());
  nan.programs[0].mutable_instructions(3)->set_planned_end(std::numeric_limits<double>::quiet_NaN());
  expectFinding(nan, Code::Malformed, {"not a number"});

  Case function({}, oneDevice());
  find(function, 0, task(bundle::Compute::F)).mutable_compute()->mutable_calls(0)->set_function(1000);
  expectFinding(function, Code::Malformed, {"function 1000 does not exist"});

  for (auto column : {&bundle::Call::mutable_regions, &bundle::Call::mutable_values}) {
    Case row({}, oneDevice());
    auto &rows = *(find(row, 0, task(bundle::Compute::F)).mutable_compute()->mutable_calls(0)->*column)();
    rows.Set(0, 1000);
    expectFinding(row, Code::Malformed, {"to a region or a value that does not exist"});
  }
  Case values({}, oneDevice());
  find(values, 0, task(bundle::Compute::F)).mutable_compute()->mutable_calls(0)->mutable_values()->RemoveLast();
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
  steps.programs[0].mutable_instructions(0)->clear_waits(); // the next step's scalars are loaded while this step reads them
  expectFinding(steps, Code::Race, {"in the step before"});
}

TEST(Findings, Alias) {
  Case test({}, oneDevice());
  auto &forward = find(test, 0, task(bundle::Compute::F));
  *argument(test, forward, bundle::WORKSPACE).mutable_region() = argument(test, forward, bundle::BOUNDARY_OUT).region();
  argument(test, forward, bundle::WORKSPACE).mutable_region()->set_bytes(64 * 8);
  expectFinding(test, Code::Alias, {"overlap"});
}

TEST(Findings, Bounds) {
  Case test({}, oneDevice());
  auto &region = *argument(test, find(test, 0, task(bundle::Compute::F)), bundle::SAVED).mutable_region();
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
  test.view.offload.push_back({{}, {}, {verify::PlanView::Tier::NotNamed, verify::PlanView::Tier::Host}});
  expectFinding(test, Code::Residence, {"moments", "memory of kind DEVICE", "the plan keeps it on the host"});
  test.view.offload.push_back({{0}, {}, {verify::PlanView::Tier::NotNamed, verify::PlanView::Tier::Device}}); // the last rule applies
  EXPECT_TRUE(test.findings().empty()) << test.text();
}

TEST(Findings, PlaceOfUpdates) {
  Case test({}, oneDevice());
  using verify::PlanView;
  PlanView::Offload rule;
  rule.tiers[PlanView::Update] = PlanView::Tier::Host;
  test.view.offload.push_back(rule);
  expectFinding(test, Code::Residence, {"update of group", "done by the device", "the plan gives it to the host's processor"});
}

TEST(Findings, CommitByGroup) { // a decision that precedes all sums must not read any
  SyntheticOptions options;
  options.clipNorm = 0;
  options.skipNonFinite = false;
  Case test(options, oneDevice());
  test.view.commitsByGroup = true;
  expectFinding(test, Code::WrongValue, {"decides by bytes that hold", "expects sums without anything added"});
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

TEST(Findings, TasksReachTheDeviceAlone) {
  Case test({}, oneDevice());
  auto &program = test.programs[0];
  auto &host = *program.add_arenas();
  host.set_kind(bundle::PINNED_HOST);
  auto &region = *argument(test, find(test, 0, task(bundle::Compute::F)), bundle::SAVED).mutable_region();
  host.set_bytes(region.bytes());
  region.set_arena(uint32_t(program.arenas_size() - 1));
  region.set_offset(0);
  expectFinding(test, Code::Reach, {"memory of the host"});
}

TEST(Findings, Alignment) {
  Case test({}, oneDevice());
  test.programs[0].mutable_arenas(0)->set_bytes(test.programs[0].arenas(0).bytes() + 64);
  test.programs[0].set_planned_bytes(test.programs[0].arenas(0).bytes());
  auto &region = *argument(test, find(test, 0, task(bundle::Compute::F)), bundle::SAVED).mutable_region();
  region.set_offset(region.offset() + 32);
  expectFinding(test, Code::Alignment, {"multiple of 64"});
}

TEST(Findings, Size) {
  Case shortArgument({}, oneDevice()); // a short accumulator
  auto &region = *argument(shortArgument, find(shortArgument, 0, task(bundle::Compute::B)), bundle::PARAMETER_GRADIENT).mutable_region();
  region.set_bytes(region.bytes() - 64);
  expectFinding(shortArgument, Code::Size, {"d_w3", "expects"});

  Case transfer({}, pipeline()); // both halves have the same, too small size
  uint32_t id = find(transfer, 0, isSend).id();
  for (auto &program : transfer.programs)
    for (auto &instruction : *program.mutable_instructions())
      if (instruction.id() == id) {
        auto *half = instruction.has_send() ? instruction.mutable_send()->mutable_region() : instruction.mutable_receive()->mutable_region();
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
  std::swap(*find(early, 0, task(bundle::Compute::B)).mutable_compute(), *find(early, 0, task(bundle::Compute::W)).mutable_compute());
  expectFinding(early, Code::Undefined);

  SyntheticOptions options;
  options.units = 6;
  Case block(options, split({8, 1, {{0, 6, 0, 4, 0}, {0, 6, 4, 8, 0}}, {}})); // the block of the other cell
  auto &mine = find(block, 0, task(bundle::Compute::W), 0), &other = find(block, 0, task(bundle::Compute::W), 1);
  for (int c = 0; c < mine.compute().calls_size(); ++c)
    if (classOf(block.model.summary, block.model.summary.units(mine.compute().calls(c).unit())).saved_for_weight_grad_bytes().per_row())
      *argument(block, mine, bundle::SAVED_FOR_WEIGHT_GRAD, c).mutable_region() = argument(block, other, bundle::SAVED_FOR_WEIGHT_GRAD, c).region();
  expectFinding(block, Code::Undefined, {"deferred block of"});

  Case both({}, split(oneDevice())); // B and W both add parameter gradients
  for (const auto &unit : both.model.summary.units())
    if (unit.splits())
      *both.model.functions.mutable_functions(int(functionIndexOf(both.model.summary, unit, bundle::UnitFunction::INPUT_GRADIENTS))) =
          both.model.functions.functions(int(functionIndexOf(both.model.summary, unit, bundle::UnitFunction::BACKWARD)));
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
  auto &argument =
      *more.model.functions.mutable_functions(int(functionIndexOf(more.model.summary, last, bundle::UnitFunction::RECOMPUTE)))->add_arguments();
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
  find(instances, 0, task(bundle::Compute::B)).mutable_compute()->mutable_calls(0)->set_rng_id_base(77);
  expectFinding(instances, Code::Call, {"random instances from 77"});

  Case order({}, oneDevice());
  find(order, 0, task(bundle::Compute::F)).mutable_compute()->mutable_calls()->SwapElements(0, 1);
  expectFinding(order, Code::Call, {"expects unit 0"});

  Case decay({}, oneDevice());
  find(decay, 0, task(bundle::Compute::UPDATE_GROUP)).mutable_compute()->mutable_calls(0)->set_function(decay.model.summary.update_function_plain());
  expectFinding(decay, Code::Call, {"weight decay"});
}

TEST(Findings, Declared) {
  Case test({}, oneDeviceTwoCells());
  argument(test, find(test, 0, task(bundle::Compute::F)), bundle::BOUNDARY_OUT).mutable_value()->set_id(1);
  expectFinding(test, Code::Declared, {"declares value 'h1'", "expects value 'h0'"});
}

TEST(Findings, Undefined) {
  Case test({}, oneDevice());
  erase(test.programs[0], find(test, 0, [](const bundle::Instruction &e) { return e.has_load_input(); }));
  expectFinding(test, Code::Undefined, {"input 'ids', samples 0-8", "nothing has written"});

  Case overwrite({}, oneDevice()); // the first contribution is added to undefined bytes
  argument(overwrite, find(overwrite, 0, task(bundle::Compute::B)), bundle::PARAMETER_GRADIENT).set_overwrite(false);
  expectFinding(overwrite, Code::Undefined, {"first contribution"});
}

TEST(Findings, Stale) {
  // The update reads the decision before it is made and therefore gets the one of the previous step. In the first step,
  // it reads the loaded state, not undefined bytes.
  Case test({}, oneDevice());
  auto &program = test.programs[0];
  int decide = -1, update = -1;
  for (int e = 0; e < program.instructions_size(); ++e) {
    if (task(bundle::Compute::CLIP_AND_CHECK)(program.instructions(e)))
      decide = e;
    if (task(bundle::Compute::UPDATE_GROUP)(program.instructions(e)))
      update = update < 0 ? e : update;
  }
  std::swap(*program.mutable_instructions(decide)->mutable_compute(), *program.mutable_instructions(update)->mutable_compute());
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
  Case test({}, oneDeviceTwoCells()); // the saved block of the other micro-batch has another size, so use the input of another cell
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
  argument(twice, backward, bundle::PARAMETER_GRADIENT).set_overwrite(true); // loses the first micro-batch
  expectFinding(twice, Code::Contributions, {"misses the contribution of unit 3", "samples 0-5"});

  Case members({}, dataParallel(makeModel({})));
  uint32_t id =
      find(members, 0, [](const bundle::Instruction &e) { return e.has_reduce_scatter() && e.reduce_scatter().shards().members_size() == 2; }).id();
  for (auto &program : members.programs)
    for (auto &instruction : *program.mutable_instructions())
      if (instruction.id() == id) {
        instruction.mutable_reduce_scatter()->mutable_contributors()->RemoveLast();
        if (program.device() == 1)
          instruction.mutable_reduce_scatter()->clear_full();
      }
  expectFinding(members, Code::Contributions, {"misses contributor d1"});
}

namespace {

/// Programs in which devices have several runs, and one of their collectives, with a given number of shards, which is
/// changed on all of its members.
struct Runs : Case {
  explicit Runs(bool gather = false) : Case({}, ownersInTurns(makeModel({}), /*compact=*/true)), gather(gather) {
    id = find(*this, 0, [&](const bundle::Instruction &e) {
           return gather ? e.all_gather().shards().members_size() > 4 : e.reduce_scatter().shards().members_size() > 4;
         }).id();
  }
  template <typename F> void change(F f) {
    for (auto &program : programs)
      for (auto &instruction : *program.mutable_instructions())
        if (instruction.id() == id)
          f(instruction, program.device());
  }
  bundle::ShardRanges &shards(bundle::Instruction &instruction) const {
    return gather ? *instruction.mutable_all_gather()->mutable_shards() : *instruction.mutable_reduce_scatter()->mutable_shards();
  }
  static int last(const bundle::ShardRanges &extents, uint32_t device) {
    int i = extents.members_size() - 1;
    while (extents.members(i) != device)
      --i;
    return i;
  }
  static int64_t remove(bundle::ShardRanges &extents, int i) {
    const int64_t elements = extents.end(i) - extents.begin(i);
    extents.mutable_members()->erase(extents.members().begin() + i);
    extents.mutable_begin()->erase(extents.begin().begin() + i);
    extents.mutable_end()->erase(extents.end().begin() + i);
    return elements;
  }

  bool gather;
  uint32_t id;
};

} // namespace

TEST(Findings, RunsThatDoNotAscend) {
  Runs order;
  order.change([&](bundle::Instruction &instruction, uint32_t) {
    bundle::ShardRanges &shards = order.shards(instruction);
    ASSERT_EQ(shards.members(0), 0u);
    const int other = Runs::last(shards, 0);
    for (auto *numbers : {shards.mutable_begin(), shards.mutable_end()})
      numbers->SwapElements(0, other);
  });
  expectFinding(order, Code::Malformed, {"shards of d0", "expects them to ascend"});

  Runs overlap(/*gather=*/true);
  overlap.change([&](bundle::Instruction &instruction, uint32_t) {
    bundle::ShardRanges &shards = overlap.shards(instruction);
    shards.set_begin(Runs::last(shards, 0), shards.begin(0) + 16);
  });
  expectFinding(overlap, Code::Malformed, {"shards of d0", "expects them to ascend"});
}

TEST(Findings, RunsWithAHole) {
  for (bool gather : {false, true}) {
    Runs owners(gather);
    owners.change([&](bundle::Instruction &instruction, uint32_t device) {
      const int64_t elements = Runs::remove(owners.shards(instruction), Runs::last(owners.shards(instruction), 2));
      bundle::Region *shard = gather ? instruction.mutable_all_gather()->mutable_shard() : instruction.mutable_reduce_scatter()->mutable_shard();
      if (device == 2)
        shard->set_bytes(shard->bytes() - uint64_t(elements) * 4);
    });
    expectFinding(owners, Code::Mismatched, {"its shards are not the extents the owners hold"});
  }

  Runs reader(/*gather=*/true);
  reader.change([&](bundle::Instruction &instruction, uint32_t device) {
    bundle::ShardRanges &reads = *instruction.mutable_all_gather()->mutable_reads();
    const int64_t elements = Runs::remove(reads, Runs::last(reads, 1));
    bundle::Region *full = instruction.mutable_all_gather()->mutable_full();
    if (device == 1)
      full->set_bytes(full->bytes() - uint64_t(elements) * 4);
  });
  EXPECT_NE(reader.text(), "") << "device 1 reads undefined bytes";

  Runs part;
  part.change([&](bundle::Instruction &instruction, uint32_t) {
    bundle::ShardRanges &terms = *instruction.mutable_reduce_scatter()->mutable_terms();
    const int i = Runs::last(terms, 1);
    terms.set_end(i, terms.end(i) - 8);
  });
  expectFinding(part, Code::Malformed, {"terms of d1", "have a part of the shard"});
}

TEST(Findings, ContributorsOfAShard) {
  Runs lacks;
  lacks.change([&](bundle::Instruction &instruction, uint32_t device) {
    bundle::ShardRanges &terms = *instruction.mutable_reduce_scatter()->mutable_terms();
    const int64_t elements = Runs::remove(terms, Runs::last(terms, 1));
    bundle::Region *full = instruction.mutable_reduce_scatter()->mutable_full();
    if (device == 1)
      full->set_bytes(full->bytes() - uint64_t(elements) * 4);
  });
  expectFinding(lacks, Code::Contributions, {"misses contributor d1 to elements"});

  Runs none;
  none.change([&](bundle::Instruction &instruction, uint32_t) {
    for (uint32_t &member : *instruction.mutable_reduce_scatter()->mutable_terms()->mutable_members())
      member = 0;
  });
  expectFinding(none, Code::Malformed);

  Runs other;
  other.change([&](bundle::Instruction &instruction, uint32_t) { // a device without a cell
    for (uint32_t &member : *instruction.mutable_reduce_scatter()->mutable_terms()->mutable_members())
      member = member == 1 ? 2 : member;
    instruction.mutable_reduce_scatter()->mutable_contributors()->Set(1, 2);
  });
  EXPECT_NE(other.text(), "");

  Runs unnamed;
  unnamed.change([&](bundle::Instruction &instruction, uint32_t) { instruction.mutable_reduce_scatter()->mutable_contributors()->RemoveLast(); });
  expectFinding(unnamed, Code::Malformed, {"terms: name d1, which takes no part"});
}

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
    erase(program, find(members, int(program.device()), [](const bundle::Instruction &e) { return e.has_all_reduce(); }));
  expectFinding(members, Code::Norm, {"expects that of all owners"});
}

TEST(Findings, NormOfPadding) {
  Case test({}, oneDevice());
  auto &norm = find(test, 0, [&](const bundle::Instruction &e) { return task(bundle::Compute::NORM)(e) && e.compute().calls_size() > 1; });
  auto &call = *norm.mutable_compute()->mutable_calls(0);
  EditedArgument state(test.programs[0], call, 0);
  int64_t next = bundle::ArgumentBindings(test.programs[0], norm.compute().calls(1))[0].value.begin();
  state.mutable_region()->set_bytes(uint64_t(next - state.value().begin()) * 4);
  call.set_rows(next - state.value().begin());
  state.mutable_value()->set_end(next);
  expectFinding(test, Code::Norm, {"padding"});
}

TEST(Findings, Report) {
  Case test({}, oneDevice()); // reports the number of updates, but not the loss
  auto &report = *find(test, 0, [](const bundle::Instruction &e) { return e.has_read_metrics(); }).mutable_read_metrics();
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
  for (auto &instruction : *missing.programs[0].mutable_instructions()) // its waiters now wait for the last update
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

TEST(Findings, NormWithoutClipping) { // clipping can be enabled when the run starts, and the norm is printed
  SyntheticOptions options;
  options.clipNorm = 0;
  options.skipNonFinite = false;
  Case test(options, oneDevice());
  for (int e = test.programs[0].instructions_size() - 1; e > 0; --e)
    if (task(bundle::Compute::NORM)(test.programs[0].instructions(e)))
      erase(test.programs[0], bundle::Instruction(test.programs[0].instructions(e)));
  expectFinding(test, Code::Norm, {"misses the contribution of group"});
}

TEST(Findings, TypeOfState) {
  Case test({}, oneDevice());
  test.programs[0].mutable_state(0)->set_type(bundle::BF16);
  expectFinding(test, Code::Mismatched, {"element type", "is not the group's"});
}

TEST(Findings, EvaluationFirst) { // an evaluation must not depend on data of an earlier training step
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
  expectFinding(test, Code::WrongValue, {"d0: instruction", "send of value 'h1'", "to d1", "hold value 'h0'", "F(units 0-2, samples 0-4)"});
}

TEST(Findings, BodiesWithImpossibleModes) {
  Case test({}, oneDevice());
  auto &function =
      *test.model.functions.mutable_functions(int(functionIndexOf(test.model.summary, test.model.summary.units(1), bundle::UnitFunction::FORWARD)));
  for (auto &s : *function.mutable_arguments())
    if (s.kind() == bundle::PARAMETER)
      s.set_mode(bundle::WRITE);
  expectFinding(test, Code::Malformed, {"unit1", "mode"});

  Case commit({}, oneDevice()); // a decision must read the sums
  auto &decide = *commit.model.functions.mutable_functions(int(commit.model.summary.clip_and_check_function()));
  decide.mutable_arguments(0)->set_mode(bundle::UPDATE);
  expectFinding(commit, Code::Malformed, {"no argument for the sums"});
}
