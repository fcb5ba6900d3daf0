#include "SerialPrograms.h"

#include "ArgumentBindings.h"
#include "zorse/Base/Runs.h"
#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

using namespace zorse;
using namespace zorse::test;

namespace {

using Kind = bundle::Value::Kind;

bundle::Value value(Kind kind, uint32_t id, uint32_t cut, int64_t begin, int64_t end) {
  bundle::Value v;
  v.set_kind(kind);
  v.set_id(id);
  v.set_cut(cut);
  v.set_begin(begin);
  v.set_end(end);
  return v;
}

class Builder {
public:
  Builder(const SyntheticModel &model, const SerialPlan &plan)
      : summary(model.summary), functions(model.functions), plan(plan), programs(plan.devices), binders(programs.begin(), programs.end()),
        last(plan.devices, -1) {}

  std::vector<bundle::Program> build() {
    owners = plan.owners;
    for (uint32_t g = 0; g < uint32_t(summary.groups_size()); ++g) {
      bool listed = std::any_of(owners.begin(), owners.end(), [&](const SerialShard &s) { return s.group == g; });
      if (!listed && summary.groups(int(g)).trainable())
        owners.push_back({g, *devicesOf(g).begin(), 0, summary.groups(int(g)).elements()});
    }
    if (plan.compact)
      cutAtPadding();
    for (int d = 0; d < plan.devices; ++d) {
      programs[d].set_device(uint32_t(d));
      programs[d].set_device_name("d" + std::to_string(d));
      programs[d].add_arenas()->set_kind(bundle::DEVICE);
      for (int kind :
           {bundle::COMPUTE, bundle::SEND_QUEUE, bundle::RECEIVE_QUEUE, bundle::COLLECTIVE_QUEUE, bundle::HOST_TO_DEVICE, bundle::DEVICE_TO_HOST})
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
    std::stable_sort(forward.begin(), forward.end(), [&](int a, int b) { return plan.cells[a].firstUnit < plan.cells[b].firstUnit; });
    for (int c : forward)
      forwardCell(c);
    std::stable_sort(forward.begin(), forward.end(), [&](int a, int b) { return plan.cells[a].endUnit > plan.cells[b].endUnit; });
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

private:
  const bundle::ModelSummary &summary;
  const bundle::FunctionLibrary &functions;
  const SerialPlan &plan;
  std::vector<bundle::Program> programs;
  std::vector<bundle::ArgumentBinder> binders; ///< per program
  std::vector<int> last;                       ///< per device: index of its latest instruction
  std::vector<SerialShard> owners;
  std::map<uint32_t, uint64_t> used;
  std::map<std::pair<uint32_t, std::string>, bundle::Region> regions;
  std::set<std::tuple<uint32_t, uint32_t>> startedGroups; ///< (device, group) pairs with a contribution in their accumulator
  uint32_t next = 0;                                      ///< next id

  bundle::Region region(uint32_t device, const std::string &key, int64_t bytes) {
    auto [it, fresh] = regions.try_emplace({device, key});
    if (fresh) {
      it->second.set_offset(used[device]);
      it->second.set_bytes(uint64_t(bytes));
      used[device] += uint64_t(bytes + 63) / 64 * 64;
    }
    return it->second;
  }
  static bundle::Region part(bundle::Region whole, int64_t offset, int64_t bytes) {
    whole.set_offset(whole.offset() + uint64_t(offset));
    whole.set_bytes(uint64_t(bytes));
    return whole;
  }

  void waitFor(int d, bundle::Instruction *instruction, int target, bool previous) {
    auto &program = programs[d];
    uint32_t queue = program.instructions(target).queue(), position = 0;
    for (int e = 0; e < target; ++e)
      position += program.instructions(e).queue() == queue;
    auto *wait = instruction->add_waits();
    wait->set_queue(queue);
    wait->set_position(position);
    wait->set_previous_step(previous);
  }

  /// Adds an instruction with the current id that waits for all earlier instructions of its device.
  bundle::Instruction *add(int d, uint32_t queue, bundle::Phase phase) {
    auto *instruction = programs[d].add_instructions();
    instruction->set_id(next);
    instruction->set_queue(queue);
    instruction->set_phase(phase);
    if (last[d] >= 0 && programs[d].instructions(last[d]).queue() != queue)
      waitFor(d, instruction, last[d], false);
    last[d] = programs[d].instructions_size() - 1;
    return instruction;
  }

  std::set<uint32_t> devicesOf(uint32_t group) const {
    std::set<uint32_t> devices;
    for (const auto &cell : plan.cells)
      for (uint32_t unit : summary.groups(int(group)).units())
        if (int(unit) >= cell.firstUnit && int(unit) < cell.endUnit)
          devices.insert(cell.device);
    return devices;
  }
  /// The shards that are communicated: all but padding that stays with its owner.
  std::vector<SerialShard> ownersOf(uint32_t group) const {
    std::vector<SerialShard> list;
    for (const auto &shard : owners)
      if (shard.group == group && shard.begin < shard.end && !isPadding(shard))
        list.push_back(shard);
    std::sort(list.begin(), list.end(), [](const SerialShard &a, const SerialShard &b) { return a.begin < b.begin; });
    return list;
  }

  /// The elements of a group that every device that uses the group stores. Arguments begin at multiples of 64 bytes.
  Compact wholeOf(uint32_t group) const {
    Compact runs;
    if (!plan.compact || !summary.groups(int(group)).trainable())
      runs.add(0, summary.groups(int(group)).elements());
    else
      for (uint32_t p : summary.groups(int(group)).parameters())
        runs.add(summary.parameters(int(p)).offset(), summary.parameters(int(p)).offset() + (summary.parameters(int(p)).shape(0) + 15) / 16 * 16);
    return runs;
  }
  Compact ownOf(uint32_t group, uint32_t device) const {
    Compact runs;
    for (const auto &shard : ownersOf(group))
      if (shard.device == device)
        runs.add(shard.begin, shard.end);
    return runs;
  }
  bool isPadding(const SerialShard &shard) const { return wholeOf(shard.group).place(shard.begin, shard.end) < 0; }
  void cutAtPadding() {
    std::vector<SerialShard> cut;
    for (const auto &shard : owners) {
      std::set<int64_t> borders{shard.begin, shard.end};
      const Compact whole = wholeOf(shard.group);
      for (const Compact::Run &run : whole.runs())
        for (int64_t border : {run.begin, run.end})
          if (shard.begin < border && border < shard.end)
            borders.insert(border);
      for (auto begin = borders.begin(); std::next(begin) != borders.end(); ++begin)
        cut.push_back({shard.group, shard.device, *begin, *std::next(begin)});
    }
    owners = std::move(cut);
  }

  std::string parametersKey(uint32_t g) const { return "parameters" + std::to_string(g); }
  std::string momentsKey(uint32_t m, const SerialShard &shard) const {
    return "moments" + std::to_string(m) + "." + std::to_string(shard.group) + "." + std::to_string(shard.begin);
  }

  /// The region of a shard: inside the whole group on a device that uses the group, else among the device's own shards.
  bundle::Region shardRegion(const SerialShard &shard, const std::string &whole, const std::string &alone) {
    const int64_t bytes = (shard.end - shard.begin) * 4;
    if (isPadding(shard))
      return region(shard.device, "padding" + std::to_string(shard.group) + "." + std::to_string(shard.begin), bytes);
    const bool uses = devicesOf(shard.group).count(shard.device);
    const Compact places = uses ? wholeOf(shard.group) : ownOf(shard.group, shard.device);
    return part(region(shard.device, uses ? whole : alone, places.elements() * 4), places.place(shard.begin, shard.end) * 4, bytes);
  }
  bundle::Region shardRegion(const SerialShard &shard) { return shardRegion(shard, parametersKey(shard.group), parametersKey(shard.group)); }
  bundle::Region sumRegion(const SerialShard &shard) {
    return shardRegion(shard, "gradients" + std::to_string(shard.group), "reduced" + std::to_string(shard.group));
  }

  /// The region of a collective: all bytes of a device's shards, from the first one.
  bundle::Region shardsFrom(bundle::Region first, uint32_t group, uint32_t device) const {
    first.set_bytes(uint64_t(ownOf(group, device).elements() * 4));
    return first;
  }
  void addRuns(uint32_t group, const std::set<uint32_t> &devices, bundle::ShardRanges *runs) const {
    const Compact whole = wholeOf(group);
    for (uint32_t d : devices)
      for (const Compact::Run &run : whole.runs())
        add(d, run.begin, run.end, runs);
  }
  static void add(uint32_t device, int64_t begin, int64_t end, bundle::ShardRanges *extents) {
    extents->add_members(device);
    extents->add_begin(begin);
    extents->add_end(end);
  }

  void state(uint32_t device, const bundle::Region &where, const bundle::Value &what, bundle::ElementType type) {
    auto *s = programs[device].add_state();
    *s->mutable_region() = where;
    *s->mutable_value() = what;
    s->set_type(type);
  }

  void states() {
    for (const auto &shard : owners) {
      state(shard.device, shardRegion(shard), value(bundle::Value::PARAMETERS, shard.group, 0, shard.begin, shard.end), bundle::F32);
      for (uint32_t m = 0; m < summary.moments(); ++m)
        state(shard.device, region(shard.device, momentsKey(m, shard), (shard.end - shard.begin) * 4),
              value(bundle::Value::MOMENTS, shard.group, m, shard.begin, shard.end), bundle::F32);
      if (!regions.count({shard.device, "step"}))
        state(shard.device, region(shard.device, "step", 8), value(bundle::Value::OPTIMIZER_STEP, 0, 0, 0, 0), bundle::F64);
    }
    for (uint32_t g = 0; g < uint32_t(summary.groups_size()); ++g) {
      int64_t elements = summary.groups(int(g)).elements();
      std::set<uint32_t> readers = devicesOf(g);
      const int64_t bytes = wholeOf(g).elements() * 4;
      for (uint32_t d : readers)
        region(d, parametersKey(g), bytes);
      if (!summary.groups(int(g)).trainable()) {
        for (uint32_t d : readers)
          state(d, region(d, parametersKey(g), bytes), value(bundle::Value::PARAMETERS, g, 0, 0, elements), bundle::F32);
        continue;
      }
      auto shards = ownersOf(g);
      std::set<uint32_t> members = readers;
      for (const auto &shard : shards)
        members.insert(shard.device);
      if (members.size() == 1)
        continue;
      for (uint32_t d : members) {
        auto *gather = add(int(d), 3, bundle::GATHER)->mutable_all_gather();
        gather->set_group(g);
        gather->set_type(bundle::F32);
        for (const auto &shard : shards) {
          add(shard.device, shard.begin, shard.end, gather->mutable_shards());
          if (shard.device == d && !gather->has_shard())
            *gather->mutable_shard() = shardsFrom(shardRegion(shard), g, d);
        }
        for (uint32_t r : readers)
          gather->add_readers(r);
        if (plan.compact)
          addRuns(g, readers, gather->mutable_reads());
        if (readers.count(d))
          *gather->mutable_full() = region(d, parametersKey(g), bytes);
        *gather->mutable_value() = value(bundle::Value::PARAMETERS, g, 0, 0, elements);
      }
      ++next;
    }
  }

  std::string cellKey(int c, const char *what, uint32_t id) const { return std::string(what) + std::to_string(id) + "@" + std::to_string(c); }
  bool live(uint32_t v, int cut) const {
    return int(summary.values(int(v)).producer()) < cut && int(*summary.values(int(v)).users().rbegin()) >= cut;
  }

  /// Moves the rows of a value or its gradient that two adjacent cells share.
  void move(int from, int to, const char *what, const bundle::Value &declared, int64_t bytesPerRow, bundle::Phase phase) {
    const auto &a = plan.cells[from], &b = plan.cells[to];
    bundle::Region source = part(region(a.device, cellKey(from, what, declared.id()), (a.endSample - a.firstSample) * bytesPerRow),
                                 (declared.begin() - a.firstSample) * bytesPerRow, (declared.end() - declared.begin()) * bytesPerRow);
    bundle::Region target = part(region(b.device, cellKey(to, what, declared.id()), (b.endSample - b.firstSample) * bytesPerRow),
                                 (declared.begin() - b.firstSample) * bytesPerRow, (declared.end() - declared.begin()) * bytesPerRow);
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

  void bind(int c, int u, bundle::Compute *compute) {
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
      auto bindTo = [&](const bundle::Region &where, const bundle::Value &what, bool overwrite = false) {
        binders[d].bind(*call, where, what, overwrite);
      };
      auto rowsOf = [&](Kind kind, uint32_t id, uint32_t cut) { return value(kind, id, cut, cell.firstSample, cell.endSample); };
      int64_t bytes = argument.bytes().fixed() + argument.bytes().per_row() * rows;
      switch (argument.kind()) {
      case bundle::PARAMETER:
      case bundle::PARAMETER_GRADIENT: {
        const auto &p = summary.parameters(int(unit.parameters(i)));
        bool gradient = argument.kind() == bundle::PARAMETER_GRADIENT;
        const Compact places = wholeOf(p.group());
        bundle::Region whole = region(d, (gradient ? "gradients" : "parameters") + std::to_string(p.group()), places.elements() * 4);
        bindTo(part(whole, places.place(p.offset(), p.offset() + p.shape(0)) * 4, p.shape(0) * 4),
               value(gradient ? bundle::Value::GRADIENTS : bundle::Value::PARAMETERS, p.group(), 0, p.offset(), p.offset() + p.shape(0)),
               gradient && startedGroups.count({d, p.group()}) == 0);
        break;
      }
      case bundle::INPUT:
        bindTo(region(d, cellKey(c, "input", unit.inputs(i)), bytes), rowsOf(bundle::Value::INPUT_ROWS, unit.inputs(i), 0));
        break;
      case bundle::BOUNDARY_IN:
        bindTo(region(d, cellKey(c, "value", unit.values_in(i)), bytes), rowsOf(bundle::Value::ACTIVATION, unit.values_in(i), 0));
        break;
      case bundle::BOUNDARY_OUT:
        bindTo(region(d, cellKey(c, "value", unit.values_out(i)), bytes), rowsOf(bundle::Value::ACTIVATION, unit.values_out(i), 0));
        break;
      case bundle::BOUNDARY_IN_GRADIENT: {
        const auto &users = summary.values(int(unit.values_in(i))).users();
        bindTo(region(d, cellKey(c, "gradient", unit.values_in(i)), bytes),
               rowsOf(bundle::Value::ACTIVATION_GRADIENT, unit.values_in(i), uint32_t(u)), *users.rbegin() == uint32_t(u));
        break;
      }
      case bundle::BOUNDARY_OUT_GRADIENT:
        bindTo(region(d, cellKey(c, "gradient", unit.values_out(i)), bytes),
               rowsOf(bundle::Value::ACTIVATION_GRADIENT, unit.values_out(i), summary.values(int(unit.values_out(i))).users(0)));
        break;
      case bundle::SAVED:
        bindTo(region(d, cellKey(c, "saved", uint32_t(u)), bytes), rowsOf(bundle::Value::SAVED_BLOCK, uint32_t(u), 0));
        break;
      case bundle::SAVED_FOR_WEIGHT_GRAD:
        bindTo(region(d, cellKey(c, "deferred", uint32_t(u)), bytes), rowsOf(bundle::Value::SAVED_FOR_WEIGHT_GRAD_BLOCK, uint32_t(u), 0));
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
        bindTo(part(region(d, "scalars", kScalarsBlock), 0, kScalarsBytes), value(bundle::Value::STEP_SCALARS, 0, 0, 0, 0));
        break;
      case bundle::LOSS:
        bindTo(region(d, cellKey(c, "loss", unit.loss_terms(i)), bytes), rowsOf(bundle::Value::LOSS_ROWS, uint32_t(u), unit.loss_terms(i)));
        break;
      default:
        bindTo({}, {});
      }
    }
    if (call->function() == functionOf(unit, bundle::UnitFunction::BACKWARD) || compute->task() == bundle::Compute::W)
      for (uint32_t p : unit.parameters())
        startedGroups.insert({d, summary.parameters(int(p)).group()});
  }

  void forwardCell(int c) {
    const auto &cell = plan.cells[c];
    std::set<uint32_t> inputs;
    for (int u = cell.firstUnit; u < cell.endUnit; ++u)
      inputs.insert(summary.units(u).inputs().begin(), summary.units(u).inputs().end());
    for (uint32_t i : inputs) {
      auto *load = add(int(cell.device), 4, bundle::LOAD)->mutable_load_input();
      load->set_input(i);
      load->set_sample_base(cell.firstSample);
      load->set_rows(cell.endSample - cell.firstSample);
      *load->mutable_region() = region(cell.device, cellKey(c, "input", i), load->rows() * summary.inputs(int(i)).bytes_per_row());
      *load->mutable_value() = value(bundle::Value::INPUT_ROWS, i, 0, cell.firstSample, cell.endSample);
      ++next;
    }
    for (int v = 0; v < summary.values_size(); ++v)
      for (size_t other = 0; other < plan.cells.size() && live(uint32_t(v), cell.firstUnit); ++other) {
        const auto &source = plan.cells[other];
        int64_t begin = std::max(source.firstSample, cell.firstSample), end = std::min(source.endSample, cell.endSample);
        if (source.endUnit == cell.firstUnit && begin < end)
          move(int(other), c, "value", value(bundle::Value::ACTIVATION, uint32_t(v), 0, begin, end), summary.values(v).bytes_per_row(),
               bundle::FORWARD);
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
                  value(bundle::Value::LOSS_ROWS, uint32_t(summary.units_size() - 1), uint32_t(k), cell.firstSample, cell.endSample));
    binder.bind(*call, part(region(cell.device, "scalars", kScalarsBlock), kScalarsBytes, kSumsBytes),
                value(bundle::Value::LOCAL_METRICS, 0, 0, 0, 0));
    ++next;
  }

  void backwardCell(int c) {
    const auto &cell = plan.cells[c];
    for (int v = 0; v < summary.values_size(); ++v)
      for (size_t other = 0; other < plan.cells.size() && live(uint32_t(v), cell.endUnit); ++other) {
        const auto &source = plan.cells[other];
        int64_t begin = std::max(source.firstSample, cell.firstSample), end = std::min(source.endSample, cell.endSample);
        uint32_t user = 0;
        for (uint32_t u : summary.values(v).users())
          if (int(u) >= cell.endUnit) {
            user = u;
            break;
          }
        if (source.firstUnit == cell.endUnit && begin < end)
          move(int(other), c, "gradient", value(bundle::Value::ACTIVATION_GRADIENT, uint32_t(v), user, begin, end), summary.values(v).bytes_per_row(),
               bundle::BACKWARD);
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

  uint32_t functionOf(const bundle::UnitInfo &unit, bundle::UnitFunction::Task task) const { return functionOf(summary, unit, task).function(); }

  /// The function that a task calls for a unit, or -1.
  int functionOf(int u, bundle::Compute::Task task) const {
    const auto &unit = summary.units(u);
    if (task == bundle::Compute::F)
      return int(functionOf(unit, bundle::UnitFunction::FORWARD));
    const bool first = task == bundle::Compute::B;
    if (!plan.splitBackward)
      return first ? int(functionOf(unit, bundle::UnitFunction::BACKWARD)) : -1;
    if (unit.splits())
      return int(functionOf(unit, first ? bundle::UnitFunction::INPUT_GRADIENTS : bundle::UnitFunction::WEIGHT_GRADIENTS));
    auto needed = [&](uint32_t v) { return summary.values(int(v)).needs_gradient(); };
    auto trained = [&](uint32_t p) { return summary.parameters(int(p)).trainable(); };
    const bool onlyWeights = std::none_of(unit.values_in().begin(), unit.values_in().end(), needed) &&
                             std::any_of(unit.parameters().begin(), unit.parameters().end(), trained);
    return first == onlyWeights ? -1 : int(functionOf(unit, bundle::UnitFunction::BACKWARD));
  }

  /// Ranges of elements without padding and with the same decay.
  std::vector<std::tuple<int64_t, int64_t, bool>> runs(const SerialShard &shard) const {
    std::vector<std::tuple<int64_t, int64_t, bool>> list;
    for (uint32_t p : summary.groups(int(shard.group)).parameters()) {
      const auto &parameter = summary.parameters(int(p));
      int64_t begin = std::max(parameter.offset(), shard.begin), end = std::min(parameter.offset() + parameter.shape(0), shard.end);
      if (begin < end)
        list.push_back({begin, end, parameter.decays()});
    }
    return list;
  }

  void commit() {
    for (uint32_t g = 0; g < uint32_t(summary.groups_size()); ++g) {
      if (!summary.groups(int(g)).trainable())
        continue;
      auto shards = ownersOf(g);
      std::set<uint32_t> contributors = devicesOf(g), members = contributors;
      int64_t elements = summary.groups(int(g)).elements();
      for (const auto &shard : shards)
        members.insert(shard.device);
      if (members.size() == 1)
        continue;
      for (uint32_t d : members) {
        auto *reduce = add(int(d), 3, bundle::REDUCE)->mutable_reduce_scatter();
        reduce->set_group(g);
        reduce->set_type(bundle::F32);
        reduce->set_order(bundle::FIXED_ORDER);
        for (uint32_t contributor : contributors)
          reduce->add_contributors(contributor);
        for (const auto &shard : shards) {
          add(shard.device, shard.begin, shard.end, reduce->mutable_shards());
          if (shard.device == d && !reduce->has_shard())
            *reduce->mutable_shard() = shardsFrom(sumRegion(shard), g, d);
        }
        if (plan.compact)
          addRuns(g, contributors, reduce->mutable_terms());
        if (contributors.count(d))
          *reduce->mutable_full() = region(d, "gradients" + std::to_string(g), wholeOf(g).elements() * 4);
        *reduce->mutable_value() = value(bundle::Value::REDUCED_GRADIENTS, g, 0, 0, elements);
      }
      ++next;
    }
    auto gradients = [&](const SerialShard &shard, int64_t begin, int64_t end) {
      return part(sumRegion(shard), (begin - shard.begin) * 4, (end - begin) * 4);
    };
    std::set<uint32_t> deciders, members;
    for (const auto &shard : owners) {
      if (shard.begin >= shard.end || isPadding(shard))
        continue;
      deciders.insert(shard.device);
      auto *norm = add(int(shard.device), 0, bundle::GRAD_NORM)->mutable_compute();
      norm->set_task(bundle::Compute::NORM);
      norm->set_cell(-1);
      norm->set_group(int(shard.group));
      for (auto [begin, end, decays] : runs(shard)) {
        auto *call = norm->add_calls();
        call->set_function(summary.norm_function());
        call->set_unit(-1);
        call->set_rows(end - begin);
        bundle::ArgumentBinder &binder = binders[shard.device];
        binder.bind(*call, gradients(shard, begin, end), value(bundle::Value::REDUCED_GRADIENTS, shard.group, 0, begin, end));
        binder.bind(*call, part(region(shard.device, "scalars", kScalarsBlock), kScalarsBytes, kSumsBytes),
                    value(bundle::Value::LOCAL_METRICS, 0, 0, 0, 0));
      }
      ++next;
    }
    members = deciders;
    for (const auto &cell : plan.cells)
      if (cell.endUnit == summary.units_size())
        members.insert(cell.device);
    if (members.size() > 1) {
      for (uint32_t d : members) {
        auto *reduce = add(int(d), 3, bundle::READ_METRICS)->mutable_all_reduce();
        for (uint32_t member : members)
          reduce->add_members(member);
        reduce->set_type(bundle::F64);
        reduce->set_order(bundle::FIXED_ORDER);
        *reduce->mutable_region() = part(region(d, "scalars", kScalarsBlock), kScalarsBytes, kSumsBytes);
        *reduce->mutable_from() = value(bundle::Value::LOCAL_METRICS, 0, 0, 0, 0);
        *reduce->mutable_to() = value(bundle::Value::GLOBAL_METRICS, 0, 0, 0, 0);
      }
      ++next;
    }
    for (uint32_t d : deciders) {
      auto *decide = add(int(d), 0, bundle::GRAD_NORM)->mutable_compute();
      decide->set_task(bundle::Compute::CLIP_AND_CHECK);
      decide->set_cell(-1);
      decide->set_group(-1);
      auto *call = decide->add_calls();
      call->set_function(summary.clip_and_check_function());
      call->set_unit(-1);
      call->set_rows(1);
      auto bindTo = [&](const bundle::Region &where, const bundle::Value &what) { binders[d].bind(*call, where, what); };
      bindTo(part(region(d, "scalars", kScalarsBlock), kScalarsBytes, kSumsBytes), value(bundle::Value::GLOBAL_METRICS, 0, 0, 0, 0));
      bindTo(part(region(d, "scalars", kScalarsBlock), 0, kScalarsBytes), value(bundle::Value::STEP_SCALARS, 0, 0, 0, 0));
      bindTo(region(d, "step", 8), value(bundle::Value::OPTIMIZER_STEP, 0, 0, 0, 0));
      ++next;
    }
    for (const auto &shard : owners) {
      if (shard.begin >= shard.end || isPadding(shard))
        continue;
      auto *update = add(int(shard.device), 0, bundle::UPDATE_STATE)->mutable_compute();
      update->set_task(bundle::Compute::UPDATE_GROUP);
      update->set_cell(-1);
      update->set_group(int(shard.group));
      for (auto [begin, end, decays] : runs(shard)) {
        auto *call = update->add_calls();
        call->set_function(decays ? summary.update_function_decay() : summary.update_function_plain());
        call->set_unit(-1);
        call->set_rows(end - begin);
        auto bindTo = [&](const bundle::Region &where, const bundle::Value &what) { binders[shard.device].bind(*call, where, what); };
        bindTo(part(shardRegion(shard), (begin - shard.begin) * 4, (end - begin) * 4), value(bundle::Value::PARAMETERS, shard.group, 0, begin, end));
        bindTo(gradients(shard, begin, end), value(bundle::Value::REDUCED_GRADIENTS, shard.group, 0, begin, end));
        for (uint32_t m = 0; m < summary.moments(); ++m)
          bindTo(part(region(shard.device, momentsKey(m, shard), (shard.end - shard.begin) * 4), (begin - shard.begin) * 4, (end - begin) * 4),
                 value(bundle::Value::MOMENTS, shard.group, m, begin, end));
        bindTo(part(region(shard.device, "scalars", kScalarsBlock), 0, kScalarsBytes), value(bundle::Value::STEP_SCALARS, 1, 0, 0, 0));
        auto step = value(bundle::Value::OPTIMIZER_STEP, 0, 0, 0, 0);
        step.set_version(1);
        bindTo(region(shard.device, "step", 8), step);
      }
      ++next;
    }
    uint32_t reporter = *deciders.begin();
    auto *report = add(int(reporter), 5, bundle::READ_METRICS)->mutable_read_metrics();
    *report->mutable_region() = region(reporter, "scalars", kScalarsBlock);
    *report->mutable_value() = value(bundle::Value::STEP_SCALARS, 1, 0, 0, 0);
    ++next;
  }
};

} // namespace

std::vector<bundle::Program> test::serialPrograms(const SyntheticModel &model, const SerialPlan &plan) { return Builder(model, plan).build(); }
