#include "RealPrograms.h"

#include "RandomCases.h"

#include "zorse/Step/Plan.h"
#include "zorse/Step/WriteProgram.h"

#include <fstream>

using namespace zorse;
using namespace zorse::test;

Status test::makePrograms(RealCase &result, const step::Plan &plan, const step::Costs *costs,
                          double *stepTime) {
  step::LoweringOptions expand;
  expand.functions = &result.model.functions;
  expand.costs = costs;
  auto graph = step::lowerPlan(result.model.summary, plan, expand);
  if (graph.failed())
    return graph.error();
  if (stepTime)
    *stepTime = graph->stepTime;
  for (uint32_t device = 0; device < plan.devices.size(); ++device) {
    Result<bundle::Program> program = step::writeProgram(*graph, device, result.model.functions);
    if (program.failed())
      return program.error();
    bundle::Program serialised;
    serialised.ParseFromString(program->SerializeAsString());
    result.programs.push_back(std::move(serialised));
  }
  auto view = verify::readPlanView(step::writePlan(plan, result.model.summary));
  if (view.failed())
    return view.error();
  result.plan = *view;
  return Status::success();
}

static Result<RealCase> compiled(RandomCase drawn, uint32_t seed) {
  RealCase result;
  result.model = std::move(drawn.model);
  result.kind = drawn.kind;
  result.schedule = drawn.schedule;
  result.name =
      "seed " + std::to_string(seed) + ": " + drawn.kind + ", " + drawn.schedule + ", owners " +
      drawn.owners + ", " + std::to_string(result.model.summary.units_size()) + " units x " +
      std::to_string(drawn.plan.batch) + " samples, " + std::to_string(drawn.plan.cells.size()) +
      " cells on " + std::to_string(drawn.plan.devices.size()) + " devices";
  if (Status status = makePrograms(result, drawn.plan); status.failed())
    return status;
  return result;
}

Result<RealCase> test::realCase(uint32_t seed, const SyntheticModel *model) {
  return compiled(randomCase(seed, model), seed);
}

Result<RealCase> test::realLevelCase(uint32_t seed) { return compiled(levelCase(seed), seed); }

Result<SyntheticModel> test::modelOfBundle(const std::string &directory) {
  SyntheticModel model;
  std::ifstream summary(directory + "/summary.pb", std::ios::binary),
      functions(directory + "/functions.pb", std::ios::binary);
  if (!model.summary.ParseFromIstream(&summary) || !model.functions.ParseFromIstream(&functions))
    return userError(directory + ": expects a bundle with summary.pb and functions.pb");
  return model;
}
