// All small changes of a strategy, except those of tilings (NeighborhoodTilings.cpp).

#include "Neighborhood.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::planning;

namespace {

void erase(std::vector<uint32_t> &from, uint32_t device) {
  from.erase(std::remove(from.begin(), from.end(), device), from.end());
}

} // namespace

void Neighborhood::visit(Kind kind, size_t worker, const Candidate &candidate) {
  now = &candidate;
  model = &context.modelOf(candidate.strategy);
  partitioner = &context.partitioner(worker, candidate.strategy.boundaryDenominator);
  enough = false;
  switch (kind) {
  case Orders:
    return orders();
  case Shares:
    return shares();
  case Rows:
    return rows();
  case Units:
    return units();
  case Devices:
    return devices();
  case Swaps:
    return swaps();
  case Structure:
    return structure();
  case MemoryOptimizations:
    return memoryOptimizations();
  case Tilings:
    return tilings();
  }
}

void Neighborhood::offer(Candidate candidate) {
  if (enough)
    return;
  if (candidate.strategy.boundaryDenominator > 1)
    setSamplesPerVariant(candidate.strategy);
  enough = !take(std::move(candidate));
}

void Neighborhood::orders() {
  for (const step::Schedule &schedule : schedules) {
    if (now->strategy.boundaryDenominator > 1 && schedule.kind != step::ScheduleKind::SteadyState)
      continue; // other schedules support one range of units per device
    Strategy strategy = now->strategy;
    strategy.schedule = schedule;
    offer(strategy);
  }
  for (ShardSizing rule :
       {ShardSizing::Equal, ShardSizing::Proportional, ShardSizing::ByFreeMemory}) {
    Strategy strategy = now->strategy;
    strategy.state = rule;
    offer(strategy);
  }
}

void Neighborhood::shares() {
  const Strategy &from = now->strategy;
  for (size_t p = 0; p < from.pipelines.size(); ++p)
    for (size_t s = 0; s < from.pipelines[p].stages.size(); ++s) {
      const auto &members = from.pipelines[p].stages[s].members;
      for (size_t a = 0; a < members.size(); ++a)
        for (size_t b = 0; b < members.size(); ++b)
          for (int64_t by = 1; by <= std::max<int64_t>(1, members[a].microBatchSize);
               by = by == 1 && members[a].microBatchSize > 1 ? members[a].microBatchSize
                                                             : members[a].microBatchSize + 1) {
            if (enough || a == b || members[a].samples <= by)
              continue;
            Strategy strategy = from;
            auto &changed = strategy.pipelines[p].stages[s].members;
            changed[a].samples -= by;
            changed[b].samples += by;
            offer(strategy);
          }
    }
  for (size_t p = 0; p < from.pipelines.size(); ++p)
    for (size_t q = 0; q < from.pipelines.size(); ++q)
      for (int64_t by : {1, 2, 4}) {
        if (enough || p == q || from.pipelines[p].samples <= by)
          continue;
        Strategy strategy = from;
        if (giveSamples(*model, strategy.pipelines[p], -by) &&
            giveSamples(*model, strategy.pipelines[q], by))
          offer(strategy);
      }
}

void Neighborhood::rows() {
  const Strategy &from = now->strategy;
  for (int64_t choice : model->rows()) {
    Strategy all = from;
    for (size_t p = 0; p < from.pipelines.size(); ++p)
      for (size_t s = 0; s < from.pipelines[p].stages.size(); ++s) {
        for (step::StageDevice &member : all.pipelines[p].stages[s].members)
          member.microBatchSize = choice;
        if (enough || from.pipelines[p].stages[s].members.front().microBatchSize == choice)
          continue;
        Strategy strategy = from;
        Stage &stage = strategy.pipelines[p].stages[s];
        for (step::StageDevice &member : stage.members)
          member.microBatchSize = choice;
        offer(strategy);
        if (stage.members.size() > 1 && shareAgain(*model, stage, from.pipelines[p].samples))
          offer(strategy);
      }
    offer(all);
  }
}

void Neighborhood::units() {
  const Strategy &from = now->strategy;
  for (size_t p = 0; p < from.pipelines.size(); ++p) {
    const Pipeline &pipeline = from.pipelines[p];
    // Moves units from one stage to the next and, if stages share units, to any other. Stages in
    // between shift their ranges.
    for (size_t a = 0; a + 1 < pipeline.stages.size(); ++a)
      for (size_t b = a + 1; b < (from.boundaryDenominator > 1 ? pipeline.stages.size() : a + 2);
           ++b)
        for (int32_t by : {-3, -2, -1, 1, 2, 3}) {
          if (enough || (b > a + 1 && std::abs(by) > 1))
            continue;
          Strategy strategy = from;
          auto &stages = strategy.pipelines[p].stages;
          for (size_t s = a; s < b; ++s)
            stages[s].unitEnd = stages[s + 1].unitBegin = stages[s].unitEnd + by;
          if (stages[a].unitEnd <= stages[a].unitBegin || stages[b].unitEnd <= stages[b].unitBegin)
            continue;
          offer(strategy);
          if (stages[a].members.size() + stages[b].members.size() > 2 &&
              shareAgain(*model, stages[a], pipeline.samples) &&
              shareAgain(*model, stages[b], pipeline.samples))
            offer(strategy);
        }
    if (from.boundaryDenominator == 1 || pipeline.stages.size() < 2)
      continue;
    for (double level : {0.1, 0.3}) {
      Strategy strategy = from;
      if (!enough && keepTimes(*model, groupsOf(pipeline), level, strategy.pipelines[p]))
        offer(strategy);
    }
  }
}

std::vector<Neighborhood::StagePosition> Neighborhood::positions() const {
  std::vector<StagePosition> list;
  for (size_t p = 0; p < now->strategy.pipelines.size(); ++p)
    for (size_t s = 0; s < now->strategy.pipelines[p].stages.size(); ++s)
      for (const step::StageDevice &member : now->strategy.pipelines[p].stages[s].members)
        list.push_back({member.device, p, s});
  for (uint32_t d : unusedDevices(context, now->strategy))
    list.push_back({d, kNowhere, 0});
  return list;
}

Neighborhood::Groups Neighborhood::allGroups() const {
  Groups groups;
  for (const Pipeline &pipeline : now->strategy.pipelines)
    groups.push_back(groupsOf(pipeline));
  return groups;
}

void Neighborhood::regroup(const Groups &groups) {
  Candidate refilled{now->strategy, now->inFlight}, cut = refilled;
  bool fills = !enough;
  for (size_t p = 0; p < groups.size() && fills; ++p)
    fills = refill(refilled.strategy.pipelines[p], groups[p]);
  if (fills)
    offer(std::move(refilled));
  bool cuts = !enough;
  for (size_t p = 0; p < groups.size() && cuts; ++p)
    cuts = cutAgain(*partitioner, *model, groups[p], p, cut);
  if (cuts)
    offer(std::move(cut));
}

bool Neighborhood::refill(Pipeline &pipeline, const std::vector<DeviceSet> &groups) const {
  if (groups.size() != pipeline.stages.size())
    return false;
  const std::vector<DeviceSet> had = groupsOf(pipeline);
  for (size_t s = 0; s < groups.size(); ++s) {
    Stage &stage = pipeline.stages[s];
    if (had[s].devices == groups[s].devices)
      continue;
    if (groups[s].devices.empty())
      return false;
    stage = makeStage(*model, groups[s].devices, stage.unitBegin, stage.unitEnd, pipeline.samples,
                      rowsOf(*model, stage));
  }
  return true;
}

void Neighborhood::recut(size_t p, const std::vector<DeviceSet> &groups) {
  Candidate candidate{now->strategy, now->inFlight};
  if (!enough && cutAgain(*partitioner, *model, groups, p, candidate))
    offer(std::move(candidate));
}

/// Whether moving either of two devices has the same effect.
bool Neighborhood::alike(const StagePosition &a, const StagePosition &b) const {
  return a.pipeline == b.pipeline && (a.pipeline == kNowhere || a.stage == b.stage) &&
         model->deviceTypeOf(a.device) == model->deviceTypeOf(b.device) &&
         model->nodeOf(a.device) == model->nodeOf(b.device);
}

/// Moves one device to every other stage, removes it, or adds an unused one.
void Neighborhood::devices() {
  const std::vector<StagePosition> list = positions();
  const Groups groups = allGroups();
  for (size_t i = 0; i < list.size() && !enough; ++i) {
    if (std::any_of(list.begin(), list.begin() + static_cast<long>(i),
                    [&](const StagePosition &other) { return alike(other, list[i]); }))
      continue;
    const StagePosition &from = list[i];
    Groups without = groups;
    if (from.pipeline != kNowhere) {
      erase(without[from.pipeline][from.stage].devices, from.device);
      if (std::all_of(without[from.pipeline].begin(), without[from.pipeline].end(),
                      [](const DeviceSet &deviceSet) { return deviceSet.devices.empty(); })) {
        dissolve(from.pipeline, from.device);
        continue;
      }
      regroup(without);
    }
    alone(without, from.device);
    for (size_t p = 0; p < groups.size(); ++p)
      for (size_t s = 0; s < groups[p].size() && !enough; ++s) {
        if (p == from.pipeline && s == from.stage)
          continue;
        Groups moved = without;
        std::vector<uint32_t> &to = moved[p][s].devices;
        to.insert(std::lower_bound(to.begin(), to.end(), from.device), from.device);
        regroup(moved);
      }
  }
}

/// Dissolves a pipeline of one device. The device joins each stage of the other pipelines, one at a
/// time.
void Neighborhood::dissolve(size_t gone, uint32_t device) {
  if (now->strategy.pipelines.size() < 2)
    return;
  for (size_t p = 0; p < now->strategy.pipelines.size(); ++p) {
    if (p == gone)
      continue;
    for (size_t s = 0; s <= now->strategy.pipelines[p].stages.size(); ++s) { // the last iteration
                                                                             // adds it to no stage
      Strategy strategy = now->strategy;
      Pipeline &pipeline = strategy.pipelines[p];
      if (s < pipeline.stages.size())
        pipeline.stages[s].members.push_back(
            {device, 0, pipeline.stages[s].members.front().microBatchSize});
      if (!giveSamples(*model, pipeline, strategy.pipelines[gone].samples))
        continue;
      strategy.pipelines.erase(strategy.pipelines.begin() + static_cast<long>(gone));
      offer(strategy);
    }
  }
}

/// Makes the device a separate pipeline, with samples in proportion to its speed.
void Neighborhood::alone(const Groups &without, uint32_t device) {
  if (without.size() >= context.effort().maxPipelines ||
      context.options.pipelines == without.size())
    return;
  auto speedOf = [&](uint32_t d) {
    return 1 / model->minPerSample(model->deviceTypeOf(d), 0, model->units());
  };
  double all = 0;
  for (uint32_t d : context.devices)
    all += speedOf(d);
  const auto samples = static_cast<int64_t>(
      static_cast<double>(context.problem.batch) * speedOf(device) / all + 0.5);
  for (size_t p = 0; p < without.size() && !enough; ++p) {
    if (samples < 1 || now->strategy.pipelines[p].samples <= samples)
      continue;
    Candidate candidate{now->strategy, now->inFlight};
    candidate.strategy.pipelines[p].samples -= samples;
    bool good = true;
    for (size_t q = 0; q < without.size() && good; ++q)
      good = cutAgain(*partitioner, *model, without[q], q, candidate);
    if (!good)
      continue;
    candidate.strategy.pipelines.push_back(
        {samples, {makeStage(*model, {device}, 0, model->units(), samples, 0)}});
    offer(std::move(candidate));
  }
}

/// Swaps two devices, or two stages.
void Neighborhood::swaps() {
  const std::vector<StagePosition> list = positions();
  const Groups groups = allGroups();
  for (size_t i = 0; i < list.size(); ++i)
    for (size_t j = i + 1; j < list.size() && !enough; ++j) {
      const StagePosition &a = list[i], &b = list[j];
      if ((a.pipeline == b.pipeline && (a.pipeline == kNowhere || a.stage == b.stage)) ||
          (model->deviceTypeOf(a.device) == model->deviceTypeOf(b.device) &&
           model->nodeOf(a.device) == model->nodeOf(b.device)))
        continue;
      Groups moved = groups;
      for (const StagePosition *place : {&a, &b})
        if (place->pipeline != kNowhere) {
          auto &devices = moved[place->pipeline][place->stage].devices;
          std::replace(devices.begin(), devices.end(), place->device,
                       place == &a ? b.device : a.device);
          std::sort(devices.begin(), devices.end());
        }
      regroup(moved);
    }
  for (size_t p = 0; p < groups.size(); ++p)
    for (size_t s = 0; s < groups[p].size(); ++s)
      for (size_t r = s + 1; r < groups[p].size() && !enough; ++r) {
        Groups moved = groups;
        std::swap(moved[p][s], moved[p][r]);
        regroup(moved);
      }
}

/// Merges and splits stages; makes a device a separate stage at every position; gives devices
/// several stages.
void Neighborhood::structure() {
  const Groups groups = allGroups();
  for (size_t p = 0; p < groups.size(); ++p) {
    std::vector<uint32_t> all;
    for (const DeviceSet &deviceSet : groups[p])
      all.insert(all.end(), deviceSet.devices.begin(), deviceSet.devices.end());
    std::sort(all.begin(), all.end());
    if (std::adjacent_find(all.begin(), all.end()) == all.end() &&
        now->strategy.boundaryDenominator == 1)
      for (size_t times : {2, 3, 4})
        for (bool folded : {false, true})
          repeat(p, groups[p], times, folded);
    for (size_t s = 0; s < groups[p].size(); ++s) {
      if (s + 1 < groups[p].size())
        join(p, s, groups[p]);
      divide(p, s, groups[p]);
    }
  }
  for (const StagePosition &place : positions())
    for (size_t p = 0; p < groups.size(); ++p) {
      if (enough || (place.pipeline != kNowhere && place.pipeline != p))
        continue;
      std::vector<DeviceSet> without = groups[p];
      if (place.pipeline == p)
        erase(without[place.stage].devices, place.device);
      for (size_t at = 0; at <= without.size(); ++at) {
        std::vector<DeviceSet> moved = without;
        moved.insert(moved.begin() + static_cast<long>(at), DeviceSet{{place.device}});
        recut(p, moved);
      }
    }
}

void Neighborhood::join(size_t p, size_t s, const std::vector<DeviceSet> &groups) {
  std::vector<DeviceSet> joined = groups;
  std::vector<uint32_t> &devices = joined[s].devices;
  devices.insert(devices.end(), joined[s + 1].devices.begin(), joined[s + 1].devices.end());
  std::sort(devices.begin(), devices.end());
  joined.erase(joined.begin() + static_cast<long>(s) + 1);
  recut(p, joined);
  // Keeps the units and tries all micro-batch sizes. The sizes that the partition chooses for a
  // large stage are not always the best.
  for (size_t rows = 0; rows < model->rows().size() &&
                        model->rows()[rows] <= now->strategy.pipelines[p].samples && !enough;
       ++rows) {
    Strategy strategy = now->strategy;
    Pipeline &pipeline = strategy.pipelines[p];
    const Stage &front = pipeline.stages[s], &behind = pipeline.stages[s + 1];
    Stage whole = makeStage(*model, joined[s].devices, front.unitBegin, behind.unitEnd,
                            pipeline.samples, rows);
    if (whole.members.empty())
      continue;
    pipeline.stages[s] = std::move(whole);
    pipeline.stages.erase(pipeline.stages.begin() + static_cast<long>(s) + 1);
    offer(strategy);
  }
}

/// Splits a stage of few devices in all possible ways.
void Neighborhood::divide(size_t p, size_t s, const std::vector<DeviceSet> &groups) {
  const std::vector<uint32_t> &all = groups[s].devices;
  if (all.size() < 2 || all.size() > context.effort().dividedMax)
    return;
  for (uint32_t half = 1; half + 1 < 1u << all.size() && !enough; ++half) {
    DeviceSet a, b;
    for (size_t i = 0; i < all.size(); ++i)
      (half >> i & 1 ? a : b).devices.push_back(all[i]);
    std::vector<DeviceSet> divided = groups;
    divided[s] = a;
    divided.insert(divided.begin() + static_cast<long>(s) + 1, b);
    recut(p, divided);
  }
}

/// Repeats the pipeline's groups, in a ring or back and forth, with equally many units each.
void Neighborhood::repeat(size_t p, const std::vector<DeviceSet> &groups, size_t times, bool wave) {
  const size_t stages = groups.size() * times;
  if (groups.size() < 2 || stages > static_cast<size_t>(model->units()))
    return;
  Strategy strategy = now->strategy;
  Pipeline &pipeline = strategy.pipelines[p];
  for (size_t rows = 0;
       rows < model->rows().size() && model->rows()[rows] <= pipeline.samples && !enough; ++rows) {
    pipeline.stages.clear();
    for (size_t s = 0; s < stages; ++s) {
      size_t lap = s / groups.size(), place = s % groups.size();
      const DeviceSet &group = groups[wave && lap % 2 ? groups.size() - 1 - place : place];
      auto at = [&](size_t i) {
        return static_cast<int32_t>(static_cast<size_t>(model->units()) * i / stages);
      };
      pipeline.stages.push_back(
          makeStage(*model, group.devices, at(s), at(s + 1), pipeline.samples, rows));
    }
    for (const step::Schedule &schedule : schedules)
      if (!schedule.splitBackward &&
          (schedule.kind != step::ScheduleKind::SteadyState || schedule.inFlightFactor == 1.5)) {
        strategy.schedule = schedule;
        offer(strategy);
      }
  }
}

/// Tries other memory optimizations for all devices of a class, of a stage, and for single devices:
/// none, or another place for activations or for state.
void Neighborhood::memoryOptimizations() {
  const auto &optimizations = memoryOptimizationsOf(context.problem, now->strategy);
  if (!optimizations.any())
    return;
  std::vector<std::vector<uint32_t>> sets(model->deviceTypes());
  for (const Pipeline &pipeline : now->strategy.pipelines)
    for (const Stage &stage : pipeline.stages) {
      sets.push_back(devicesOf(stage));
      for (uint32_t d : sets.back())
        sets[model->deviceTypeOf(d)].push_back(d);
    }
  if (context.effort().deviceMemoryOptimizations)
    for (const StagePosition &position : positions())
      if (position.pipeline != kNowhere)
        sets.push_back({position.device});
  for (std::vector<uint32_t> &set : sets) {
    std::sort(set.begin(), set.end());
    set.erase(std::unique(set.begin(), set.end()), set.end());
    auto tryChange = [&](auto change) {
      Strategy strategy = now->strategy;
      strategy.memoryOptimizations = optimizations;
      bool changed = false;
      for (uint32_t d : set) {
        MemoryOptimization optimization = optimizations.of(d);
        change(optimization);
        changed |= strategy.memoryOptimizations.set(d, optimization);
      }
      if (enough || !changed)
        return;
      offer(strategy);
      // The activations of four cells are in transfer to and from the host. With one row per cell,
      // they may fit.
      bool smaller = false;
      for (Pipeline &pipeline : strategy.pipelines)
        for (Stage &stage : pipeline.stages)
          for (step::StageDevice &member : stage.members)
            if (member.microBatchSize > 1 &&
                std::binary_search(set.begin(), set.end(), member.device) &&
                strategy.memoryOptimizations.of(member.device).activations ==
                    step::Activations::Offload) {
              member.microBatchSize = 1;
              smaller = true;
            }
      if (smaller && !enough)
        offer(strategy);
    };
    tryChange([](MemoryOptimization &optimization) { optimization = MemoryOptimization(); });
    for (step::Activations place :
         {step::Activations::Keep, step::Activations::Offload, step::Activations::Recompute})
      tryChange([&](MemoryOptimization &optimization) { optimization.activations = place; });
    for (StateOffload offload : {StateOffload::None, StateOffload::OptimizerStates,
                                 StateOffload::AllStates, StateOffload::CpuOptimizer})
      tryChange([&](MemoryOptimization &optimization) { optimization.state = offload; });
  }
}
