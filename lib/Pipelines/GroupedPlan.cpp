#include "Phases.h"
#include "Planned.h"

#include "zorse/Pipelines/DivisibleOnnx.h"
#include "zorse/Planning/TensorParallel.h"
#include "zorse/Summary/Summary.h"
#include "zorse/Units/Units.h"

using namespace mlir;

namespace zorse::pipelines {

Result<std::optional<std::string>> planWithGroups(const CompileOptions &options, ModuleOp module) {
  Result<PlanInputs> inputs = readPlanInputs(module);
  if (inputs.failed())
    return inputs.error();
  Result<planning::CostModel> costs = planning::CostModel::make(
      inputs->summary, inputs->cluster, inputs->profile ? &*inputs->profile : nullptr, {});
  if (costs.failed())
    return userError(inputs->clusterFile + ": " + costs.message());
  planning::Problem problem{inputs->summary, inputs->cluster, *costs,
                            options.batch / samplesPerRow(inputs->summary), &inputs->library};
  if (!options.gradientWire.empty())
    if (const Result<step::GradientWire> wire = step::gradientWireNamed(options.gradientWire);
        !wire.failed())
      problem.gradientWire = *wire;
  DivisibleOnnx model(options);
  Result<planning::GroupedResult> found = planning::searchWithGroups(
      problem, planning::SearchOptions(), options.tensorParallelSize, model);
  if (found.failed())
    return userError(inputs->clusterFile + ": no plan was found: " + found.message());
  if (!found->model)
    return std::optional<std::string>();
  return std::optional(step::writePlan(found->best.plan, found->model->summary));
}

} // namespace zorse::pipelines
