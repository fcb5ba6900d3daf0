// zorse-apply-plan: a model and a plan become the split programs, as text.
#include "AssignBodies.h"
#include "TrainPipeline.h"

#include "zorse/Bundle/ProgramText.h"
#include "zorse/Pipelines/Passes.h"
#include "zorse/Step/Plan.h"
#include "zorse/Step/WriteProgram.h"

#include "mlir/Pass/Pass.h"

using namespace mlir;

namespace zorse::pipelines {

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
    return "Splits a recognised @model by a plan, and prints the program of every device, with its collectives and copies";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
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
    FailureOr<bundle::ModelSummary> summary = units::summarize(module);
    if (failed(summary))
      return failure();
    // Programs bind exactly the slots that bodies have, so the bodies are needed too.
    codegen::CodegenOptions code;
    code.dumpDir = dumpDir;
    FailureOr<std::vector<codegen::CompiledBodies>> targets = codegen::readTargets(module, code); // one is enough to look at programs
    if (failed(targets))
      return failure();
    codegen::CompiledBodies &bodies = targets->front();
    nameBodies(*summary, bodies.library);

    Result<step::Plan> read = step::readPlanFile(plan, *summary);
    if (read.failed())
      return module.emitError(read.message());
    dropUnusedParts(*summary, *read, /*split=*/false, *targets);
    if (!dumpDir.empty() && failed(codegen::compileKernels(bodies, module.getLoc())))
      return failure();
    step::ExpandOptions expand;
    expand.bodies = &bodies.library;
    expand.until = until;
    Result<step::StepGraph> graph = step::expandPlan(*summary, *read, expand);
    if (graph.failed())
      return module.emitError(plan + ": " + graph.message());

    bundle::ProgramNames names;
    names.summary = &*summary;
    names.bodies = &bodies.library;
    for (const step::DeviceProgram &device : graph->devices)
      names.devices.push_back(device.name);
    module.getBody()->clear();
    module->setAttrs(DictionaryAttr::get(&getContext()));
    for (uint32_t device = 0; device < graph->devices.size(); ++device) {
      Result<bundle::Program> program = step::writeProgram(*graph, device, bodies.library);
      if (program.failed())
        return module.emitError(program.message());
      Result<std::string> text = bundle::programText(*program, names);
      if (text.failed())
        return module.emitError(text.message());
      llvm::outs() << *text;
    }
    return success();
  }
};

} // namespace

void registerPasses() {
  PassRegistration<ApplyPlanPass>();
  registerTrainPipeline();
  registerLowerBodies();
}

} // namespace zorse::pipelines
