// Assigns compiled functions of a target to the summary's functions.
#include "zorse/Units/Units.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Summary/Summary.h"

using namespace zorse;
using namespace zorse::units;

void units::assignFunctions(bundle::ModelSummary &summary,
                            const std::function<FunctionSizes(llvm::StringRef)> &sizes) {
  for (bundle::UnitClass &unitClass : *summary.mutable_classes())
    for (bundle::UnitFunction &function : *unitClass.mutable_functions()) {
      const FunctionSizes known = sizes(functionName(unitClass, function.task()));
      function.set_function(known.function);
      if (known.function != UINT32_MAX) // a function that is not compiled keeps its previous values
        *function.mutable_workspace() = known.workspace;
    }
  if (summary.counts_size() > 0)
    summary.set_count_function(int32_t(sizes("counts").function));
  if (summary.has_logits()) {
    const bundle::UnitClass &unitClass =
        classOf(summary, summary.units(int(summary.logits().unit())));
    summary.mutable_logits()->set_function(
        sizes(unitClass.name() + "." + stringifyTask(Task::Logits).str()).function);
  }
  for (bundle::UpdateRule &rule : *summary.mutable_update_rules()) {
    const FunctionSizes known = sizes("update." + rule.name());
    rule.set_function(known.function);
    *rule.mutable_workspace() = known.workspace;
  }
  summary.set_norm_function(sizes("norm").function);
  summary.set_sum_loss_function(sizes("sum_loss").function);
  summary.set_clip_and_check_function(sizes("decide").function);
  if (llvm::any_of(summary.groups(), [](const bundle::FlatGroupInfo &group) {
        return group.param_dtype() != bundle::ELEMENT_TYPE_UNSPECIFIED;
      }))
    summary.set_cast_function(sizes("cast").function);
  if (zorse::scalesLoss(summary))
    summary.set_scale_loss_gradient_function(sizes("scale_seeds").function);
}
