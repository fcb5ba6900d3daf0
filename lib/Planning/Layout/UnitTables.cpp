#include "UnitTables.h"

#include "CompiledFunctions.h"

#include "zorse/Step/UnitTasks.h"
#include "zorse/Summary/StateLayout.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::planning;
using step::TaskKind;
using step::UnitTask;

namespace {

constexpr int64_t kDirectRows = 512;

} // namespace

UnitTables::UnitTables(const bundle::ModelSummary &summary,
                       const bundle::FunctionLibrary *functions) {
  for (bool gradients : {false, true})
    for (const std::vector<uint32_t> &values : valuesAtCuts(summary, gradients)) {
      double bytes = 0;
      for (uint32_t v : values)
        bytes += static_cast<double>(summary.values(static_cast<int>(v)).bytes_per_row());
      (gradients ? backwardAt : forwardAt).push_back(bytes);
    }
  for (const auto &group : summary.groups()) {
    GroupTable table;
    table.elements = group.elements();
    table.elementSize = elementBytes(group.type());
    table.trainable = group.trainable();
    if (const bundle::UpdateRule *rule = ruleOf(summary, group))
      table.stateBytes = stateBytesPerElement(*rule, group.type());
    table.computeSize = elementBytes(computeType(group));
    groupTable.push_back(table);
  }
  for (const auto &unit : summary.units()) {
    groupsOfUnits.push_back(zorse::groupsOfUnit(summary, unit));
    anySplits |= unit.splits();
  }
  anySplits = anySplits && CompiledFunctions(summary, functions).splitBackward();
}

void UnitTables::groupsOf(int32_t unitBegin, int32_t unitEnd, std::vector<uint32_t> &result) const {
  result.clear();
  for (int32_t u = unitBegin; u < unitEnd; ++u)
    result.insert(result.end(), groupsOfUnit(u).begin(), groupsOfUnit(u).end());
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
}

UnitTimes::UnitTimes(const Problem &problem, const UnitTables &tables)
    : problem(problem), tables(tables) {
  for (uint32_t d = 0; d < problem.cluster.devices.size(); ++d) {
    uint32_t c = problem.costs.deviceClass(d);
    if (c >= deviceOfClass.size())
      deviceOfClass.resize(c + 1, 0);
    deviceOfClass[c] = d;
  }
  known.resize(deviceOfClass.size());
  large.resize(deviceOfClass.size());
}

const UnitTimes::Prefix &UnitTimes::of(uint32_t deviceClass, int64_t rows) {
  std::unique_ptr<Prefix> *place = nullptr;
  if (rows < kDirectRows) {
    auto &list = known[deviceClass];
    if (list.size() <= static_cast<size_t>(rows))
      list.resize(static_cast<size_t>(rows) + 1);
    place = &list[static_cast<size_t>(rows)];
  } else {
    auto &list = large[deviceClass];
    auto it = std::find_if(list.begin(), list.end(),
                           [&](const auto &entry) { return entry.first == rows; });
    if (it == list.end()) {
      list.push_back({rows, nullptr});
      it = std::prev(list.end());
    }
    place = &it->second;
  }
  if (*place)
    return **place;
  auto prefix = std::make_unique<Prefix>();
  uint32_t device = deviceOfClass[deviceClass];
  auto sums = [&](std::vector<double> &list, auto seconds) {
    list.push_back(0);
    for (int32_t u = 0; u < tables.units(); ++u)
      list.push_back(list.back() + seconds(u));
  };
  auto task = [&](int32_t u, TaskKind kind, bool split) {
    const std::optional<UnitTask> of = step::unitTask(problem.summary, u, kind, split);
    return of ? problem.costs.unit(device, u, *of, rows) : 0.0;
  };
  const bool split = tables.canSplit();
  // Only a cell's last unit recomputes less than its whole forward; StrategySimulator accounts for
  // that.
  const bool recomputes = problem.memoryOptimizations.defaultOptimization.activations ==
                          step::Activations::Recompute;
  auto again = [&](int32_t u) {
    return recomputes ? problem.costs.unit(device, u, UnitTask::Recompute, rows) : 0.0;
  };
  sums(prefix->forward, [&](int32_t u) { return task(u, TaskKind::Forward, false); });
  sums(prefix->backward, [&](int32_t u) { return task(u, TaskKind::Backward, false) + again(u); });
  sums(prefix->inputGradients,
       [&](int32_t u) { return task(u, TaskKind::Backward, split) + again(u); });
  sums(prefix->weightGradients, [&](int32_t u) { return task(u, TaskKind::Weights, split); });
  *place = std::move(prefix);
  return **place;
}
