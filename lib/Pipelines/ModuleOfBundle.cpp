// --near: the module of a bundle, to plan its model again for other devices.
#include "Diagnostics.h"
#include "Phases.h"
#include "Planned.h"

#include "zorse/Bundle/BundleReader.h"
#include "zorse/Bundle/DeviceKinds.h"
#include "zorse/Codegen/Codegen.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Planning/SelectDevices.h"
#include "zorse/Summary/Summary.h"
#include "zorse/Support/RegularFile.h"
#include "zorse/Units/Units.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringExtras.h"

#include <filesystem>

using namespace mlir;

namespace zorse::pipelines {

Status adoptNearBundle(CompileOptions &options) {
  Result<bundle::BundleView> view = bundle::readBundle(options.near);
  if (view.failed())
    return view.error();
  if (view->summary.device_groups_size() > 0)
    return userError(options.near +
                     ": groups of its devices divide its units (tensor parallelism), and only the "
                     "model can be divided for other groups: compile the ONNX file again");
  if (options.batch != 0 && options.batch != view->batch)
    return userError("--global-batch-size: " + options.near + " has steps of " +
                     std::to_string(view->batch) +
                     " samples, and other devices do not change it: "
                     "leave the option out, or compile the model again");
  if (options.cluster.empty())
    options.cluster = options.near + "/cluster.yaml";
  options.batch = view->batch;
  options.sequence = view->sequence;
  options.precision = precisionOf(view->summary);
  options.model = view->model; // names it in messages
  return Status::success();
}

/// Adds a target with its machine code.
static Status addTarget(ModuleOp module, const bundle::BundleView &view,
                        const bundle::FunctionLibrary &library) {
  std::string object;
  if (library.objects_size() > 0) {
    Result<bundle::KernelFile> kernels = bundle::readKernels(view, library);
    if (kernels.failed())
      return kernels.error();
    object = std::move(kernels->bytes);
  }
  MLIRContext *context = module.getContext();
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  const std::string &arch = library.arch();
  auto target =
      TargetOp::create(builder, module.getLoc(), builder.getStringAttr(arch),
                       bytesAttr(context, "functions_" + arch, bundle::serialize(library)),
                       bytesAttr(context, "object_" + arch, std::move(object)));
  target.getKernels().emplaceBlock();
  return Status::success();
}

/// Returns an error for a device that none of the bundle's targets has code for.
static Status checkTargets(const planning::Cluster &cluster, const bundle::BundleView &view,
                           const CompileOptions &options) {
  std::vector<std::string> compiled = {view.functions.arch()};
  for (const bundle::FunctionLibrary &target : view.otherTargets)
    compiled.push_back(target.arch());
  for (const planning::ClusterDevice &device : cluster.devices) {
    const bool cuda = !deviceKindOf(device.kind).hostCpus;
    const bool found = device.arch.empty() ? codegen::isCudaArch(compiled.front()) == cuda
                                           : llvm::is_contained(compiled, device.arch);
    if (!found)
      return userError(options.cluster + ": device '" + device.name + "' needs code for " +
                       (device.arch.empty() ? "its host's CPU" : device.arch) + "; " +
                       options.near + " has code for " + llvm::join(compiled, ", ") +
                       ": compile the model again for a cluster with such a device");
  }
  return Status::success();
}

/// Sets what the planner reads: cluster, measured times, batch, and a given plan.
static Status addInputs(ModuleOp module, const CompileOptions &options,
                        const bundle::BundleView &view) {
  std::string text;
  Result<planning::Cluster> cluster = planning::readClusterFile(options.cluster, &text);
  if (cluster.failed())
    return cluster.error();
  const Result<std::vector<uint32_t>> excluded = planning::devicesNamed(*cluster, options.exclude);
  if (excluded.failed())
    return userError("--exclude: " + excluded.message());
  if (Status status = planning::slowDown(*cluster, options.slowdown); status.failed())
    return userError("--slowdown: " + status.message());
  if (!excluded->empty()) {
    *cluster = planning::withoutDevices(std::move(*cluster), *excluded);
    if (cluster->devices.empty())
      return userError("--exclude: no device of " + options.cluster +
                       " is left; leave at least one");
  }
  if (!excluded->empty() || !options.slowdown.empty())
    text = planning::writeCluster(*cluster);
  if (Status status = checkTargets(*cluster, view, options); status.failed())
    return status;
  MLIRContext *context = module.getContext();
  auto add = [&](const std::string &path, SmallVector<Attribute> &to) {
    Result<std::string> read = readRegularFile(path, size_t(256) << 20); // each reader of the text
                                                                         // checks its own limits
    if (read.failed())
      return Status(read.error());
    to.push_back(fileAttr(context, {path, std::move(*read)}));
    return Status::success();
  };
  SmallVector<Attribute> profiles, plans;
  std::vector<std::string> measured = options.profiles;
  if (view.files.count("profile.json"))
    measured.insert(measured.begin(), options.near + "/profile.json");
  for (const std::string &path : measured)
    if (Status status = add(path, profiles); status.failed())
      return status;
  if (!options.plan.empty())
    if (Status status = add(options.plan, plans); status.failed())
      return status;
  Builder builder(context);
  if (!profiles.empty())
    module->setAttr(units::kProfilesAttr, builder.getArrayAttr(profiles));
  if (!plans.empty())
    module->setAttr(units::kPlanAttr, plans.front());
  module->setAttr(units::kClusterAttr, fileAttr(context, {options.cluster, text}));
  module->setAttr(units::kBatchAttr, builder.getI64IntegerAttr(view.batch));
  return Status::success();
}

std::optional<Model> modelOfBundle(const CompileOptions &options, MLIRContext &context) {
  Model model;
  ModuleOp module = ModuleOp::create(UnknownLoc::get(&context));
  model.imported.module = module;
  Result<bundle::BundleView> view = bundle::readBundle(options.near);
  Status status = view.failed() ? Status(view.error()) : addInputs(module, options, *view);
  if (status.succeeded())
    status = addTarget(module, *view, view->functions);
  for (size_t t = 0; status.succeeded() && t < view->otherTargets.size(); ++t)
    status = addTarget(module, *view, view->otherTargets[t]);
  if (failed(told(status)))
    return std::nullopt;
  module->setAttr(kSummaryAttr, bytesAttr(&context, "summary", bundle::serialize(view->summary)));
  model.training = view->summary.training();
  model.groupRows = view->summary.samples_per_row();
  emitRemark(UnknownLoc::get(&context),
             counted(size_t(view->functions.functions_size()), "compiled function") + " of " +
                 options.near);
  return model;
}

Result<bundle::StoredWeights> weightsOfBundle(const CompileOptions &options) {
  Result<bundle::BundleView> view = bundle::readBundle(options.near);
  if (view.failed())
    return view.error();
  Result<bundle::StoredWeights> stored = bundle::readWeightTable(*view);
  if (stored.failed())
    return stored;
  if (options.weights != Weights::Reference) {
    if (Status status = bundle::readStoredBytes(*view, stored->weights); status.failed())
      return status;
    return stored;
  }
  const std::string folder = std::filesystem::absolute(options.near).lexically_normal().string();
  for (bundle::WeightData &weight : stored->weights)
    if (view->files.count(weight.file))
      weight.file = folder + "/" + weight.file;
  return stored;
}

} // namespace zorse::pipelines
