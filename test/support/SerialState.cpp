// State of serial programs: its shards, gathers, reductions and updates.
#include "SerialBuilder.h"

#include "zorse/Summary/Optimizers.h"
#include "zorse/Summary/StateLayout.h"
#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <iterator>

using namespace zorse;
using namespace zorse::test;

std::set<uint32_t> SerialBuilder::devicesOf(uint32_t group) const {
  std::set<uint32_t> devices;
  for (const auto &cell : plan.cells)
    for (uint32_t unit : summary.groups(int(group)).units())
      if (int(unit) >= cell.firstUnit && int(unit) < cell.endUnit)
        devices.insert(cell.device);
  return devices;
}

std::vector<SerialShard> SerialBuilder::ownersOf(uint32_t group) const {
  std::vector<SerialShard> list;
  for (const auto &shard : owners)
    if (shard.group == group && shard.begin < shard.end && !isPadding(shard))
      list.push_back(shard);
  std::sort(list.begin(), list.end(),
            [](const SerialShard &a, const SerialShard &b) { return a.begin < b.begin; });
  return list;
}

Compact SerialBuilder::wholeOf(uint32_t group) const {
  Compact runs;
  if (!plan.compact || !summary.groups(int(group)).trainable())
    runs.add(0, summary.groups(int(group)).elements());
  else
    for (uint32_t p : summary.groups(int(group)).parameters())
      runs.add(summary.parameters(int(p)).offset(),
               summary.parameters(int(p)).offset() +
                   (summary.parameters(int(p)).shape(0) + 15) / 16 * 16);
  return runs;
}

Compact SerialBuilder::ownOf(uint32_t group, uint32_t device) const {
  Compact runs;
  for (const auto &shard : ownersOf(group))
    if (shard.device == device)
      runs.add(shard.begin, shard.end);
  return runs;
}

void SerialBuilder::cutAtPadding() {
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

std::string SerialBuilder::momentsKey(uint32_t m, const SerialShard &shard) const {
  return "moments" + std::to_string(m) + "." + std::to_string(shard.group) + "." +
         std::to_string(shard.begin);
}

bundle::Region SerialBuilder::shardRegion(const SerialShard &shard, const std::string &whole,
                                          const std::string &alone) {
  const int64_t bytes = (shard.end - shard.begin) * 4;
  if (isPadding(shard))
    return region(shard.device,
                  "padding" + std::to_string(shard.group) + "." + std::to_string(shard.begin),
                  bytes);
  const bool uses = devicesOf(shard.group).count(shard.device);
  const Compact places = uses ? wholeOf(shard.group) : ownOf(shard.group, shard.device);
  return part(region(shard.device, uses ? whole : alone, places.elements() * 4),
              places.place(shard.begin, shard.end) * 4, bytes);
}

bundle::Region SerialBuilder::shardRegion(const SerialShard &shard) {
  return shardRegion(shard, parametersKey(shard.group), parametersKey(shard.group));
}

bundle::Region SerialBuilder::sumRegion(const SerialShard &shard) {
  return shardRegion(shard, "gradients" + std::to_string(shard.group),
                     "reduced" + std::to_string(shard.group));
}

bundle::Region SerialBuilder::shardsFrom(bundle::Region first, uint32_t group,
                                         uint32_t device) const {
  first.set_bytes(uint64_t(ownOf(group, device).elements() * 4));
  return first;
}

void SerialBuilder::addRuns(uint32_t group, const std::set<uint32_t> &devices,
                            bundle::ShardRanges *runs) const {
  const Compact whole = wholeOf(group);
  for (uint32_t d : devices)
    for (const Compact::Run &run : whole.runs())
      add(d, run.begin, run.end, runs);
}

void SerialBuilder::state(uint32_t device, const bundle::Region &where, const bundle::Value &what,
                          bundle::ElementType type) {
  auto *s = programs[device].add_state();
  *s->mutable_region() = where;
  *s->mutable_value() = what;
  s->set_type(type);
}

void SerialBuilder::states() {
  for (const auto &shard : owners) {
    state(shard.device, shardRegion(shard),
          value(bundle::Value::PARAMETERS, shard.group, 0, shard.begin, shard.end), bundle::F32);
    for (uint32_t m = 0; m < maxOptimizerStates(summary); ++m) {
      const StateLayout layout(summary, shard.group, m);
      const int64_t begin = layout.begin(shard.begin), end = layout.begin(shard.end);
      state(shard.device, region(shard.device, momentsKey(m, shard), (end - begin) * 4),
            value(bundle::Value::MOMENTS, shard.group, m, begin, end), bundle::F32);
    }
    if (!regions.count({shard.device, "step"}))
      state(shard.device, region(shard.device, "step", 8),
            value(bundle::Value::OPTIMIZER_STEP, 0, 0, 0, 0), bundle::F64);
  }
  for (uint32_t g = 0; g < uint32_t(summary.groups_size()); ++g) {
    int64_t elements = summary.groups(int(g)).elements();
    std::set<uint32_t> readers = devicesOf(g);
    const int64_t bytes = wholeOf(g).elements() * 4;
    for (uint32_t d : readers)
      region(d, parametersKey(g), bytes);
    if (!summary.groups(int(g)).trainable()) {
      for (uint32_t d : readers)
        state(d, region(d, parametersKey(g), bytes),
              value(bundle::Value::PARAMETERS, g, 0, 0, elements), bundle::F32);
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

std::vector<std::tuple<int64_t, int64_t, uint32_t>>
SerialBuilder::runs(const SerialShard &shard) const {
  std::vector<std::tuple<int64_t, int64_t, uint32_t>> list;
  for (uint32_t p : summary.groups(int(shard.group)).parameters()) {
    const auto &parameter = summary.parameters(int(p));
    int64_t begin = std::max(parameter.offset(), shard.begin),
            end = std::min(parameter.offset() + parameter.shape(0), shard.end);
    if (begin < end)
      list.push_back({begin, end, parameter.update_rule()});
  }
  return list;
}

void SerialBuilder::commit() {
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
        *reduce->mutable_full() =
            region(d, "gradients" + std::to_string(g), wholeOf(g).elements() * 4);
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
    for (auto [begin, end, rule] : runs(shard)) {
      auto *call = norm->add_calls();
      call->set_function(summary.norm_function());
      call->set_unit(-1);
      call->set_rows(end - begin);
      bundle::ArgumentBinder &binder = binders[shard.device];
      binder.bind(*call, gradients(shard, begin, end),
                  value(bundle::Value::REDUCED_GRADIENTS, shard.group, 0, begin, end));
      binder.bind(*call,
                  part(region(shard.device, "scalars", kScalarsBlock), kScalarsBytes, kSumsBytes),
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
      *reduce->mutable_region() =
          part(region(d, "scalars", kScalarsBlock), kScalarsBytes, kSumsBytes);
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
    auto bindTo = [&](const bundle::Region &where, const bundle::Value &what) {
      binders[d].bind(*call, where, what);
    };
    bindTo(part(region(d, "scalars", kScalarsBlock), kScalarsBytes, kSumsBytes),
           value(bundle::Value::GLOBAL_METRICS, 0, 0, 0, 0));
    bindTo(part(region(d, "scalars", kScalarsBlock), 0, kScalarsBytes),
           value(bundle::Value::STEP_SCALARS, 0, 0, 0, 0));
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
    for (auto [begin, end, rule] : runs(shard)) {
      auto *call = update->add_calls();
      call->set_function(summary.update_rules(int(rule)).function());
      call->set_unit(-1);
      call->set_rows((end - begin) / blockElements(summary.update_rules(int(rule))));
      auto bindTo = [&](const bundle::Region &where, const bundle::Value &what) {
        binders[shard.device].bind(*call, where, what);
      };
      bindTo(part(shardRegion(shard), (begin - shard.begin) * 4, (end - begin) * 4),
             value(bundle::Value::PARAMETERS, shard.group, 0, begin, end));
      bindTo(gradients(shard, begin, end),
             value(bundle::Value::REDUCED_GRADIENTS, shard.group, 0, begin, end));
      for (uint32_t m = 0; m < maxOptimizerStates(summary); ++m) {
        const StateLayout layout(summary, shard.group, m);
        const int64_t all = layout.begin(shard.begin), first = layout.begin(begin),
                      last = layout.end(end);
        bindTo(part(region(shard.device, momentsKey(m, shard), (layout.begin(shard.end) - all) * 4),
                    (first - all) * 4, (last - first) * 4),
               value(bundle::Value::MOMENTS, shard.group, m, first, last));
      }
      bindTo(part(region(shard.device, "scalars", kScalarsBlock), 0, kScalarsBytes),
             value(bundle::Value::STEP_SCALARS, 1, 0, 0, 0));
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
