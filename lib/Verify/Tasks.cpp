// Checks a device's tasks against plan and summary.
#include "Device.h"

using namespace zorse;
using namespace zorse::verify;

namespace {

std::string rangeText(int64_t begin, int64_t end) { return std::to_string(begin) + "-" + std::to_string(end); }

/// Checks one task.
class TaskChecker {
public:
  /// \param expected  scratch memory for units and their bodies
  TaskChecker(Device &device, const bundle::Entry &entry, bool byHost, std::vector<std::pair<int64_t, uint32_t>> &expected)
      : device(device), entry(entry), compute(entry.compute()), byHost(byHost), expected(expected) {}

  void check() {
    if (device.getProgram().queues(int(entry.queue())).kind() != bundle::COMPUTE)
      fail(Code::Task, "is not on a compute queue");
    switch (compute.task()) {
    case bundle::Compute::F:
    case bundle::Compute::B:
    case bundle::Compute::W:
      return checkCell();
    case bundle::Compute::SUM_LOSS:
      phase(bundle::FORWARD, "FORWARD");
      return only([&](uint32_t body) { return body == model.summary.sum_loss_body(); }, "the loss sum");
    case bundle::Compute::NORM:
      phase(bundle::COMMIT, "COMMIT");
      return only([&](uint32_t body) { return body == model.summary.norm_body(); }, "the norm");
    case bundle::Compute::DECIDE:
      phase(bundle::COMMIT, "COMMIT");
      return onlyOne(model.summary.decide_body(), "the decision");
    case bundle::Compute::SCALE_SEEDS:
      phase(bundle::BACKWARD, "BACKWARD");
      if (!model.scales())
        return fail(Code::Task, "the loss of this model is not scaled");
      return onlyOne(model.summary.scale_seeds_body(), "the scaling of seeds");
    case bundle::Compute::UPDATE_GROUP:
      return checkUpdate();
    case bundle::Compute::CAST_PARAMETERS:
      return checkCast();
    default:
      return fail(Code::Unsupported, "task " + std::to_string(int(compute.task())) + " is not known to this version");
    }
  }

private:
  void fail(Code code, const std::string &message) { device.report(code, entry.id(), device.where(entry) + ": " + message); }

  void phase(bundle::Phase expected, const char *text) {
    if (entry.phase() != expected)
      fail(Code::Task, std::string("is not in phase ") + text);
  }

  /// Checks that the task calls only allowed bodies that are not unit functions.
  template <typename Allowed> void only(Allowed allowed, const char *text) {
    for (const bundle::Call &call : compute.calls())
      if (call.unit() >= 0 || !allowed(call.body()))
        return fail(Code::Call, "calls body '" + model.bodies.bodies(int(call.body())).name() + "', expects " + text);
  }
  void onlyOne(uint32_t its, const char *text) {
    if (compute.calls_size() != 1)
      fail(Code::Call, "has " + std::to_string(compute.calls_size()) + " calls, expects one");
    only([&](uint32_t body) { return body == its; }, text);
  }

  void checkCell() {
    compute.task() == bundle::Compute::F ? phase(bundle::FORWARD, "FORWARD") : phase(bundle::BACKWARD, "BACKWARD");
    if (compute.cell() < 0 || size_t(compute.cell()) >= model.plan.cells.size())
      return fail(Code::Task, "cell " + std::to_string(compute.cell()) + " is not in the plan");
    const auto &cell = model.plan.cells[compute.cell()];
    if (cell.device != device.getProgram().device())
      fail(Code::Task, "its cell belongs to " + device.deviceName(cell.device));
    device.getResult().tasks.push_back({uint32_t(compute.cell()), compute.task()});
    expectUnits(cell);
    size_t unitCalls = 0;
    for (const bundle::Call &call : compute.calls()) {
      const bool isLossSum = call.unit() < 0 && call.body() == model.summary.sum_loss_body();
      if (compute.task() == bundle::Compute::F && unitCalls == expected.size() && isLossSum)
        continue;
      if (unitCalls == expected.size() || call.unit() != expected[unitCalls].first) {
        fail(Code::Call,
             "call " + std::to_string(unitCalls) + " is of unit " + std::to_string(call.unit()) +
                 (unitCalls == expected.size() ? ", the task has no further units" : ", expects unit " + std::to_string(expected[unitCalls].first)));
        break;
      }
      checkUnitCall(call, cell, expected[unitCalls++].second);
    }
    if (unitCalls < expected.size())
      fail(Code::Call, "makes " + std::to_string(unitCalls) + " of its " + std::to_string(expected.size()) + " calls of units");
  }

  /// The units and bodies of the task's calls, in order.
  void expectUnits(const PlanView::Cell &cell) {
    expected.clear();
    if (compute.task() == bundle::Compute::B && model.recomputes(cell))
      for (int64_t u = cell.firstUnit; u < cell.endUnit; ++u)
        if (const uint32_t body = model.repeatedBody(cell, uint32_t(u)); body != Model::kNoBody)
          expected.push_back({u, body});
    const size_t first = expected.size();
    for (int64_t u = cell.firstUnit; u < cell.endUnit; ++u)
      if (const uint32_t body = model.bodyOf(uint32_t(u), compute.task()); body != Model::kNoBody)
        expected.push_back({u, body});
    if (compute.task() != bundle::Compute::F)
      std::reverse(expected.begin() + std::ptrdiff_t(first), expected.end());
  }

  void checkUnitCall(const bundle::Call &call, const PlanView::Cell &cell, uint32_t body) {
    const auto &unit = model.summary.units(call.unit());
    if (call.body() != body)
      fail(Code::Call, "unit '" + unit.name() + "' is called with body '" + model.bodies.bodies(int(call.body())).name() + "'");
    if (call.rows() != cell.endSample - cell.firstSample || call.sample_base() != cell.firstSample)
      fail(Code::Call, "unit '" + unit.name() + "' is called for samples " + rangeText(call.sample_base(), call.sample_base() + call.rows()));
    if (call.instance_base() != unit.instance_base())
      fail(Code::Call, "unit '" + unit.name() + "' is called with random instances from " + std::to_string(call.instance_base()) + ", expects " +
                           std::to_string(unit.instance_base()));
  }

  bool isGroup() const { return compute.group() >= 0 && compute.group() < model.summary.groups_size(); }

  void checkUpdate() {
    phase(bundle::UPDATE_STATE, "UPDATE_STATE");
    if (!isGroup() || !model.trainable(uint32_t(compute.group())))
      return fail(Code::Task, "group " + std::to_string(compute.group()) + " does not exist or is frozen");
    if (byHost != model.plan.keepsOnHost(device.getProgram().device(), uint32_t(compute.group()), PlanView::Update))
      fail(Code::Residence, std::string("is done by the ") + (byHost ? "host's processor" : "device") + ", the plan gives it to the " +
                                (byHost ? "device" : "host's processor"));
    int64_t decaying = model.summary.groups(compute.group()).decaying_elements();
    uint32_t decay = model.summary.update_body_decay(), plain = model.summary.update_body_plain();
    const bool statistic = model.summary.groups(compute.group()).statistic();
    const uint32_t moving = model.summary.update_body_statistics();
    only([&](uint32_t body) { return statistic ? body == moving : body == decay || body == plain; }, "an update");
    for (const bundle::Call &call : compute.calls()) {
      const auto &body = model.bodies.bodies(int(call.body()));
      const bundle::Value *parameters = checkSlots(
          call, [&](int s) { return body.slots(s).kind() == bundle::STATE; }, [&](int s) { return "slot '" + body.slots(s).name() + "' "; });
      if (!parameters)
        fail(Code::Call, "an update without state");
      else if (!statistic && decay != plain && (call.body() == decay ? parameters->end() > decaying : parameters->begin() < decaying))
        fail(Code::Call, "elements " + rangeText(parameters->begin(), parameters->end()) + " are updated " +
                             (call.body() == decay ? "with" : "without") + " weight decay; it applies to the first " + std::to_string(decaying));
    }
  }

  void checkCast() {
    if (entry.phase() != bundle::GATHER && entry.phase() != bundle::BACKWARD) // BACKWARD: for copies that only backwards read
      fail(Code::Task, "is in phase " + bundle::Phase_Name(entry.phase()) + ", expects GATHER or BACKWARD");
    if (!isGroup() || !model.hasCopy(uint32_t(compute.group())))
      return fail(Code::Task, "group " + std::to_string(compute.group()) + " does not exist or is read as it is");
    only([&](uint32_t body) { return body == model.summary.cast_body(); }, "the cast");
    for (const bundle::Call &call : compute.calls())
      checkSlots(call, [](int) { return true; }, [](int) { return std::string(); });
  }

  /// All slots for which `counts` holds must be of the task's group and of one range. Returns the
  /// first, or null if there is none.
  template <typename Counts, typename Name> const bundle::Value *checkSlots(const bundle::Call &call, Counts counts, Name name) {
    const bundle::Value *first = nullptr;
    const bundle::SlotBindings bindings(device.getProgram(), call);
    for (int s = 0; s < bindings.size(); ++s) {
      if (!counts(s))
        continue;
      const bundle::Value &value = bindings[s].value;
      if (!first)
        first = &value;
      if (value.id() != uint32_t(compute.group()) || value.begin() != first->begin() || value.end() != first->end())
        fail(Code::Call, name(s) + "declares " + device.describe(value) + ", which differs from the task or the other slots");
    }
    return first;
  }

  Device &device;
  const Model &model = device.getModel();
  const bundle::Entry &entry;
  const bundle::Compute &compute;
  const bool byHost;
  std::vector<std::pair<int64_t, uint32_t>> &expected;
};

} // namespace

void Device::checkTasks() {
  std::vector<std::pair<int64_t, uint32_t>> expected;
  for (int e = 0; e < program.entries_size() && !full(); ++e)
    if (const auto &entry = program.entries(e); entry.what_case() == bundle::Entry::kCompute)
      TaskChecker(*this, entry, isByHost(e), expected).check();
}
