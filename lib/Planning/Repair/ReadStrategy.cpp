#include "ReadStrategy.h"

#include "ReadTiling.h"

#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <map>

using namespace zorse;
using namespace zorse::planning;

namespace {

/// Reads where a device has the state that only updates read. Groups of a device with other places
/// are a difference.
StateOffload readState(const step::Plan &plan, uint32_t device, uint32_t groups,
                       std::string &difference) {
  auto read = [&](uint32_t group) {
    const step::StatePlacement place = plan.placementOf(device, group);
    return place.update == step::MemoryTier::Host       ? StateOffload::CpuOptimizer
           : place.parameters == step::MemoryTier::Host ? StateOffload::AllStates
           : place.moments == step::MemoryTier::Host    ? StateOffload::OptimizerStates
                                                        : StateOffload::None;
  };
  const StateOffload first = read(0);
  for (uint32_t group = 1; group < groups; ++group)
    if (read(group) != first) {
      difference = "state of device '" + plan.devices[device].name + "' is in several memories";
      break;
    }
  return first;
}

/// Reads the memory optimizations. The most frequent one of all devices is the default.
MemoryOptimizations readOptimizations(const bundle::ModelSummary &summary, const step::Plan &plan,
                                      std::string &difference) {
  MemoryOptimizations read;
  if (plan.cells.empty() || plan.devices.empty())
    return read;
  const auto groups = static_cast<uint32_t>(summary.groups_size());
  read.reshardAfterForward = groups > 0 && plan.reshardAfterForward(0);
  std::vector<const step::Cell *> first(plan.devices.size(), nullptr);
  for (const step::Cell &cell : plan.cells) {
    if (!first[cell.device])
      first[cell.device] = &cell;
    if (first[cell.device]->activations != cell.activations)
      difference = "cells of device '" + plan.devices[cell.device].name +
                   "' handle activations differently";
  }
  std::map<step::Activations, size_t> used;
  for (const step::Cell *cell : first)
    if (cell)
      ++used[cell->activations];
  const step::Activations common =
      std::max_element(used.begin(), used.end(), [](const auto &a, const auto &b) {
        return a.second < b.second;
      })->first;
  using Key = std::pair<step::Activations, StateOffload>;
  std::vector<Key> keys;
  std::map<Key, size_t> counts;
  for (uint32_t d = 0; d < plan.devices.size(); ++d) {
    keys.push_back({first[d] ? first[d]->activations : common,
                    groups ? readState(plan, d, groups, difference) : StateOffload::None});
    ++counts[keys.back()];
  }
  const Key most = std::max_element(counts.begin(), counts.end(), [](const auto &a, const auto &b) {
                     return a.second < b.second;
                   })->first;
  read.defaultOptimization = {most.first, most.second};
  for (uint32_t d = 0; d < keys.size(); ++d)
    read.set(d, {keys[d].first, keys[d].second});
  return read;
}

} // namespace

Result<ReadStrategy> zorse::planning::readStrategy(const bundle::ModelSummary &summary,
                                                   const step::Plan &plan) {
  Result<ReadStrategy> read = readTiling(plan, summary.units_size());
  if (read.failed())
    return read;
  Strategy &strategy = read->strategy;
  std::string &difference = read->difference;
  strategy.schedule = plan.schedule;
  if (plan.schedule.kind == step::ScheduleKind::Explicit)
    difference = "the order of tasks is listed";
  strategy.state = !plan.owners.empty()                         ? ShardSizing::ByFreeMemory
                   : plan.defaultSharding == ShardSizing::Equal ? ShardSizing::Equal
                                                                : ShardSizing::Proportional;
  if (plan.owners.empty() && plan.defaultSharding == ShardSizing::FirstOnly)
    difference = "the first device of every group owns its state";
  strategy.memoryOptimizations = readOptimizations(summary, plan, difference);
  return read;
}
