#include "Tables.h"

#include "PlanLowering.h"

#include "LaunchPointers.h"

#include "zorse/Step/UnitTasks.h"

#include <algorithm>

using namespace zorse::step;

std::shared_ptr<LoweringTables>
zorse::step::makeLoweringTables(const bundle::ModelSummary &summary,
                                const bundle::FunctionLibrary *functions, const Costs *costs) {
  return std::make_shared<LoweringTables>(summary, functions, costs);
}

CellMemory zorse::step::cellMemory(LoweringTables &tables, const Cell &cell, bool splitBackward) {
  const CellTemplate &shape = tables.of(cell).shapes(splitBackward).of(cell);
  return {shape.residentBytes, shape.deferred, shape.transientBytes, alignRegion(shape.workspace)};
}

LoweringTables::LoweringTables(const bundle::ModelSummary &summary,
                               const bundle::FunctionLibrary *functions, const Costs *costs)
    : summary(summary), liveAt(valuesAtCuts(summary, /*gradients=*/false)),
      gradsAt(valuesAtCuts(summary, /*gradients=*/true)), traffic(costs->network()),
      spareArrays(std::make_unique<LoweringArrays>()), costs(costs),
      hasFunctions(functions != nullptr), shapesOf{{*this, false}, {*this, true}} {
  for (const bundle::UnitInfo &unit : summary.units())
    groupsOf.push_back(groupsOfUnit(summary, unit));
  for (int b = 0; functions && b < functions->functions_size(); ++b) {
    std::vector<uint64_t> keys;
    for (const bundle::FunctionArgument &argument : functions->functions(b).arguments())
      keys.push_back(static_cast<uint64_t>(argument.kind()) << 32 | argument.index());
    std::sort(keys.begin(), keys.end());
    functionSlots.push_back(std::move(keys));
    findUsed(functions->functions(b));
  }
  calls = UnitCalls(*this);
  for (const bundle::DeviceGroup &group : summary.device_groups()) {
    members.emplace_back();
    for (const bundle::DeviceGroup::Member &member : group.members()) {
      auto own = std::make_unique<bundle::ModelSummary>(summary);
      own->clear_device_groups();
      for (int i = 0; i < group.units_size(); ++i)
        *own->mutable_units(static_cast<int>(group.units(i))) = member.units(i);
      members.back().push_back(std::unique_ptr<LoweringTables>(new LoweringTables(
          std::move(own), functions, costs, static_cast<int32_t>(members.size()) - 1,
          static_cast<uint32_t>(members.back().size()))));
    }
  }
}

LoweringTables::LoweringTables(std::unique_ptr<bundle::ModelSummary> own,
                               const bundle::FunctionLibrary *functions, const Costs *costs,
                               int32_t group, uint32_t member)
    : LoweringTables(*own, functions, costs) {
  ownSummary = std::move(own);
  this->group = group;
  this->member = member;
}

void LoweringTables::findUsed(const bundle::CompiledFunction &function) {
  auto &segments = segmentSlots.emplace_back();
  for (const std::vector<bool> &used : bundle::argumentsOfSegments(function)) {
    std::vector<uint64_t> &keys = segments.emplace_back();
    for (int a = 0; a < function.arguments_size(); ++a)
      if (used[static_cast<size_t>(a)])
        keys.push_back(static_cast<uint64_t>(function.arguments(a).kind()) << 32 |
                       function.arguments(a).index());
    std::sort(keys.begin(), keys.end());
  }
}

bool LoweringTables::segmentHas(uint32_t function, uint32_t segment, bundle::ArgumentKind kind,
                                uint32_t index) const {
  if (!hasFunctions || function >= segmentSlots.size() || segmentSlots[function].empty())
    return true;
  if (segment >= segmentSlots[function].size())
    return false;
  const std::vector<uint64_t> &used = segmentSlots[function][segment];
  return std::binary_search(used.begin(), used.end(), static_cast<uint64_t>(kind) << 32 | index);
}

bool LoweringTables::contributes(int32_t unit, uint32_t group) const {
  const bundle::UnitInfo &info = summary.units(unit);
  for (int p = 0; p < info.parameters_size(); ++p)
    if (summary.parameters(static_cast<int>(info.parameters(p))).group() == group)
      return std::find(info.other_contributes().begin(), info.other_contributes().end(),
                       static_cast<uint32_t>(p)) == info.other_contributes().end();
  return false;
}

LoweringTables::~LoweringTables() = default;

bool LoweringTables::functionHas(uint32_t function, bundle::ArgumentKind kind,
                                 uint32_t index) const {
  if (!hasFunctions)
    return true;
  if (function >= functionSlots.size())
    return function == UINT32_MAX; // a part of a split backward that is not in this library: assume
                                   // that all arguments exist
  const uint64_t key = static_cast<uint64_t>(kind) << 32 | index;
  return std::binary_search(functionSlots[function].begin(), functionSlots[function].end(), key);
}

const TaskSeconds &LoweringTables::seconds(const Cell &cell, const CellTemplate &shape,
                                           bool splitBackward) {
  auto &classes = times[splitBackward];
  const uint32_t deviceClass = costs->deviceClass(cell.device);
  if (classes.size() <= deviceClass)
    classes.resize(deviceClass + 1);
  auto &ofClass = classes[deviceClass];
  if (ofClass.size() <= shape.index)
    ofClass.resize(shape.index + 1);
  std::unique_ptr<TaskSeconds> &found = ofClass[shape.index];
  if (found)
    return *found;
  found = std::make_unique<TaskSeconds>();
  auto seconds = [&](int32_t u, UnitTask task) {
    return costs->unit(cell.device, {u, group, member}, task, cell.rows());
  };
  for (int kind = 0; kind < 3; ++kind)
    for (int32_t u = cell.unitBegin; u < cell.unitEnd; ++u)
      if (std::optional<UnitTask> task =
              unitTask(summary, u, static_cast<TaskKind>(kind), splitBackward)) {
        found->seconds[kind] += seconds(u, *task);
        found->works[kind] = true;
      }
  if (recomputes(summary, cell, splitBackward))
    for (int32_t u = cell.unitBegin; u < cell.unitEnd; ++u)
      if (std::optional<UnitTask> task = repeatedTask(summary, cell, u))
        found->seconds[1] += seconds(u, *task);
  return *found;
}
