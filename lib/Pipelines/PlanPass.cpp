// zorse-plan: checks the user's plan, or searches one.
#include "Diagnostics.h"
#include "Planned.h"

#include "zorse/Dialect/Zorse/Resources.h"
#include "zorse/Pipelines/Passes.h"
#include "zorse/Planning/Repair.h"
#include "zorse/Summary/Summary.h"
#include "zorse/Units/Units.h"

#include <set>

namespace zorse::pipelines {
#define GEN_PASS_DEF_MAKEPLAN
#include "zorse/Pipelines/Passes.h.inc"
} // namespace zorse::pipelines

using namespace mlir;
using namespace zorse;
using namespace zorse::pipelines;

namespace {

using Wire = std::optional<step::GradientWire>;

/// \param rows  samples per step
/// \param wire  replaces that of the file
Result<step::Plan> givenPlan(const PlanInputs &inputs, const FileText &file, int64_t rows,
                             Wire wire) {
  Result<step::Plan> plan = readPlan(file, inputs);
  if (plan.failed())
    return plan;
  plan->gradientWire = wire.value_or(plan->gradientWire);
  if (plan->batch != rows)
    return userError(
        step::otherBatch(file.path, plan->batch * plan->samplesPerRow, rows * plan->samplesPerRow));
  if (Status status = step::validatePlan(*plan, inputs.summary); status.failed())
    return userError(file.path + ": " + status.message());
  return plan;
}

/// Whether activation recomputation of some unit class was not compiled, because the plan of that
/// compilation did not use it.
bool lacksRecomputation(const planning::Problem &problem) {
  std::set<std::string> compiled;
  for (const bundle::CompiledFunction &function : problem.functions->functions())
    compiled.insert(function.name());
  return llvm::any_of(problem.summary.classes(), [&](const bundle::UnitClass &unitClass) {
    constexpr auto kAgain = bundle::UnitFunction::RECOMPUTE;
    return functionOf(unitClass, kAgain).flops_per_row() > 0 &&
           !compiled.count(functionName(unitClass, kAgain));
  });
}

Result<planning::SearchResult> nearbyPlan(planning::Problem &problem, const std::string &near) {
  Result<step::Plan> old = step::readPlanFile(near, problem.summary);
  if (old.failed())
    return old.error();
  problem.communication = old->communication;
  problem.gradientWire = old->gradientWire;
  problem.optimizerStep = old->optimizerStep;
  Result<planning::SearchResult> found = planning::repairPlan(problem, *old, {});
  if (found.failed() && lacksRecomputation(problem))
    return userError(found.message() +
                     "\nthe bundle has no functions for activation recomputation, which would save "
                     "memory: compile the model with --compile-all-functions");
  return found;
}

/// \param near  path of a plan on other devices, which is adapted to these; empty: none
Result<step::Plan> searchedPlan(PlanInputs &inputs, int64_t rows, Wire wire,
                                const std::string &near) {
  // Programs use the workspace of their compiled functions. The planner uses the measured workspace
  // if it is larger, because libraries allocate additional memory.
  bundle::ModelSummary counted = inputs.summary;
  const planning::Profile *profile = inputs.profile ? &*inputs.profile : nullptr;
  if (profile)
    llvm::append_range(inputs.assumptions,
                       planning::raiseWorkspace(*profile, inputs.cluster, counted));
  Result<planning::CostModel> costs =
      planning::CostModel::make(counted, inputs.cluster, profile, {});
  if (costs.failed())
    return userError(inputs.clusterFile + ": " + costs.message());
  planning::Problem problem{counted, inputs.cluster, *costs, rows, &inputs.library};
  problem.gradientWire = wire.value_or(problem.gradientWire);
  Result<planning::SearchResult> found = near.empty() ? planning::searchPlan(problem, {})
                                                      : nearbyPlan(problem, near);
  if (found.failed())
    return userError(inputs.clusterFile + ": no plan was found: " + found.message());
  return std::move(found->plan);
}

struct MakePlanPass : pipelines::impl::MakePlanBase<MakePlanPass> {
  using MakePlanBase::MakePlanBase;

  void runOnOperation() final {
    markAllAnalysesPreserved(); // analyses of the module's operations are not affected
    if (failed(told(plan(getOperation()))))
      signalPassFailure();
  }

  Status plan(ModuleOp module) {
    Result<PlanInputs> inputs = readPlanInputs(module);
    if (inputs.failed())
      return inputs.error();
    auto batch = module->getAttrOfType<IntegerAttr>(units::kBatchAttr);
    if (!batch)
      return userError("expected " + units::kBatchAttr.str() +
                       ", found none: run --zorse-configure=batch=N first");
    const int64_t rows = batch.getInt() / samplesPerRow(inputs->summary);
    std::optional<FileText> file = fileOf(module->getAttr(units::kPlanAttr));
    Wire wire;
    if (!gradientWire.empty()) {
      const Result<step::GradientWire> named = step::gradientWireNamed(gradientWire);
      if (named.failed())
        return userError("gradient-wire: " + named.message());
      wire = *named;
    }
    Result<step::Plan> plan = file ? givenPlan(*inputs, *file, rows, wire)
                                   : searchedPlan(*inputs, rows, wire, near);
    if (plan.failed())
      return plan.error();
    module->setAttr(units::kPlanAttr,
                    fileAttr(&getContext(), {file ? file->path : inputs->clusterFile,
                                             step::writePlan(*plan, inputs->summary)}));
    std::string remark = counted(plan->cells.size(), "cell") + " on " +
                         counted(plan->devices.size(), "device") +
                         (file           ? ""
                          : near.empty() ? " (searched)"
                                         : " (adapted)");
    for (const std::string &line : inputs->assumptions)
      remark += "; " + line;
    emitRemark(module.getLoc(), remark);
    return Status::success();
  }
};

} // namespace
