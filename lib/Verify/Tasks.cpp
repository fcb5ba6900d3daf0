// Checks a device's tasks against plan and summary.
#include "Device.h"

#include <map>

using namespace zorse;
using namespace zorse::verify;

namespace {

std::string rangeText(int64_t begin, int64_t end) {
  return std::to_string(begin) + "-" + std::to_string(end);
}

/// Unfinished tasks of cells: the number of calls made so far and the latest instruction.
using Begun = std::map<std::pair<int32_t, bundle::Compute::Task>,
                       std::pair<size_t, const bundle::Instruction *>>;

/// Checks one instruction.
class TaskChecker {
public:
  /// \param expected  memory for the calls of a task
  TaskChecker(Device &device, const bundle::Instruction &instruction, bool byHost, Begun &begun,
              std::vector<Model::UnitCall> &expected)
      : device(device), instruction(instruction), compute(instruction.compute()), byHost(byHost),
        begun(begun), expected(expected) {}

  void check() {
    if (device.getProgram().queues(int(instruction.queue())).kind() != bundle::COMPUTE)
      fail(Code::Task, "is not on a compute queue");
    switch (compute.task()) {
    case bundle::Compute::F:
    case bundle::Compute::B:
    case bundle::Compute::W:
      return checkCell();
    case bundle::Compute::SUM_LOSS:
      phase(bundle::FORWARD, "FORWARD");
      return only([&](uint32_t function) { return function == model.summary.sum_loss_function(); },
                  "the loss sum");
    case bundle::Compute::NORM:
      phase(bundle::GRAD_NORM, "COMMIT");
      return only([&](uint32_t function) { return function == model.summary.norm_function(); },
                  "the norm");
    case bundle::Compute::CLIP_AND_CHECK:
      phase(bundle::GRAD_NORM, "COMMIT");
      return onlyOne(model.summary.clip_and_check_function(), "the decision");
    case bundle::Compute::SCALE_LOSS_GRADIENT:
      phase(bundle::BACKWARD, "BACKWARD");
      if (!model.scales())
        return fail(Code::Task, "the loss of this model is not scaled");
      return onlyOne(model.summary.scale_loss_gradient_function(), "the scaling of seeds");
    case bundle::Compute::UPDATE_GROUP:
      return checkUpdate();
    case bundle::Compute::CAST_PARAMETERS:
      return checkCast();
    default:
      return fail(Code::Unsupported,
                  "task " + std::to_string(int(compute.task())) + " is not known to this version");
    }
  }

private:
  void fail(Code code, const std::string &message) {
    device.report(code, instruction.id(), device.where(instruction) + ": " + message);
  }

  void phase(bundle::Phase expected, const char *text) {
    if (instruction.phase() != expected)
      fail(Code::Task, std::string("is not in phase ") + text);
  }

  /// Checks that the task calls only allowed functions that are not unit functions.
  template <typename Allowed> void only(Allowed allowed, const char *text) {
    for (const bundle::Call &call : compute.calls())
      if (call.unit() >= 0 || !allowed(call.function()))
        return fail(Code::Call, "calls function '" +
                                    model.functions.functions(int(call.function())).name() +
                                    "', expects " + text);
  }
  void onlyOne(uint32_t its, const char *text) {
    if (compute.calls_size() != 1)
      fail(Code::Call, "has " + std::to_string(compute.calls_size()) + " calls, expects one");
    only([&](uint32_t function) { return function == its; }, text);
  }

  void checkCell() {
    compute.task() == bundle::Compute::F ? phase(bundle::FORWARD, "FORWARD")
                                         : phase(bundle::BACKWARD, "BACKWARD");
    if (compute.cell() < 0 || size_t(compute.cell()) >= model.plan.cells.size())
      return fail(Code::Task, "cell " + std::to_string(compute.cell()) + " is not in the plan");
    const auto &cell = model.plan.cells[compute.cell()];
    if (cell.device != device.getProgram().device())
      fail(Code::Task, "its cell belongs to " + device.deviceName(cell.device));
    model.callsOf(cell, compute.task(), expected);
    const std::pair name(compute.cell(), compute.task());
    const auto before = begun.find(name);
    size_t made = before == begun.end() ? 0 : before->second.first;
    bool fits = true;
    for (const bundle::Call &call : compute.calls()) {
      const bool isLossSum = call.unit() < 0 &&
                             call.function() == model.summary.sum_loss_function();
      if (compute.task() == bundle::Compute::F && made == expected.size() && isLossSum)
        continue;
      if (made == expected.size() || call.unit() != expected[made].unit) {
        fail(Code::Call, "call " + std::to_string(made) + " is of unit " +
                             std::to_string(call.unit()) +
                             (made == expected.size()
                                  ? ", the task has no further units"
                                  : ", expects unit " + std::to_string(expected[made].unit)));
        fits = false;
        break;
      }
      checkUnitCall(call, expected[made++]);
    }
    if (fits && made < expected.size()) {
      begun[name] = {made, &instruction};
      return;
    }
    begun.erase(name);
    device.getResult().tasks.push_back({uint32_t(compute.cell()), compute.task()});
  }

  void checkUnitCall(const bundle::Call &call, const Model::UnitCall &its) {
    const auto &unit = model.unitOf(device.getProgram().device(), call.unit());
    if (call.segment() != its.segment)
      fail(Code::Call, "unit '" + unit.name() + "' is called with segment " +
                           std::to_string(call.segment()) + ", expects " +
                           std::to_string(its.segment));
    if (call.function() != its.function)
      fail(Code::Call, "unit '" + unit.name() + "' is called with function '" +
                           model.functions.functions(int(call.function())).name() + "'");
    if (call.sample_base() != its.samples.begin ||
        call.sample_base() + call.rows() != its.samples.end)
      fail(Code::Call, "unit '" + unit.name() + "' is called for samples " +
                           rangeText(call.sample_base(), call.sample_base() + call.rows()));
    if (call.rng_id_base() != unit.rng_id_base())
      fail(Code::Call, "unit '" + unit.name() + "' is called with random instances from " +
                           std::to_string(call.rng_id_base()) + ", expects " +
                           std::to_string(unit.rng_id_base()));
  }

  bool isGroup() const {
    return compute.group() >= 0 && compute.group() < model.summary.groups_size();
  }

  void checkUpdate() {
    phase(bundle::UPDATE_STATE, "UPDATE_STATE");
    if (!isGroup() || !model.trainable(uint32_t(compute.group())))
      return fail(Code::Task,
                  "group " + std::to_string(compute.group()) + " does not exist or is frozen");
    if (byHost != model.plan.keepsOnHost(device.getProgram().device(), uint32_t(compute.group()),
                                         PlanView::Update))
      fail(Code::Residence,
           std::string("is done by the ") + (byHost ? "host's processor" : "device") +
               ", the plan gives it to the " + (byHost ? "device" : "host's processor"));
    only([&](uint32_t function) { return model.isUpdate(function); }, "an update");
    for (const bundle::Call &call : compute.calls()) {
      const auto &function = model.functions.functions(int(call.function()));
      const bundle::Value *parameters = checkArguments(
          call, [&](int s) { return function.arguments(s).kind() == bundle::STATE; },
          [&](int s) { return "argument '" + function.arguments(s).name() + "' "; });
      if (!parameters)
        fail(Code::Call, "an update without state");
      else
        checkRule(call, *parameters);
    }
  }

  /// Every parameter must be updated by its rule's function.
  void checkRule(const bundle::Call &call, const bundle::Value &elements) {
    model.forPieces(
        uint32_t(compute.group()), elements.begin(), elements.end(),
        [&](int64_t begin, int64_t end, uint32_t parameter) {
          const auto &info = model.summary.parameters(int(parameter));
          const bundle::UpdateRule &rule = model.summary.update_rules(int(info.update_rule()));
          if (call.function() != rule.function())
            fail(Code::Call, "elements " + rangeText(begin, end) + " belong to parameter '" +
                                 info.name() + "', whose update rule is '" + rule.name() +
                                 "'; they are updated by function " +
                                 std::to_string(call.function()) + ", not " +
                                 std::to_string(rule.function()));
          if (const int64_t block = Model::blockSize(rule);
              (begin - info.offset()) % block || (end - begin) % block)
            fail(Code::Call, "elements " + rangeText(begin, end) + " of parameter '" + info.name() +
                                 "' are no whole blocks of " + std::to_string(block) + " elements");
        });
  }

  void checkCast() {
    // In phase BACKWARD are copies that only backwards read.
    if (instruction.phase() != bundle::GATHER && instruction.phase() != bundle::BACKWARD)
      fail(Code::Task, "is in phase " + bundle::Phase_Name(instruction.phase()) +
                           ", expects GATHER or BACKWARD");
    if (!isGroup() || !model.hasCopy(uint32_t(compute.group())))
      return fail(Code::Task, "group " + std::to_string(compute.group()) +
                                  " does not exist or is read as it is");
    only([&](uint32_t function) { return function == model.summary.cast_function(); }, "the cast");
    for (const bundle::Call &call : compute.calls())
      checkArguments(call, [](int) { return true; }, [](int) { return std::string(); });
  }

  /// All arguments for which `counts` holds must be of the task's group and of one range, and
  /// optimizer states of the entries of that range. Returns the first that has elements, or null if
  /// there is none.
  template <typename Counts, typename Name>
  const bundle::Value *checkArguments(const bundle::Call &call, Counts counts, Name name) {
    const bundle::Value *first = nullptr;
    const bundle::ArgumentBindings bindings(device.getProgram(), call);
    for (int s = 0; s < bindings.size() && !first; ++s)
      if (counts(s) && bindings[s].value.kind() != bundle::Value::MOMENTS)
        first = &bindings[s].value;
    for (int s = 0; s < bindings.size() && first; ++s) {
      if (!counts(s))
        continue;
      const bundle::Value &value = bindings[s].value;
      Range range{first->begin(), first->end()};
      if (value.kind() == bundle::Value::MOMENTS && value.id() == first->id() &&
          value.cut() < model.statesOf(value.id()))
        range = model.entriesOf(value.id(), value.cut(), range);
      if (value.id() != uint32_t(compute.group()) || value.begin() != range.begin ||
          value.end() != range.end)
        fail(Code::Call, name(s) + "declares " + device.describe(value) +
                             ", which differs from the task or the other arguments");
    }
    return first;
  }

  Device &device;
  const Model &model = device.getModel();
  const bundle::Instruction &instruction;
  const bundle::Compute &compute;
  const bool byHost;
  Begun &begun;
  std::vector<Model::UnitCall> &expected;
};

} // namespace

void Device::checkTasks() {
  Begun begun;
  std::vector<Model::UnitCall> expected;
  for (int e = 0; e < program.instructions_size() && !full(); ++e)
    if (const auto &instruction = program.instructions(e);
        instruction.what_case() == bundle::Instruction::kCompute)
      TaskChecker(*this, instruction, isByHost(e), begun, expected).check();
  for (const auto &[name, made] : begun) {
    model.callsOf(model.plan.cells[name.first], name.second, expected);
    report(Code::Call, made.second->id(),
           where(*made.second) + ": makes " + std::to_string(made.first) + " of its " +
               std::to_string(expected.size()) + " calls of units");
  }
}
