#include "zorse/Step/UnitTasks.h"

#include "bundle.pb.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::step;

std::optional<UnitTask> zorse::step::unitTask(const bundle::ModelSummary &summary, int32_t unit, TaskKind kind, bool splitBackward) {
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
  bool onlyWeights = std::none_of(values.begin(), values.end(), [&](uint32_t v) { return summary.values(v).needs_gradient(); }) &&
                     std::any_of(parameters.begin(), parameters.end(), [&](uint32_t p) { return summary.parameters(p).trainable(); });
  return inBackward == onlyWeights ? std::nullopt : std::optional(UnitTask::Backward);
}

bool zorse::step::hasWork(const bundle::ModelSummary &summary, const Cell &cell, TaskKind kind, bool splitBackward) {
  for (int32_t u = cell.unitBegin; u < cell.unitEnd; ++u)
    if (unitTask(summary, u, kind, splitBackward))
      return true;
  return false;
}

bool zorse::step::recomputes(const bundle::ModelSummary &summary, const Cell &cell, bool splitBackward) {
  return cell.activations == Activations::Recompute && hasWork(summary, cell, TaskKind::Backward, splitBackward);
}

std::optional<UnitTask> zorse::step::repeatedTask(const bundle::ModelSummary &summary, const Cell &cell, int32_t unit) {
  if (unit + 1 < cell.unitEnd)
    return UnitTask::Forward;
  const bundle::Extent &saved = summary.units(unit).saved_bytes();
  return saved.fixed() > 0 || saved.per_row() > 0 ? std::optional(UnitTask::Recompute) : std::nullopt;
}

UnitFunction zorse::step::unitFunction(const bundle::UnitInfo &unit, UnitTask task) {
  switch (task) {
  case UnitTask::Backward:
    return {unit.backward_body(), unit.backward_workspace(), unit.backward_flops_per_row(), unit.backward_bytes_per_row()};
  case UnitTask::InputGradients:
    return {unit.input_gradient_body(), unit.input_gradient_workspace(), unit.input_gradient_flops_per_row(), unit.input_gradient_bytes_per_row()};
  case UnitTask::WeightGradients:
    return {unit.weight_gradient_body(), unit.weight_gradient_workspace(), unit.weight_gradient_flops_per_row(),
            unit.weight_gradient_bytes_per_row()};
  case UnitTask::Recompute:
    return {unit.recompute_body(), unit.recompute_workspace(), unit.recompute_flops_per_row(), unit.recompute_bytes_per_row()};
  case UnitTask::Forward:
    break;
  }
  return {unit.forward_body(), unit.forward_workspace(), unit.forward_flops_per_row(), unit.forward_bytes_per_row()};
}
