// zorse-apply-plan: a model and a plan become the split programs, as text.
#include "AssignBodies.h"

#include "zorse/Conversion/ExecConversion.h"
#include "zorse/Dialect/Exec/Exec.h"
#include "zorse/Pipelines/Passes.h"
#include "zorse/Step/Plan.h"
#include "zorse/Step/StepGraph.h"

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

  Option<std::string> dumpDir{*this, "dump-dir", llvm::cl::desc("folder for the text of bodies and kernels")};

  StringRef getArgument() const override { return "zorse-apply-plan"; }
  StringRef getDescription() const override {
    return "Splits a recognised @model by a plan: the module becomes one exec.program per device, with its collectives and copies";
  }
  void getDependentDialects(DialectRegistry &registry) const override { registry.insert<exec::ExecDialect>(); }

  void runOnOperation() override {
    if (failed(apply(getOperation())))
      signalPassFailure();
  }

  LogicalResult apply(ModuleOp module) {
    if (plan.empty())
      return module.emitError("zorse-apply-plan: expects plan=FILE, the plan to apply");
    units::UnitOptions unit;
    unit.training.set_optimizer(optimizer == "sgd"    ? bundle::TrainingOptions::SGD
                                : optimizer == "adam" ? bundle::TrainingOptions::ADAM
                                                      : bundle::TrainingOptions::ADAMW);
    unit.training.set_clip_norm(clip);
    FailureOr<units::UnitModel> model = units::buildUnits(module, unit);
    if (failed(model))
      return failure();
    // Programs bind exactly the slots that bodies have, so the bodies are needed too.
    codegen::CodegenOptions code;
    code.dumpDir = dumpDir;
    FailureOr<codegen::CompiledBodies> bodies = codegen::lowerBodies(*model->functions, code);
    if (failed(bodies))
      return failure();
    assignBodies(*model, *bodies);

    std::string error;
    std::optional<step::Plan> read = step::readPlanFile(plan, model->summary, error);
    if (!read)
      return module.emitError(error);
    if (!read->schedule.splitBackward)
      dropSplitBodies(*model, *bodies);
    if (!dumpDir.empty() && failed(codegen::compileKernels(*bodies, module.getLoc())))
      return failure();
    step::ExpandOptions expand;
    expand.bodies = &bodies->library;
    std::optional<step::StepGraph> graph = step::expandPlan(model->summary, *read, error, expand);
    if (!graph)
      return module.emitError(plan + ": " + error);

    conversion::ExecNames names;
    names.summary = &model->summary;
    names.bodies = &bodies->library;
    SmallVector<OwningOpRef<ModuleOp>> programs;
    for (uint32_t device = 0; device < graph->devices.size(); ++device) {
      FailureOr<OwningOpRef<ModuleOp>> program = conversion::stepToExec(&getContext(), *graph, device, names);
      if (failed(program))
        return failure();
      programs.push_back(std::move(*program));
    }
    module.getBody()->clear();
    module->setAttrs(DictionaryAttr::get(&getContext()));
    for (OwningOpRef<ModuleOp> &program : programs)
      module.getBody()->getOperations().splice(module.getBody()->end(), program->getBody()->getOperations());
    return success();
  }
};

} // namespace

void registerPasses() { PassRegistration<ApplyPlanPass>(); }

} // namespace zorse::pipelines
