#include "zorse/Step/UnitTasks.h"

#include "zorse/Summary/Summary.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::step;

std::optional<UnitTask> zorse::step::unitTask(const bundle::ModelSummary &summary, int32_t unit,
                                              TaskKind kind, bool splitBackward) {
  if (kind == TaskKind::Forward)
    return UnitTask::Forward;
  const bundle::UnitInfo &info = summary.units(unit);
  bool inBackward = kind == TaskKind::Backward;
  if (!splitBackward)
    return inBackward ? std::optional(UnitTask::Backward) : std::nullopt;
  if (info.splits())
    return inBackward ? UnitTask::InputGradients : UnitTask::WeightGradients;
  const auto &values = info.values_in();
  const auto &parameters = info.parameters();
  bool onlyWeights = std::none_of(values.begin(), values.end(),
                                  [&](uint32_t v) { return summary.values(v).needs_gradient(); }) &&
                     std::any_of(parameters.begin(), parameters.end(),
                                 [&](uint32_t p) { return summary.parameters(p).trainable(); });
  return inBackward == onlyWeights ? std::nullopt : std::optional(UnitTask::Backward);
}

bool zorse::step::hasWork(const bundle::ModelSummary &summary, const Cell &cell, TaskKind kind,
                          bool splitBackward) {
  for (int32_t u = cell.unitBegin; u < cell.unitEnd; ++u)
    if (unitTask(summary, u, kind, splitBackward))
      return true;
  return false;
}

bool zorse::step::recomputes(const bundle::ModelSummary &summary, const Cell &cell,
                             bool splitBackward) {
  return cell.activations == Activations::Recompute &&
         hasWork(summary, cell, TaskKind::Backward, splitBackward);
}

std::optional<UnitTask> zorse::step::repeatedTask(const bundle::ModelSummary &summary,
                                                  const Cell &cell, int32_t unit) {
  if (unit + 1 < cell.unitEnd)
    return UnitTask::Forward;
  const bundle::AffineSize &saved = classOf(summary, summary.units(unit)).saved_bytes();
  return saved.fixed() > 0 || saved.per_row() > 0 ? std::optional(UnitTask::Recompute)
                                                  : std::nullopt;
}

const bundle::UnitInfo &zorse::step::unitInfo(const bundle::ModelSummary &summary, UnitRef unit) {
  if (unit.group < 0)
    return summary.units(unit.unit);
  const bundle::DeviceGroup &group = summary.device_groups(unit.group);
  const auto at = std::lower_bound(group.units().begin(), group.units().end(),
                                   static_cast<uint32_t>(unit.unit));
  return group.members(static_cast<int>(unit.member))
      .units(static_cast<int>(at - group.units().begin()));
}

const bundle::UnitFunction &zorse::step::unitFunction(const bundle::ModelSummary &summary,
                                                      UnitRef unit, UnitTask task) {
  static_assert(int(UnitTask::Forward) + 1 == bundle::UnitFunction::FORWARD &&
                int(UnitTask::Recompute) + 1 == bundle::UnitFunction::RECOMPUTE);
  return functionOf(summary, unitInfo(summary, unit),
                    static_cast<bundle::UnitFunction::Task>(int(task) + 1));
}
