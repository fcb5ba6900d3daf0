#include "Tables.h"

#include "PlanLowering.h"

#include "zorse/Step/UnitTasks.h"

#include <algorithm>

using namespace zorse::step;

std::shared_ptr<LoweringTables>
zorse::step::makeLoweringTables(const bundle::ModelSummary &summary,
                                const bundle::FunctionLibrary *functions, const Costs *costs) {
  return std::make_shared<LoweringTables>(summary, functions, costs);
}

CellMemory zorse::step::cellMemory(LoweringTables &tables, const Cell &cell, bool splitBackward) {
  const CellTemplate &shape = tables.shapes(splitBackward).of(cell);
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
  }
  calls = UnitCalls(*this);
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
  for (int kind = 0; kind < 3; ++kind)
    for (int32_t u = cell.unitBegin; u < cell.unitEnd; ++u)
      if (std::optional<UnitTask> task =
              unitTask(summary, u, static_cast<TaskKind>(kind), splitBackward)) {
        found->seconds[kind] += costs->unit(cell.device, u, *task, cell.rows());
        found->works[kind] = true;
      }
  if (recomputes(summary, cell, splitBackward))
    for (int32_t u = cell.unitBegin; u < cell.unitEnd; ++u)
      if (std::optional<UnitTask> task = repeatedTask(summary, cell, u))
        found->seconds[1] += costs->unit(cell.device, u, *task, cell.rows());
  return *found;
}
