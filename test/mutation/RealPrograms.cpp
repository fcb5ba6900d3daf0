#include "RealPrograms.h"

#include "zorse/Conversion/ExecConversion.h"
#include "zorse/Step/Plan.h"
#include "zorse/Step/RandomPlan.h"
#include "zorse/Step/StepGraph.h"

#include "mlir/IR/MLIRContext.h"

#include <fstream>

using namespace zorse;
using namespace zorse::test;

bool test::makePrograms(RealCase &result, const step::Plan &plan, std::string &error) {
  step::ExpandOptions expand;
  expand.bodies = &result.model.bodies;
  auto graph = step::expandPlan(result.model.summary, plan, error, expand);
  if (!graph)
    return false;
  conversion::ExecNames names;
  names.summary = &result.model.summary;
  names.bodies = &result.model.bodies;
  for (const auto &device : plan.devices)
    names.devices.push_back(device.name);
  for (uint32_t device = 0; device < plan.devices.size(); ++device) {
    mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
    auto module = conversion::stepToExec(&context, *graph, device, names);
    if (mlir::failed(module)) {
      error = "device " + std::to_string(device) + " cannot be converted";
      return false;
    }
    auto program = conversion::execToProgram(**module);
    if (mlir::failed(program)) {
      error = "device " + std::to_string(device) + " cannot be serialised";
      return false;
    }
    bundle::Program serialised;
    serialised.ParseFromString(program->SerializeAsString());
    result.programs.push_back(std::move(serialised));
  }
  auto view = verify::readPlanView(step::writePlan(plan, result.model.summary), error);
  if (!view)
    return false;
  result.plan = *view;
  return true;
}

std::optional<RealCase> test::realCase(uint32_t seed, const SyntheticModel *model, std::string &error) {
  RealCase result;
  SyntheticOptions options;
  options.seed = seed;
  options.units = 2 + int(seed % 5);
  options.tied = seed % 4 != 1;
  options.skip = seed % 3 != 1;
  options.frozen = seed % 2;
  options.moments = int(seed % 3);
  options.lossTerms = 1 + int(seed % 5 == 2);
  options.clipNorm = seed % 7 == 3 ? 0 : 1;
  options.skipNonFinite = seed % 7 != 3;
  result.model = model ? *model : makeModel(options);
  const int64_t batch = 1 + int64_t(seed * 5 % 9);
  const uint32_t devices = 1 + seed * 3 % 5;
  step::Plan plan = step::randomPlan(result.model.summary, batch, devices, seed);
  result.name = "seed " + std::to_string(seed) + ": " + std::to_string(result.model.summary.units_size()) + " units x " + std::to_string(batch) + " samples, " + std::to_string(plan.cells.size()) + " cells on " +
                std::to_string(devices) + " devices";
  if (!makePrograms(result, plan, error))
    return std::nullopt;
  return result;
}

std::optional<SyntheticModel> test::modelOfBundle(const std::string &directory, std::string &error) {
  SyntheticModel model;
  std::ifstream summary(directory + "/summary.pb", std::ios::binary), bodies(directory + "/bodies.pb", std::ios::binary);
  if (!model.summary.ParseFromIstream(&summary) || !model.bodies.ParseFromIstream(&bodies)) {
    error = directory + ": expects a bundle with summary.pb and bodies.pb";
    return std::nullopt;
  }
  return model;
}
