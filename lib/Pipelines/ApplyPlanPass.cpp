// zorse-apply-plan: a model and a plan become the split programs, as text.
#include "AssignBodies.h"
#include "TrainPipeline.h"

#include "zorse/Conversion/ExecConversion.h"
#include "zorse/Dialect/Exec/Exec.h"
#include "zorse/Dialect/Zorse/Resources.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Pipelines/Passes.h"
#include "zorse/Step/Plan.h"
#include "zorse/Step/WriteProgram.h"

#include "mlir/Pass/Pass.h"

using namespace mlir;

namespace zorse::pipelines {

#define GEN_PASS_REGISTRATION
#include "zorse/Pipelines/Passes.h.inc"

namespace {

struct ApplyPlanPass : PassWrapper<ApplyPlanPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ApplyPlanPass)

  ApplyPlanPass() = default;
  ApplyPlanPass(const ApplyPlanPass &other) : PassWrapper(other) {}

  Option<std::string> plan{*this, "plan", llvm::cl::desc("plan.json: the tiling, devices, owners and schedule")};
  Option<std::string> optimizer{*this, "optimizer", llvm::cl::desc("adamw (default), adam or sgd"), llvm::cl::init("adamw")};
  Option<double> clip{*this, "clip", llvm::cl::desc("global gradient norm, 0: off"), llvm::cl::init(1.0)};
  Option<step::ExpandUntil> until{
      *this, "until", llvm::cl::desc("Stop earlier and print what is known by then"), llvm::cl::init(step::ExpandUntil::All),
      llvm::cl::values(
          clEnumValN(step::ExpandUntil::Stages, "stages", "tasks of cells, inputs, transfers between cells"),
          clEnumValN(step::ExpandUntil::Offload, "offload", "and parameters as they come: from hosts, and gathered"),
          clEnumValN(step::ExpandUntil::Collectives, "collectives", "and reductions, norms, updates, what goes back to hosts, the report"),
          clEnumValN(step::ExpandUntil::Order, "order", "and one global list with times"),
          clEnumValN(step::ExpandUntil::Memory, "memory", "and a place for every buffer"),
          clEnumValN(step::ExpandUntil::All, "all", "and waits: the programs"))};
  Option<std::string> dumpDir{*this, "dump-dir", llvm::cl::desc("folder for the text of bodies and kernels")};

  StringRef getArgument() const override { return "zorse-apply-plan"; }
  StringRef getDescription() const override {
    return "Splits a recognised @model by a plan: the module becomes one exec.program per device, with its collectives and copies";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<exec::ExecDialect>();
    OpPassManager passes(ModuleOp::getOperationName());
    TrainPipelineOptions all;
    all.to = Stage::Bodies;
    buildTrainPipeline(passes, all);
    passes.getDependentDialects(registry);
  }

  void runOnOperation() override {
    if (failed(apply(getOperation())))
      signalPassFailure();
  }

  LogicalResult apply(ModuleOp module) {
    if (plan.empty())
      return module.emitError("zorse-apply-plan: expects plan=FILE, the plan to apply");
    TrainPipelineOptions passOptions;
    passOptions.from = Stage::Recognized;
    passOptions.to = Stage::Bodies;
    bundle::ModelSummary settings;
    settings.mutable_training()->set_optimizer(optimizer == "sgd"    ? bundle::TrainingOptions::SGD
                                               : optimizer == "adam" ? bundle::TrainingOptions::ADAM
                                                                     : bundle::TrainingOptions::ADAMW);
    settings.mutable_training()->set_clip_norm(clip);
    passOptions.settings = units::settingsText(settings);
    OpPassManager passes(ModuleOp::getOperationName());
    buildTrainPipeline(passes, passOptions);
    if (failed(runPipeline(passes, module)))
      return failure();
    auto target = *module.getOps<TargetOp>().begin(); // one is enough to look at programs, which bind exactly the slots that bodies have
    bundle::ModelSummary summary;
    bundle::BodyLibrary bodies;
    if (!parseBytes(module->getAttr("zorse.summary"), summary) || !parseBytes(target.getBodies(), bodies))
      return failure();
    Result<step::Plan> read = step::readPlanFile(plan, summary);
    if (read.failed())
      return module.emitError(read.message());
    for (const std::string &part : unusedParts(summary, *read, /*split=*/false))
      llvm::erase_if(*bodies.mutable_bodies(), [&](const bundle::Body &body) { return body.name() == part; });
    nameBodies(summary, bodies);
    codegen::setBodies(target, bodies);
    codegen::CodegenOptions code;
    code.dumpDir = dumpDir;
    unsigned kernels = 0, compiled = 0;
    if (!dumpDir.empty() && failed(codegen::compileTarget(target, code, kernels, compiled)))
      return failure();
    step::ExpandOptions expand;
    expand.bodies = &bodies;
    expand.until = until;
    Result<step::StepGraph> graph = step::expandPlan(summary, *read, expand);
    if (graph.failed())
      return module.emitError(plan + ": " + graph.message());

    conversion::ExecNames names;
    names.summary = &summary;
    names.bodies = &bodies;
    for (const step::DeviceProgram &device : graph->devices)
      names.devices.push_back(device.name);
    module.getBody()->clear();
    module->setAttrs(DictionaryAttr::get(&getContext()));
    for (uint32_t device = 0; device < graph->devices.size(); ++device) {
      Result<bundle::Program> program = step::writeProgram(*graph, device, bodies);
      if (program.failed())
        return module.emitError(program.message());
      FailureOr<OwningOpRef<ModuleOp>> text = conversion::programToExec(&getContext(), *program, names);
      if (failed(text))
        return failure();
      module.getBody()->getOperations().splice(module.getBody()->end(), (*text)->getBody()->getOperations());
    }
    return success();
  }
};

} // namespace

void registerPasses() {
  PassRegistration<ApplyPlanPass>();
  registerPipelinesPasses();
  registerTrainPipeline();
}

} // namespace zorse::pipelines
