#include "Diagnostics.h"
#include "Phases.h"
#include "Planned.h"

#include "zorse/Dialect/Zorse/Resources.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Units/Units.h"
#include "zorse/runtime/Overwrites.h"

using namespace mlir;

namespace zorse::pipelines {

/// Adds the compiled functions and machine code of all targets.
static Status addTargets(ModuleOp module, bundle::BundleContents &contents) {
  for (auto target : module.getOps<TargetOp>()) {
    bundle::BundleContents::Target written;
    const std::optional<StringRef> object = bytesOf(target.getObjectAttr());
    if (!object || !parseBytes(target.getFunctions(), written.functions))
      return internalError("target " + target.getSymName().str() + " has not been compiled");
    written.kernels = object->str();
    contents.otherTargets.push_back(std::move(written));
  }
  contents.functions = std::move(contents.otherTargets.front().functions);
  contents.kernels = std::move(contents.otherTargets.front().kernels);
  contents.otherTargets.erase(contents.otherTargets.begin());
  return Status::success();
}

/// Adds the parts of the bundle that the module contains: all except weights.
static Status addModule(ModuleOp module, bundle::BundleContents &contents) {
  Planned planned(module);
  if (planned.status.failed())
    return planned.status;
  contents.programs = programsOf(module, kProgramsAttr);
  contents.hostStaged = programsOf(module, kStagedAttr);
  contents.devices = std::move(planned.devices);
  if (!contents.hostStaged.empty())
    for (size_t d = 0; d < contents.devices.size(); ++d)
      contents.devices[d].d2dGroup = planned.d2dGroups[d];
  contents.model = planned.summary.name();
  contents.plan = fileOf(module->getAttr(units::kPlanAttr))->text;
  contents.cluster = fileOf(module->getAttr(units::kClusterAttr))->text;
  if (planned.profile)
    contents.profile = planning::writeProfile(*planned.profile);
  contents.topology = planned.costs->topology();
  contents.summary = std::move(planned.summary);
  return addTargets(module, contents);
}

/// Adds the initial weights, or where they are.
static Status addWeights(const CompileOptions &options, const ImportedModel &imported,
                         bundle::BundleContents &contents) {
  if (!options.near.empty()) {
    Result<bundle::StoredWeights> stored = weightsOfBundle(options);
    if (stored.failed())
      return stored.error();
    contents.weights = std::move(stored->weights);
    contents.hub = std::move(stored->hub);
    return Status::success();
  }
  Result<std::vector<bundle::WeightData>> weights = collectWeights(imported, contents.summary);
  if (weights.failed())
    return weights.error();
  contents.weights = std::move(*weights);
  contents.hub.buffers = imported.hub.buffers;
  if (const auto &lora = imported.hub.lora)
    contents.hub.lora = bundle::Lora{lora->rank, lora->alpha, lora->targets, lora->fanInFanOut};
  return Status::success();
}

Result<std::string> writeBundle(const CompileOptions &options, const ImportedModel &imported) {
  bundle::BundleContents contents;
  contents.batch = options.batch;
  contents.sequence = options.sequence;
  contents.precision = options.precision.name();
  if (Status status = addModule(*imported.module, contents); status.failed())
    return status;
  if (Status status = addWeights(options, imported, contents); status.failed())
    return status;
  std::string taken;
  if (Status status = options.rebuild.empty() ? Status::success()
                                              : takeFromBundle(options, contents, taken);
      status.failed())
    return status;
  uint64_t bytes = 0;
  for (const bundle::WeightData &weight : contents.weights)
    bytes += weight.size + weight.bytes.size();
  bool reference = options.weights == Weights::Reference || options.weights == Weights::Later ||
                   (options.weights == Weights::Auto && bytes > kCopiedWeights);
  contents.weightMode = reference ? bundle::WeightMode::Reference : bundle::WeightMode::Copy;
  std::vector<runtime::NamedPath> files; // files of the model, which the bundle must not replace
  for (const bundle::WeightData &weight : contents.weights)
    if (!weight.file.empty() && (files.empty() || files.back().path != weight.file))
      files.push_back({"the data of " + options.model, weight.file});
  if (runtime::Status status =
          runtime::checkOverwrites(files, {{"--output", options.output, /*replaced=*/true}});
      status.failed())
    return status;
  Result<std::string> digest = bundle::writeBundle(contents, options.output);
  if (digest.failed())
    return digest.error();
  std::string remark = options.output + ", digest " + *digest + taken;
  if (options.weights == Weights::Later)
    remark += "; it will read " + megabytes(bytes) + " of weights from the model's files";
  else if (reference)
    remark += "; its " + megabytes(bytes) +
              " of weights stay in the model's files (--weights=embed makes it movable)";
  return remark;
}

} // namespace zorse::pipelines
