#include "CompiledFunctions.h"

#include "zorse/Step/UnitTasks.h"
#include "zorse/Summary/Summary.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::planning;

CompiledFunctions::CompiledFunctions(const bundle::ModelSummary &summary,
                                     const bundle::FunctionLibrary *functions)
    : summary(summary), recomputing(static_cast<size_t>(summary.units_size()), 1) {
  if (!functions)
    return;
  auto exists = [&](const bundle::UnitInfo &unit, bundle::UnitFunction::Task task) {
    const bundle::UnitFunction *function = findFunction(classOf(summary, unit), task);
    return function && function->function() < static_cast<uint32_t>(functions->functions_size());
  };
  for (int32_t u = 0; u < summary.units_size(); ++u) {
    const bundle::UnitInfo &unit = summary.units(u);
    if (unit.splits())
      splits &= exists(unit, bundle::UnitFunction::INPUT_GRADIENTS) &&
                exists(unit, bundle::UnitFunction::WEIGHT_GRADIENTS);
    // Units without a saved block need no function for it.
    const bundle::AffineSize &saved = classOf(summary, unit).saved_bytes();
    if (saved.fixed() > 0 || saved.per_row() > 0)
      recomputing[static_cast<size_t>(u)] = exists(unit, bundle::UnitFunction::RECOMPUTE);
    all &= recomputing[static_cast<size_t>(u)] != 0;
  }
  all &= splits;
}

bool CompiledFunctions::canRun(const step::Plan &plan) const {
  if (all)
    return true;
  if (plan.schedule.splitBackward && !splits)
    return false;
  return std::none_of(plan.cells.begin(), plan.cells.end(), [&](const step::Cell &cell) {
    return step::recomputes(summary, cell, plan.schedule.splitBackward) &&
           !recomputes(cell.unitEnd - 1);
  });
}
