#include "zorse/Pipelines/DivisibleOnnx.h"

#include "zorse/Codegen/PrivateDirectory.h"

#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

using namespace zorse;
using namespace zorse::pipelines;

/// Returns the parts of a plan that zorse-divide-by-plan reads: groups, and their units as cells.
static llvm::json::Value planOf(const std::vector<planning::UnitGroup> &groups) {
  llvm::json::Array list, cells;
  for (const planning::UnitGroup &group : groups) {
    llvm::json::Array devices, shares;
    for (double share : group.shares) {
      devices.push_back(std::to_string(devices.size()));
      shares.push_back(share);
    }
    list.push_back(llvm::json::Object{
        {"name", group.name}, {"devices", std::move(devices)}, {"shares", std::move(shares)}});
    for (uint32_t unit : group.units)
      cells.push_back(
          llvm::json::Object{{"units", llvm::json::Array{unit, unit + 1}}, {"device", group.name}});
  }
  return llvm::json::Object{{"groups", std::move(list)}, {"cells", std::move(cells)}};
}

DivisibleOnnx::DivisibleOnnx(CompileOptions given) : options(std::move(given)) {
  options.quiet = true;
  options.tensorParallelSize = 1;
  options.weights = Weights::Later;
}

Result<planning::DividedModel>
DivisibleOnnx::divide(const std::vector<planning::UnitGroup> &groups) {
  llvm::Expected<std::unique_ptr<codegen::PrivateDirectory>> folder =
      codegen::PrivateDirectory::create("zorse-divide");
  if (!folder)
    return userError(llvm::toString(folder.takeError()));
  options.plan = (*folder)->path() + "/plan.json";
  {
    std::error_code failure;
    llvm::raw_fd_ostream file(options.plan, failure);
    file << planOf(groups);
    file.close();
    if (failure || file.has_error())
      return userError(options.plan + ": cannot be written");
  }
  planning::DividedModel divided;
  divided.functions.emplace();
  if (!summarizeModel(options, divided.summary, *divided.functions))
    return userError("");
  return divided;
}
