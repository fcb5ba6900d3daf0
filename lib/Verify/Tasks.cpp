// What a device's tasks and their slots must be, by plan and summary.
#include "Logical.h"

using namespace zorse;
using namespace zorse::verify;

static std::string rangeText(int64_t begin, int64_t end) { return std::to_string(begin) + "-" + std::to_string(end); }

bool verify::fromDeclared(Device &device, const bundle::Entry &entry, const bundle::Value &value, uint64_t bytes, Logical &out) {
  const Model &model = device.getModel();
  const auto &summary = model.summary;
  auto fail = [&](Code code, const std::string &message) { return device.report(code, entry.id(), device.where(entry) + ": " + device.describe(value) + " " + message); };
  out = {value.kind(), value.id(), value.cut(), value.begin(), value.end(), value.version(), 0, 0, -1, {}};
  int64_t limit = model.plan.batch;
  auto known = [&](int64_t count) { return value.id() < uint64_t(count); };
  bool exists = true, perUnit = true;
  const bool ordered = value.begin() >= 0 && value.begin() < value.end();
  switch (value.kind()) {
  case bundle::Value::MOMENTS:
    exists = value.cut() < summary.moments();
    [[fallthrough]];
  case bundle::Value::PARAMETERS:
  case bundle::Value::GRADIENTS:
  case bundle::Value::REDUCED_GRADIENTS:
    exists = exists && known(summary.groups_size());
    if (exists) {
      limit = summary.groups(int(value.id())).elements();
      out.stride = model.groupElementSize(value.id());
    }
    break;
  case bundle::Value::ACTIVATION:
  case bundle::Value::ACTIVATION_GRADIENT:
    exists = known(summary.values_size());
    out.stride = exists ? summary.values(int(value.id())).bytes_per_row() : 0;
    break;
  case bundle::Value::INPUT_ROWS:
    exists = known(summary.inputs_size());
    out.stride = exists ? summary.inputs(int(value.id())).bytes_per_row() : 0;
    break;
  case bundle::Value::LOSS_ROWS:
    exists = known(summary.units_size()) && value.cut() < uint32_t(summary.loss_size());
    out.stride = ordered ? int64_t(bytes) / (value.end() - value.begin()) : 0;
    break;
  case bundle::Value::SAVED_BLOCK:
  case bundle::Value::DEFERRED_BLOCK:
    exists = known(summary.units_size()) && ordered && value.end() <= limit;
    perUnit = false;
    if (exists) {
      const auto &unit = summary.units(int(value.id()));
      out.bytes = extentBytes(value.kind() == bundle::Value::SAVED_BLOCK ? unit.saved_bytes() : unit.deferred_bytes(), value.end() - value.begin());
    }
    break;
  case bundle::Value::STEP_SCALARS:
    perUnit = false;
    out.bytes = bytes == uint64_t(Block::scalarsEnd) ? Block::scalarsEnd : Block::bytes;
    break;
  case bundle::Value::SUMS:
  case bundle::Value::GLOBAL_SUM:
    perUnit = false;
    out.bytes = Block::sumsBytes;
    break;
  case bundle::Value::OPTIMIZER_STEP:
    perUnit = false;
    out.bytes = 8;
    break;
  default: exists = false;
  }
  if (!exists)
    return fail(Code::Malformed, "does not exist");
  if (value.version() > 1)
    return fail(Code::Malformed, "has version " + std::to_string(value.version()) + ", expects 0 or 1");
  if (perUnit) {
    if (!ordered || value.end() > limit)
      return fail(Code::Malformed, "is not inside 0-" + std::to_string(limit));
    out.bytes = product(value.end() - value.begin(), out.stride);
  }
  if (out.bytes != int64_t(bytes))
    return fail(Code::Size, "has " + std::to_string(out.bytes) + " bytes, the region " + std::to_string(bytes));
  return true;
}

/// Slots of unit functions: everything follows from unit, rows and sample base.
static bool unitSlot(const Model &model, const bundle::Call &call, const bundle::Slot &slot, Logical &out) {
  const auto &unit = model.summary.units(call.unit());
  uint32_t i = slot.index();
  auto at = [&](const auto &list) { return i < uint32_t(list.size()); };
  out.begin = call.sample_base();
  out.end = call.sample_base() + call.rows();
  switch (slot.kind()) {
  case bundle::PARAMETER:
  case bundle::PARAMETER_GRADIENT: {
    if (!at(unit.parameters()))
      return false;
    const auto &parameter = model.summary.parameters(unit.parameters(int(i)));
    if (slot.kind() == bundle::PARAMETER_GRADIENT && !parameter.trainable())
      return false;
    out.kind = slot.kind() == bundle::PARAMETER ? bundle::Value::PARAMETERS : bundle::Value::GRADIENTS;
    out.id = parameter.group();
    out.parameter = unit.parameters(int(i));
    out.begin = out.end = parameter.offset();
    int64_t elements = 1;
    for (int64_t extent : parameter.shape())
      elements *= extent;
    out.end += elements;
    out.stride = elementSize(parameter.type());
    break;
  }
  case bundle::INPUT:
    if (!at(unit.inputs()))
      return false;
    out.kind = bundle::Value::INPUT_ROWS;
    out.id = unit.inputs(int(i));
    out.stride = model.summary.inputs(int(out.id)).bytes_per_row();
    break;
  case bundle::BOUNDARY_IN:
  case bundle::BOUNDARY_IN_GRADIENT:
    if (!at(unit.values_in()))
      return false;
    out.kind = slot.kind() == bundle::BOUNDARY_IN ? bundle::Value::ACTIVATION : bundle::Value::ACTIVATION_GRADIENT;
    out.id = unit.values_in(int(i));
    out.cut = slot.kind() == bundle::BOUNDARY_IN ? 0 : uint32_t(call.unit());
    out.stride = model.summary.values(int(out.id)).bytes_per_row();
    break;
  case bundle::BOUNDARY_OUT:
  case bundle::BOUNDARY_OUT_GRADIENT:
    if (!at(unit.values_out()))
      return false;
    out.kind = slot.kind() == bundle::BOUNDARY_OUT ? bundle::Value::ACTIVATION : bundle::Value::ACTIVATION_GRADIENT;
    out.id = unit.values_out(int(i));
    out.cut = slot.kind() == bundle::BOUNDARY_OUT ? 0 : uint32_t(call.unit()) + 1;
    out.stride = model.summary.values(int(out.id)).bytes_per_row();
    break;
  case bundle::SAVED:
  case bundle::DEFERRED:
    out.kind = slot.kind() == bundle::SAVED ? bundle::Value::SAVED_BLOCK : bundle::Value::DEFERRED_BLOCK;
    out.id = uint32_t(call.unit());
    out.bytes = extentBytes(slot.kind() == bundle::SAVED ? unit.saved_bytes() : unit.deferred_bytes(), call.rows());
    return true;
  case bundle::LOSS:
    if (!at(unit.loss_terms()))
      return false;
    out.kind = bundle::Value::LOSS_ROWS;
    out.id = uint32_t(call.unit());
    out.cut = unit.loss_terms(int(i));
    out.stride = slot.bytes().per_row();
    break;
  case bundle::SCALARS:
    out.kind = bundle::Value::STEP_SCALARS;
    out.begin = out.end = 0;
    return true;
  default: return false;
  }
  out.bytes = product(out.end - out.begin, out.stride);
  return true;
}

bool verify::fromSlot(Device &device, const bundle::Entry &entry, const bundle::Call &call, int index, Logical &out) {
  const Model &model = device.getModel();
  const auto &body = model.bodies.bodies(int(call.body()));
  const auto &slot = body.slots(index);
  const auto &binding = call.slots(index);
  const auto &value = binding.value();
  out = Logical();
  auto fail = [&](Code code, const std::string &message) {
    return device.report(code, entry.id(), device.where(entry) + ": slot '" + slot.name() + "' of '" + body.name() + "' " + message);
  };
  if (slot.kind() == bundle::WORKSPACE) {
    out.bytes = int64_t(binding.region().bytes());
    return true;
  }
  if (call.unit() >= 0) {
    if (!unitSlot(model, call, slot, out))
      return fail(Code::Call, "does not exist in unit '" + model.summary.units(call.unit()).name() + "'");
  } else if (slot.kind() == bundle::SCALARS) {
    out.kind = bundle::Value::STEP_SCALARS;
    out.id = slot.mode() == bundle::READ ? 1 : 0;
  } else if (slot.kind() == bundle::SUMS_SLOT) {
    out.kind = slot.mode() == bundle::READ ? bundle::Value::GLOBAL_SUM : bundle::Value::SUMS;
    out.bytes = Block::sumsBytes;
  } else if (slot.kind() == bundle::OPTIMIZER_STEP_SLOT) {
    out.kind = bundle::Value::OPTIMIZER_STEP;
    out.version = slot.mode() == bundle::READ ? 1 : 0;
    out.bytes = 8;
  } else if (slot.kind() == bundle::STATE || slot.kind() == bundle::LOSS) {
    if (!fromDeclared(device, entry, value, binding.region().bytes(), out))
      return false;
    if (slot.kind() == bundle::LOSS ? value.kind() != bundle::Value::LOSS_ROWS || value.cut() != slot.index()
        : slot.index() == 0         ? value.kind() != bundle::Value::PARAMETERS
        : slot.index() == 1         ? value.kind() != bundle::Value::REDUCED_GRADIENTS && value.kind() != bundle::Value::GRADIENTS
                                    : value.kind() != bundle::Value::MOMENTS || value.cut() != slot.index() - 2)
      return fail(Code::Declared, "declares " + device.describe(value));
    if (value.end() - value.begin() != call.rows())
      return fail(Code::Call, "holds " + std::to_string(value.end() - value.begin()) + ", the call has " + std::to_string(call.rows()) + " rows");
    if (value.version())
      return fail(Code::Declared, "declares " + device.describe(value) + ", expects version 0");
    if (out.kind == bundle::Value::GRADIENTS)
      out.kind = bundle::Value::REDUCED_GRADIENTS;
    return true;
  } else {
    return fail(Code::Call, "belongs to a unit, the call names none");
  }
  if (out.kind == bundle::Value::STEP_SCALARS) {
    if (binding.region().bytes() != Block::scalarsEnd && binding.region().bytes() != Block::bytes)
      return fail(Code::Size, "has " + std::to_string(binding.region().bytes()) + " bytes, expects " + std::to_string(Block::bytes));
    out.bytes = int64_t(binding.region().bytes());
  }
  if (out.bytes != int64_t(binding.region().bytes()))
    return fail(Code::Size, "has " + std::to_string(binding.region().bytes()) + " bytes, its value " + std::to_string(out.bytes));
  // What the slot declares must be what plan and summary imply. The cut of a gradient may be named from either side.
  bool ranged = out.stride || isBlock(out.kind);
  bool same = value.kind() == out.kind && (out.kind == bundle::Value::STEP_SCALARS || value.id() == out.id) && (!ranged || (value.begin() == out.begin && value.end() == out.end)) &&
              (out.kind != bundle::Value::LOSS_ROWS || value.cut() == out.cut);
  if (out.kind == bundle::Value::GLOBAL_SUM)
    same = value.kind() == bundle::Value::GLOBAL_SUM || value.kind() == bundle::Value::SUMS;
  if (!same) {
    bundle::Value expected;
    expected.set_kind(out.kind);
    expected.set_id(out.id);
    expected.set_cut(out.cut);
    expected.set_begin(out.begin);
    expected.set_end(out.end);
    return fail(Code::Declared, "declares " + device.describe(value) + ", expects " + device.describe(expected));
  }
  return true;
}

void Device::checkTasks() {
  for (const auto &entry : program.entries()) {
    if (full())
      return;
    if (entry.what_case() != bundle::Entry::kCompute)
      continue;
    const auto &compute = entry.compute();
    auto fail = [&](Code code, const std::string &message) { report(code, entry.id(), where(entry) + ": " + message); };
    auto phase = [&](bundle::Phase expected, const char *text) {
      if (entry.phase() != expected)
        fail(Code::Task, std::string("is not in phase ") + text);
    };
    if (program.queues(int(entry.queue())).kind() != bundle::COMPUTE)
      fail(Code::Task, "is not on a compute queue");

    // Calls that are not unit functions, and which task may have them.
    auto isLossSum = [&](const bundle::Call &call) { return call.unit() < 0 && call.body() == model.summary.sum_loss_body(); };
    auto only = [&](auto allowed, const char *text) {
      for (const auto &call : compute.calls())
        if (call.unit() >= 0 || !allowed(call.body()))
          return fail(Code::Call, "calls body '" + model.bodies.bodies(int(call.body())).name() + "', expects " + text);
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
      std::vector<int64_t> units; // with work in this task, in the order of their calls
      for (int64_t u = cell.firstUnit; u < cell.endUnit; ++u)
        if (model.bodyOf(uint32_t(u), compute.task()) != Model::kNoBody)
          units.push_back(u);
      if (!forward)
        std::reverse(units.begin(), units.end());
      size_t unitCalls = 0;
      for (const auto &call : compute.calls()) {
        if (forward && unitCalls == units.size() && isLossSum(call))
          continue;
        if (unitCalls == units.size() || call.unit() != units[unitCalls]) {
          fail(Code::Call, "call " + std::to_string(unitCalls) + " is of unit " + std::to_string(call.unit()) +
                               (unitCalls == units.size() ? ", the task has no further units" : ", expects unit " + std::to_string(units[unitCalls])));
          break;
        }
        ++unitCalls;
        const auto &unit = model.summary.units(call.unit());
        if (call.body() != model.bodyOf(uint32_t(call.unit()), compute.task()))
          fail(Code::Call, "unit '" + unit.name() + "' is called with body '" + model.bodies.bodies(int(call.body())).name() + "'");
        if (call.rows() != cell.endSample - cell.firstSample || call.sample_base() != cell.firstSample)
          fail(Code::Call, "unit '" + unit.name() + "' is called for samples " + rangeText(call.sample_base(), call.sample_base() + call.rows()));
        if (call.instance_base() != unit.instance_base())
          fail(Code::Call, "unit '" + unit.name() + "' is called with random instances from " + std::to_string(call.instance_base()) + ", expects " + std::to_string(unit.instance_base()));
      }
      if (unitCalls < units.size())
        fail(Code::Call, "calls " + std::to_string(unitCalls) + " of its " + std::to_string(units.size()) + " units");
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
      if (compute.calls_size() != 1)
        fail(Code::Call, "has " + std::to_string(compute.calls_size()) + " calls, expects one");
      only([&](uint32_t body) { return body == model.summary.decide_body(); }, "the decision");
      break;
    case bundle::Compute::UPDATE_GROUP: {
      phase(bundle::UPDATE_STATE, "UPDATE_STATE");
      if (compute.group() < 0 || compute.group() >= model.summary.groups_size() || !model.trainable(uint32_t(compute.group()))) {
        fail(Code::Task, "group " + std::to_string(compute.group()) + " does not exist or is frozen");
        break;
      }
      int64_t decaying = model.summary.groups(compute.group()).decaying_elements();
      uint32_t decay = model.summary.update_body_decay(), plain = model.summary.update_body_plain();
      only([&](uint32_t body) { return body == decay || body == plain; }, "an update");
      for (const auto &call : compute.calls()) {
        const bundle::Value *parameters = nullptr;
        for (int s = 0; s < call.slots_size(); ++s)
          if (const auto &slot = model.bodies.bodies(int(call.body())).slots(s); slot.kind() == bundle::STATE) {
            const auto &value = call.slots(s).value();
            if (!parameters)
              parameters = &value;
            if (value.id() != uint32_t(compute.group()) || value.begin() != parameters->begin() || value.end() != parameters->end())
              fail(Code::Call, "slot '" + slot.name() + "' declares " + describe(value) + ", unlike the task or the other slots");
          }
        if (!parameters)
          fail(Code::Call, "an update without state");
        else if (decay != plain && (call.body() == decay ? parameters->end() > decaying : parameters->begin() < decaying))
          fail(Code::Call, "elements " + rangeText(parameters->begin(), parameters->end()) + " are updated " + (call.body() == decay ? "with" : "without") +
                               " weight decay; it applies to the first " + std::to_string(decaying));
      }
      break;
    }
    default: fail(Code::Unsupported, "task " + std::to_string(int(compute.task())) + " is not known to this version"); break;
    }
  }
}
