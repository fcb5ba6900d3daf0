// Classes and functions of synthetic summaries, by unit.
#pragma once

#include "zorse/Summary/Summary.h"

namespace zorse::test {

/// The class of a unit; added if missing.
inline bundle::UnitClass &mutableClass(bundle::ModelSummary &summary, int unit) {
  while (summary.classes_size() <= static_cast<int>(summary.units(unit).class_id()))
    summary.add_classes();
  bundle::UnitClass &unitClass =
      *summary.mutable_classes(static_cast<int>(summary.units(unit).class_id()));
  unitClass.set_name("class" + std::to_string(summary.units(unit).class_id()));
  return unitClass;
}

/// A function of the class of a unit; added if missing.
inline bundle::UnitFunction &mutableFunction(bundle::ModelSummary &summary, int unit,
                                             bundle::UnitFunction::Task task) {
  bundle::UnitClass &unitClass = mutableClass(summary, unit);
  for (bundle::UnitFunction &function : *unitClass.mutable_functions())
    if (function.task() == task)
      return function;
  bundle::UnitFunction &added = *unitClass.add_functions();
  added.set_task(task);
  return added;
}

inline bundle::UnitFunction &addFunction(bundle::ModelSummary &summary, int unit,
                                         bundle::UnitFunction::Task task, double flops,
                                         double bytes = 0) {
  bundle::UnitFunction &function = mutableFunction(summary, unit, task);
  function.set_flops_per_row(flops);
  function.set_bytes_per_row(bytes);
  return function;
}

/// The compiled function of a unit's function.
inline uint32_t functionIndexOf(const bundle::ModelSummary &summary, const bundle::UnitInfo &unit,
                                bundle::UnitFunction::Task task) {
  return functionOf(summary, unit, task).function();
}

/// Adds the update rules 0, with weight decay, and 1, without.
/// \param block  elements of the blocks that updates treat as a whole: the states then have one
/// entry per block and one per element in turn; 0: there are none
inline void addUpdateRules(bundle::ModelSummary &summary, uint32_t decay, uint32_t plain,
                           uint32_t states = 0, int64_t block = 0) {
  for (uint32_t function : {decay, plain}) {
    bundle::UpdateRule &rule = *summary.add_update_rules();
    rule.set_name(function == decay ? "decay" : "plain");
    rule.set_function(function);
    rule.set_learning_rate_scale(1);
    rule.set_weight_decay(function == decay ? 0.1 : 0);
    for (uint32_t state = 0; state < states; ++state)
      rule.add_states()->set_entries(block && state % 2 ? block : 1);
    if (block)
      rule.add_block(block);
  }
}

} // namespace zorse::test
