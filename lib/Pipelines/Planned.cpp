#include "Planned.h"

#include "zorse/Bundle/DeviceKinds.h"
#include "zorse/Dialect/Zorse/Resources.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Summary/Summary.h"
#include "zorse/Units/Units.h"

using namespace mlir;

namespace zorse::pipelines {

std::vector<std::string> programsOf(ModuleOp module, StringRef attribute) {
  std::vector<std::string> programs;
  if (auto all = module->getAttrOfType<ArrayAttr>(attribute))
    for (Attribute program : all)
      programs.push_back(bytesOf(program).value_or("").str()); // a program that a text omits is
                                                               // empty
  return programs;
}

Result<planning::Cluster> clusterOf(ModuleOp module) {
  const std::optional<FileText> file = fileOf(module->getAttr(units::kClusterAttr));
  if (!file)
    return userError("expected " + units::kClusterAttr.str() +
                     ", found none: run --zorse-configure=cluster=FILE first");
  Result<planning::Cluster> cluster = planning::readCluster(file->text);
  if (cluster.failed())
    return userError(file->path + ": " + cluster.message());
  return cluster;
}

static Result<std::optional<planning::Profile>> profileOf(ModuleOp module) {
  std::optional<planning::Profile> all;
  if (auto files = module->getAttrOfType<ArrayAttr>(units::kProfilesAttr))
    for (Attribute attribute : files)
      if (const std::optional<FileText> file = fileOf(attribute)) {
        Result<planning::Profile> profile = planning::readProfile(file->text);
        if (profile.failed())
          return userError(file->path + ": " + profile.message());
        if (!all)
          all.emplace();
        planning::mergeProfile(*all, std::move(*profile));
      }
  return all;
}

Result<PlanInputs> readPlanInputs(ModuleOp module) {
  PlanInputs inputs;
  auto targets = module.getOps<TargetOp>();
  if (targets.empty() || !parseBytes(module->getAttr(kSummaryAttr), inputs.summary) ||
      !parseBytes((*targets.begin()).getFunctions(), inputs.library))
    return userError("expected " + kSummaryAttr.str() +
                     " and a zorse.target with functions: run --zorse-lower-functions first");
  Result<planning::Cluster> cluster = clusterOf(module);
  if (cluster.failed())
    return cluster.error();
  Result<std::vector<std::string>> assumed =
      planning::adaptToPrecision(*cluster, precisionOf(inputs.summary));
  if (assumed.failed())
    return assumed.error();
  Result<std::optional<planning::Profile>> profile = profileOf(module);
  if (profile.failed())
    return profile.error();
  inputs.clusterFile = fileOf(module->getAttr(units::kClusterAttr))->path;
  inputs.cluster = std::move(*cluster);
  inputs.assumptions = std::move(*assumed);
  inputs.profile = std::move(*profile);
  if (inputs.profile)
    for (std::string &line : planning::limitMemory(*inputs.profile, inputs.cluster))
      inputs.assumptions.push_back(std::move(line));
  return inputs;
}

Result<step::Plan> readPlan(const FileText &file, const PlanInputs &inputs) {
  Result<step::Plan> plan = step::readPlan(file.text, inputs.summary);
  Status status = plan.failed()
                      ? Status(plan.error())
                      : planning::applyCluster(*plan, inputs.cluster, productType(inputs.summary));
  if (status.failed())
    return userError(file.path + ": " + status.message());
  if (plan->communication == step::Communication::Eager)
    return userError(file.path +
                     ": send_protocol: \"eager\" is only for predictions by zorse-plan, "
                     "because a send of a compiled program waits for its receiver: "
                     "leave it out");
  return plan;
}

/// Returns the index of the module's target that a device runs. \param arch  architecture that the
/// cluster specifies; "": the first
static uint32_t targetOf(ModuleOp module, StringRef arch) {
  uint32_t index = 0;
  for (auto target : module.getOps<TargetOp>()) {
    if (target.getSymName() == arch)
      return index;
    ++index;
  }
  return 0; // a bundle only for simulations has one target
}

static Status readPlanned(ModuleOp module, Planned &planned) {
  Result<PlanInputs> inputs = readPlanInputs(module);
  if (inputs.failed())
    return inputs.error();
  static_cast<PlanInputs &>(planned) = std::move(*inputs);
  std::optional<FileText> file = fileOf(module->getAttr(units::kPlanAttr));
  if (!file)
    return userError("expected " + units::kPlanAttr.str() + ", found none: run --zorse-plan first");
  planned.file = file->path;
  Result<step::Plan> plan = readPlan(*file, planned);
  if (plan.failed())
    return plan.error();
  Result<planning::CostModel> costs =
      planning::CostModel::make(planned.summary, planned.cluster,
                                planned.profile ? &*planned.profile : nullptr, plan->devices);
  if (costs.failed())
    return userError(planned.clusterFile + ": " + costs.message());
  planned.costs = std::make_shared<const planning::CostModel>(std::move(*costs));
  planned.plan = std::move(*plan);
  const std::vector<int32_t> groups = planning::d2dGroups(planned.cluster);
  for (step::PlanDevice &device : planned.plan.devices)
    for (const planning::ClusterDevice &known : planned.cluster.devices)
      if (known.name == device.name) {
        device.hostStaged = deviceKindOf(known.kind).usesHostStaging();
        planned.d2dGroups.push_back(groups[size_t(&known - planned.cluster.devices.data())]);
        planned.devices.push_back({device.name, known.kind, static_cast<int>(known.threads),
                                   device.memory, targetOf(module, known.arch)});
      }
  return Status::success();
}

Planned::Planned(Operation *module) { status = readPlanned(cast<ModuleOp>(module), *this); }

} // namespace zorse::pipelines
