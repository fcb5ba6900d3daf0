#include "SerialPrograms.h"

#include "SerialBuilder.h"

#include "zorse/Summary/Summary.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::test;

std::vector<bundle::Program> SerialBuilder::build() {
  owners = plan.owners;
  for (uint32_t g = 0; g < uint32_t(summary.groups_size()); ++g) {
    bool listed = std::any_of(owners.begin(), owners.end(),
                              [&](const SerialShard &s) { return s.group == g; });
    if (!listed && summary.groups(int(g)).trainable())
      owners.push_back({g, *devicesOf(g).begin(), 0, summary.groups(int(g)).elements()});
  }
  if (plan.compact)
    cutAtPadding();
  for (int d = 0; d < plan.devices; ++d) {
    programs[d].set_device(uint32_t(d));
    programs[d].set_device_name("d" + std::to_string(d));
    programs[d].add_arenas()->set_kind(bundle::DEVICE);
    for (int kind : {bundle::COMPUTE, bundle::SEND_QUEUE, bundle::RECEIVE_QUEUE,
                     bundle::COLLECTIVE_QUEUE, bundle::HOST_TO_DEVICE, bundle::DEVICE_TO_HOST})
      programs[d].add_queues()->set_kind(bundle::QueueKind(kind));
    auto *e = add(d, 4, bundle::LOAD);
    *e->mutable_load_scalars()->mutable_region() = region(d, "scalars", kScalarsBlock);
    *e->mutable_load_scalars()->mutable_value() = value(bundle::Value::STEP_SCALARS, 0, 0, 0, 0);
    ++next;
  }
  states();
  std::vector<int> forward(plan.cells.size());
  for (size_t c = 0; c < plan.cells.size(); ++c)
    forward[c] = int(c);
  std::stable_sort(forward.begin(), forward.end(),
                   [&](int a, int b) { return plan.cells[a].firstUnit < plan.cells[b].firstUnit; });
  for (int c : forward)
    forwardCell(c);
  std::stable_sort(forward.begin(), forward.end(),
                   [&](int a, int b) { return plan.cells[a].endUnit > plan.cells[b].endUnit; });
  for (int c : forward)
    backwardCell(c);
  commit();
  for (int d = 0; d < plan.devices; ++d) {
    // The first instruction of a step waits for the last instruction of the previous step.
    auto &program = programs[d];
    if (program.instructions_size() > 1)
      waitFor(d, program.mutable_instructions(0), program.instructions_size() - 1, true);
    program.mutable_arenas(0)->set_bytes(used[uint32_t(d)]);
    program.set_planned_bytes(used[uint32_t(d)]);
  }
  return std::move(programs);
}

bundle::Region SerialBuilder::region(uint32_t device, const std::string &key, int64_t bytes) {
  auto [it, fresh] = regions.try_emplace({device, key});
  if (fresh) {
    it->second.set_offset(used[device]);
    it->second.set_bytes(uint64_t(bytes));
    used[device] += uint64_t(bytes + 63) / 64 * 64;
  }
  return it->second;
}

bundle::Region SerialBuilder::part(bundle::Region whole, int64_t offset, int64_t bytes) {
  whole.set_offset(whole.offset() + uint64_t(offset));
  whole.set_bytes(uint64_t(bytes));
  return whole;
}

void SerialBuilder::waitFor(int d, bundle::Instruction *instruction, int target, bool previous) {
  auto &program = programs[d];
  uint32_t queue = program.instructions(target).queue(), position = 0;
  for (int e = 0; e < target; ++e)
    position += program.instructions(e).queue() == queue;
  auto *wait = instruction->add_waits();
  wait->set_queue(queue);
  wait->set_position(position);
  wait->set_previous_step(previous);
}

bundle::Instruction *SerialBuilder::add(int d, uint32_t queue, bundle::Phase phase) {
  auto *instruction = programs[d].add_instructions();
  instruction->set_id(next);
  instruction->set_queue(queue);
  instruction->set_phase(phase);
  if (last[d] >= 0 && programs[d].instructions(last[d]).queue() != queue)
    waitFor(d, instruction, last[d], false);
  last[d] = programs[d].instructions_size() - 1;
  return instruction;
}

void SerialBuilder::add(uint32_t device, int64_t begin, int64_t end, bundle::ShardRanges *extents) {
  extents->add_members(device);
  extents->add_begin(begin);
  extents->add_end(end);
}

void SerialBuilder::move(int from, int to, const char *what, const bundle::Value &declared,
                         int64_t bytesPerRow, bundle::Phase phase) {
  const auto &a = plan.cells[from], &b = plan.cells[to];
  bundle::Region source = part(region(a.device, cellKey(from, what, declared.id()),
                                      (a.endSample - a.firstSample) * bytesPerRow),
                               (declared.begin() - a.firstSample) * bytesPerRow,
                               (declared.end() - declared.begin()) * bytesPerRow);
  bundle::Region target = part(region(b.device, cellKey(to, what, declared.id()),
                                      (b.endSample - b.firstSample) * bytesPerRow),
                               (declared.begin() - b.firstSample) * bytesPerRow,
                               (declared.end() - declared.begin()) * bytesPerRow);
  if (a.device == b.device) {
    auto *copy = add(int(a.device), 0, phase)->mutable_copy();
    *copy->mutable_from() = source;
    *copy->mutable_to() = target;
    *copy->mutable_value() = declared;
  } else {
    auto *send = add(int(a.device), 1, phase)->mutable_send();
    send->set_peer(b.device);
    *send->mutable_region() = source;
    *send->mutable_value() = declared;
    auto *receive = add(int(b.device), 2, phase)->mutable_receive();
    receive->set_peer(a.device);
    *receive->mutable_region() = target;
    *receive->mutable_value() = declared;
  }
  ++next;
}

void SerialBuilder::bind(int c, int u, bundle::Compute *compute) {
  const bool forward = compute->task() == bundle::Compute::F;
  const auto &cell = plan.cells[c];
  const auto &unit = summary.units(u);
  uint32_t d = cell.device;
  int64_t rows = cell.endSample - cell.firstSample;
  auto *call = compute->add_calls();
  call->set_function(functionOf(u, compute->task()));
  call->set_unit(u);
  call->set_rows(rows);
  call->set_sample_base(cell.firstSample);
  call->set_rng_id_base(unit.rng_id_base());
  for (const auto &argument : functions.functions(int(call->function())).arguments()) {
    int i = int(argument.index());
    auto bindTo = [&](const bundle::Region &where, const bundle::Value &what,
                      bool overwrite = false) { binders[d].bind(*call, where, what, overwrite); };
    auto rowsOf = [&](bundle::Value::Kind kind, uint32_t id, uint32_t cut) {
      return value(kind, id, cut, cell.firstSample, cell.endSample);
    };
    int64_t bytes = argument.bytes().fixed() + argument.bytes().per_row() * rows;
    switch (argument.kind()) {
    case bundle::PARAMETER:
    case bundle::PARAMETER_GRADIENT: {
      const auto &p = summary.parameters(int(unit.parameters(i)));
      bool gradient = argument.kind() == bundle::PARAMETER_GRADIENT;
      const Compact places = wholeOf(p.group());
      bundle::Region whole =
          region(d, (gradient ? "gradients" : "parameters") + std::to_string(p.group()),
                 places.elements() * 4);
      bindTo(part(whole, places.place(p.offset(), p.offset() + p.shape(0)) * 4, p.shape(0) * 4),
             value(gradient ? bundle::Value::GRADIENTS : bundle::Value::PARAMETERS, p.group(), 0,
                   p.offset(), p.offset() + p.shape(0)),
             gradient && startedGroups.count({d, p.group()}) == 0);
      break;
    }
    case bundle::INPUT:
      bindTo(region(d, cellKey(c, "input", unit.inputs(i)), bytes),
             rowsOf(bundle::Value::INPUT_ROWS, unit.inputs(i), 0));
      break;
    case bundle::BOUNDARY_IN:
      bindTo(region(d, cellKey(c, "value", unit.values_in(i)), bytes),
             rowsOf(bundle::Value::ACTIVATION, unit.values_in(i), 0));
      break;
    case bundle::BOUNDARY_OUT:
      bindTo(region(d, cellKey(c, "value", unit.values_out(i)), bytes),
             rowsOf(bundle::Value::ACTIVATION, unit.values_out(i), 0));
      break;
    case bundle::BOUNDARY_IN_GRADIENT: {
      const auto &users = summary.values(int(unit.values_in(i))).users();
      bindTo(region(d, cellKey(c, "gradient", unit.values_in(i)), bytes),
             rowsOf(bundle::Value::ACTIVATION_GRADIENT, unit.values_in(i), uint32_t(u)),
             *users.rbegin() == uint32_t(u));
      break;
    }
    case bundle::BOUNDARY_OUT_GRADIENT:
      bindTo(region(d, cellKey(c, "gradient", unit.values_out(i)), bytes),
             rowsOf(bundle::Value::ACTIVATION_GRADIENT, unit.values_out(i),
                    summary.values(int(unit.values_out(i))).users(0)));
      break;
    case bundle::SAVED:
      bindTo(region(d, cellKey(c, "saved", uint32_t(u)), bytes),
             rowsOf(bundle::Value::SAVED_BLOCK, uint32_t(u), 0));
      break;
    case bundle::SAVED_FOR_WEIGHT_GRAD:
      bindTo(region(d, cellKey(c, "deferred", uint32_t(u)), bytes),
             rowsOf(bundle::Value::SAVED_FOR_WEIGHT_GRAD_BLOCK, uint32_t(u), 0));
      break;
    case bundle::WORKSPACE:
      bindTo(region(d,
                    cellKey(c,
                            forward                                 ? "workF"
                            : compute->task() == bundle::Compute::B ? "workB"
                                                                    : "workW",
                            uint32_t(u)),
                    bytes),
             bundle::Value());
      break;
    case bundle::SCALARS:
      bindTo(part(region(d, "scalars", kScalarsBlock), 0, kScalarsBytes),
             value(bundle::Value::STEP_SCALARS, 0, 0, 0, 0));
      break;
    case bundle::LOSS:
      bindTo(region(d, cellKey(c, "loss", unit.loss_terms(i)), bytes),
             rowsOf(bundle::Value::LOSS_ROWS, uint32_t(u), unit.loss_terms(i)));
      break;
    default:
      bindTo({}, {});
    }
  }
  if (call->function() == functionOf(unit, bundle::UnitFunction::BACKWARD) ||
      compute->task() == bundle::Compute::W)
    for (uint32_t p : unit.parameters())
      startedGroups.insert({d, summary.parameters(int(p)).group()});
}

void SerialBuilder::forwardCell(int c) {
  const auto &cell = plan.cells[c];
  std::set<uint32_t> inputs;
  for (int u = cell.firstUnit; u < cell.endUnit; ++u)
    inputs.insert(summary.units(u).inputs().begin(), summary.units(u).inputs().end());
  for (uint32_t i : inputs) {
    auto *load = add(int(cell.device), 4, bundle::LOAD)->mutable_load_input();
    load->set_input(i);
    load->set_sample_base(cell.firstSample);
    load->set_rows(cell.endSample - cell.firstSample);
    *load->mutable_region() = region(cell.device, cellKey(c, "input", i),
                                     load->rows() * summary.inputs(int(i)).bytes_per_row());
    *load->mutable_value() =
        value(bundle::Value::INPUT_ROWS, i, 0, cell.firstSample, cell.endSample);
    ++next;
  }
  for (int v = 0; v < summary.values_size(); ++v)
    for (size_t other = 0; other < plan.cells.size() && live(uint32_t(v), cell.firstUnit);
         ++other) {
      const auto &source = plan.cells[other];
      int64_t begin = std::max(source.firstSample, cell.firstSample),
              end = std::min(source.endSample, cell.endSample);
      if (source.endUnit == cell.firstUnit && begin < end)
        move(int(other), c, "value", value(bundle::Value::ACTIVATION, uint32_t(v), 0, begin, end),
             summary.values(v).bytes_per_row(), bundle::FORWARD);
    }
  auto *compute = add(int(cell.device), 0, bundle::FORWARD)->mutable_compute();
  compute->set_task(bundle::Compute::F);
  compute->set_cell(c);
  compute->set_group(-1);
  ++next;
  bool loss = false;
  for (int u = cell.firstUnit; u < cell.endUnit; ++u) {
    bind(c, u, compute);
    loss = loss || summary.units(u).loss_terms_size();
  }
  if (!loss)
    return;
  auto *sum = add(int(cell.device), 0, bundle::FORWARD)->mutable_compute();
  sum->set_task(bundle::Compute::SUM_LOSS);
  sum->set_cell(c);
  sum->set_group(-1);
  auto *call = sum->add_calls();
  call->set_function(summary.sum_loss_function());
  call->set_unit(-1);
  call->set_rows(cell.endSample - cell.firstSample);
  call->set_sample_base(cell.firstSample);
  bundle::ArgumentBinder &binder = binders[cell.device];
  for (int k = 0; k < summary.loss_size(); ++k)
    binder.bind(*call, region(cell.device, cellKey(c, "loss", uint32_t(k)), call->rows() * 4),
                value(bundle::Value::LOSS_ROWS, uint32_t(summary.units_size() - 1), uint32_t(k),
                      cell.firstSample, cell.endSample));
  binder.bind(*call, part(region(cell.device, "scalars", kScalarsBlock), kScalarsBytes, kSumsBytes),
              value(bundle::Value::LOCAL_METRICS, 0, 0, 0, 0));
  ++next;
}

void SerialBuilder::backwardCell(int c) {
  const auto &cell = plan.cells[c];
  for (int v = 0; v < summary.values_size(); ++v)
    for (size_t other = 0; other < plan.cells.size() && live(uint32_t(v), cell.endUnit); ++other) {
      const auto &source = plan.cells[other];
      int64_t begin = std::max(source.firstSample, cell.firstSample),
              end = std::min(source.endSample, cell.endSample);
      uint32_t user = 0;
      for (uint32_t u : summary.values(v).users())
        if (int(u) >= cell.endUnit) {
          user = u;
          break;
        }
      if (source.firstUnit == cell.endUnit && begin < end)
        move(int(other), c, "gradient",
             value(bundle::Value::ACTIVATION_GRADIENT, uint32_t(v), user, begin, end),
             summary.values(v).bytes_per_row(), bundle::BACKWARD);
    }
  for (bundle::Compute::Task task : {bundle::Compute::B, bundle::Compute::W}) {
    bundle::Compute *compute = nullptr;
    for (int u = cell.endUnit - 1; u >= cell.firstUnit; --u) {
      if (functionOf(u, task) < 0)
        continue;
      if (!compute) {
        compute = add(int(cell.device), 0, bundle::BACKWARD)->mutable_compute();
        compute->set_task(task);
        compute->set_cell(c);
        compute->set_group(-1);
        ++next;
      }
      bind(c, u, compute);
    }
  }
}

uint32_t SerialBuilder::functionOf(const bundle::UnitInfo &unit,
                                   bundle::UnitFunction::Task task) const {
  return zorse::functionOf(summary, unit, task).function();
}

int SerialBuilder::functionOf(int u, bundle::Compute::Task task) const {
  const auto &unit = summary.units(u);
  if (task == bundle::Compute::F)
    return int(functionOf(unit, bundle::UnitFunction::FORWARD));
  const bool first = task == bundle::Compute::B;
  if (!plan.splitBackward)
    return first ? int(functionOf(unit, bundle::UnitFunction::BACKWARD)) : -1;
  if (unit.splits())
    return int(functionOf(unit, first ? bundle::UnitFunction::INPUT_GRADIENTS
                                      : bundle::UnitFunction::WEIGHT_GRADIENTS));
  auto needed = [&](uint32_t v) { return summary.values(int(v)).needs_gradient(); };
  auto trained = [&](uint32_t p) { return summary.parameters(int(p)).trainable(); };
  const bool onlyWeights = std::none_of(unit.values_in().begin(), unit.values_in().end(), needed) &&
                           std::any_of(unit.parameters().begin(), unit.parameters().end(), trained);
  return first == onlyWeights ? -1 : int(functionOf(unit, bundle::UnitFunction::BACKWARD));
}

std::vector<bundle::Program> test::serialPrograms(const SyntheticModel &model,
                                                  const SerialPlan &plan) {
  return SerialBuilder(model, plan).build();
}
