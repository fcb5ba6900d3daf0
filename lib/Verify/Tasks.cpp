// What a device's tasks must be, by plan and summary.
#include "Device.h"

using namespace zorse;
using namespace zorse::verify;

static std::string rangeText(int64_t begin, int64_t end) { return std::to_string(begin) + "-" + std::to_string(end); }

void Device::checkTasks() {
  std::vector<std::pair<int64_t, uint32_t>> expected; // of a task: units and their bodies, in the order of its calls
  for (int e = 0; e < program.entries_size(); ++e) {
    const auto &entry = program.entries(e);
    if (full())
      return;
    if (entry.what_case() != bundle::Entry::kCompute)
      continue;
    const auto &compute = entry.compute();
    const Calls::Range itsCalls = calls.of(e);
    auto fail = [&](Code code, const std::string &message) { report(code, entry.id(), where(entry) + ": " + message); };
    auto phase = [&](bundle::Phase expected, const char *text) {
      if (entry.phase() != expected)
        fail(Code::Task, std::string("is not in phase ") + text);
    };
    if (program.queues(int(entry.queue())).kind() != bundle::COMPUTE)
      fail(Code::Task, "is not on a compute queue");

    // Calls that are not unit functions, and which task may have them.
    auto isLossSum = [&](const Call &call) { return call.unit < 0 && call.body == model.summary.sum_loss_body(); };
    auto only = [&](auto allowed, const char *text) {
      for (const Call &call : itsCalls)
        if (call.unit >= 0 || !allowed(call.body))
          return fail(Code::Call, "calls body '" + model.bodies.bodies(int(call.body)).name() + "', expects " + text);
    };
    switch (compute.task()) {
    case bundle::Compute::F:
    case bundle::Compute::B:
    case bundle::Compute::W: {
      bool forward = compute.task() == bundle::Compute::F;
      forward ? phase(bundle::FORWARD, "FORWARD") : phase(bundle::BACKWARD, "BACKWARD");
      if (compute.cell() < 0 || size_t(compute.cell()) >= model.plan.cells.size()) {
        fail(Code::Task, "cell " + std::to_string(compute.cell()) + " is not in the plan");
        break;
      }
      const auto &cell = model.plan.cells[compute.cell()];
      if (cell.device != program.device())
        fail(Code::Task, "its cell belongs to " + deviceName(cell.device));
      result.tasks.push_back({uint32_t(compute.cell()), compute.task()});
      expected.clear();
      auto expect = [&](bundle::Compute::Task part) {
        const size_t first = expected.size();
        for (int64_t u = cell.firstUnit; u < cell.endUnit; ++u)
          if (const uint32_t body = model.bodyOf(uint32_t(u), part); body != Model::kNoBody)
            expected.push_back({u, body});
        if (part != bundle::Compute::F)
          std::reverse(expected.begin() + std::ptrdiff_t(first), expected.end());
      };
      if (compute.task() == bundle::Compute::B && model.recomputes(cell))
        for (int64_t u = cell.firstUnit; u < cell.endUnit; ++u)
          if (const uint32_t body = model.repeatedBody(cell, uint32_t(u)); body != Model::kNoBody)
            expected.push_back({u, body});
      expect(compute.task());
      size_t unitCalls = 0;
      for (const Call &call : itsCalls) {
        if (forward && unitCalls == expected.size() && isLossSum(call))
          continue;
        if (unitCalls == expected.size() || call.unit != expected[unitCalls].first) {
          fail(Code::Call, "call " + std::to_string(unitCalls) + " is of unit " + std::to_string(call.unit) +
                               (unitCalls == expected.size() ? ", the task has no further units"
                                                             : ", expects unit " + std::to_string(expected[unitCalls].first)));
          break;
        }
        const auto &unit = model.summary.units(call.unit);
        if (call.body != expected[unitCalls++].second)
          fail(Code::Call, "unit '" + unit.name() + "' is called with body '" + model.bodies.bodies(int(call.body)).name() + "'");
        if (call.rows != cell.endSample - cell.firstSample || call.sampleBase != cell.firstSample)
          fail(Code::Call, "unit '" + unit.name() + "' is called for samples " + rangeText(call.sampleBase, call.sampleBase + call.rows));
        if (call.instanceBase != unit.instance_base())
          fail(Code::Call, "unit '" + unit.name() + "' is called with random instances from " + std::to_string(call.instanceBase) + ", expects " +
                               std::to_string(unit.instance_base()));
      }
      if (unitCalls < expected.size())
        fail(Code::Call, "makes " + std::to_string(unitCalls) + " of its " + std::to_string(expected.size()) + " calls of units");
      break;
    }
    case bundle::Compute::SUM_LOSS:
      phase(bundle::FORWARD, "FORWARD");
      only([&](uint32_t body) { return body == model.summary.sum_loss_body(); }, "the loss sum");
      break;
    case bundle::Compute::NORM:
      phase(bundle::COMMIT, "COMMIT");
      only([&](uint32_t body) { return body == model.summary.norm_body(); }, "the norm");
      break;
    case bundle::Compute::DECIDE:
      phase(bundle::COMMIT, "COMMIT");
      if (itsCalls.size() != 1)
        fail(Code::Call, "has " + std::to_string(itsCalls.size()) + " calls, expects one");
      only([&](uint32_t body) { return body == model.summary.decide_body(); }, "the decision");
      break;
    case bundle::Compute::SCALE_SEEDS:
      phase(bundle::BACKWARD, "BACKWARD");
      if (!model.scales()) {
        fail(Code::Task, "the loss of this model is not scaled");
        break;
      }
      if (itsCalls.size() != 1)
        fail(Code::Call, "has " + std::to_string(itsCalls.size()) + " calls, expects one");
      only([&](uint32_t body) { return body == model.summary.scale_seeds_body(); }, "the scaling of seeds");
      break;
    case bundle::Compute::UPDATE_GROUP: {
      phase(bundle::UPDATE_STATE, "UPDATE_STATE");
      if (compute.group() < 0 || compute.group() >= model.summary.groups_size() || !model.trainable(uint32_t(compute.group()))) {
        fail(Code::Task, "group " + std::to_string(compute.group()) + " does not exist or is frozen");
        break;
      }
      const bool byHost = isByHost(e);
      if (byHost != model.plan.keepsOnHost(program.device(), uint32_t(compute.group()), PlanView::Update))
        fail(Code::Residence, std::string("is done by the ") + (byHost ? "host's processor" : "device") + ", the plan gives it to the " +
                                  (byHost ? "device" : "host's processor"));
      int64_t decaying = model.summary.groups(compute.group()).decaying_elements();
      uint32_t decay = model.summary.update_body_decay(), plain = model.summary.update_body_plain();
      const bool statistic = model.summary.groups(compute.group()).statistic();
      const uint32_t moving = model.summary.update_body_statistics();
      only([&](uint32_t body) { return statistic ? body == moving : body == decay || body == plain; }, "an update");
      for (const Call &call : itsCalls) {
        const Binding *parameters = nullptr;
        for (int s = 0; s < int(call.slots); ++s)
          if (const auto &slot = model.bodies.bodies(int(call.body)).slots(s); slot.kind() == bundle::STATE) {
            const Binding &value = calls.slotsOf(call)[s];
            if (!parameters)
              parameters = &value;
            if (value.id != uint32_t(compute.group()) || value.begin != parameters->begin || value.end != parameters->end)
              fail(Code::Call, "slot '" + slot.name() + "' declares " + describe(value.value()) + ", unlike the task or the other slots");
          }
        if (!parameters)
          fail(Code::Call, "an update without state");
        else if (!statistic && decay != plain && (call.body == decay ? parameters->end > decaying : parameters->begin < decaying))
          fail(Code::Call, "elements " + rangeText(parameters->begin, parameters->end) + " are updated " + (call.body == decay ? "with" : "without") +
                               " weight decay; it applies to the first " + std::to_string(decaying));
      }
      break;
    }
    case bundle::Compute::CAST_PARAMETERS: {
      if (entry.phase() != bundle::GATHER && entry.phase() != bundle::BACKWARD) // of what backwards alone read
        fail(Code::Task, "is in phase " + bundle::Phase_Name(entry.phase()) + ", expects GATHER or BACKWARD");
      if (compute.group() < 0 || compute.group() >= model.summary.groups_size() || !model.hasCopy(uint32_t(compute.group()))) {
        fail(Code::Task, "group " + std::to_string(compute.group()) + " does not exist or is read as it is");
        break;
      }
      only([&](uint32_t body) { return body == model.summary.cast_body(); }, "the cast");
      for (const Call &call : itsCalls) {
        const Binding *parameters = nullptr;
        for (int s = 0; s < int(call.slots); ++s) {
          const Binding &value = calls.slotsOf(call)[s];
          if (!parameters)
            parameters = &value;
          if (value.id != uint32_t(compute.group()) || value.begin != parameters->begin || value.end != parameters->end)
            fail(Code::Call, "declares " + describe(value.value()) + ", unlike the task or the other slots");
        }
      }
      break;
    }
    default:
      fail(Code::Unsupported, "task " + std::to_string(int(compute.task())) + " is not known to this version");
      break;
    }
  }
}
