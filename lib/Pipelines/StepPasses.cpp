// Passes from a plan to verified programs: zorse-expand-step, zorse-write-programs,
// zorse-verify-programs and zorse-show-programs.
#include "Diagnostics.h"
#include "Planned.h"
#include "Programs.h"

#include "zorse/Dialect/Zorse/Resources.h"
#include "zorse/Pipelines/Passes.h"
#include "zorse/Step/WriteProgram.h"
#include "zorse/Units/Units.h"

#include "mlir/Pass/AnalysisManager.h"

#include <set>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace zorse::pipelines {
#define GEN_PASS_DEF_EXPANDSTEP
#define GEN_PASS_DEF_SHOWPROGRAMS
#define GEN_PASS_DEF_VERIFYPROGRAMS
#define GEN_PASS_DEF_WRITEPROGRAMS
#include "zorse/Pipelines/Passes.h.inc"
} // namespace zorse::pipelines

using namespace mlir;
using namespace zorse;
using namespace zorse::pipelines;

namespace {

/// Returns freed memory to the system. Memory freed by a search or an expansion is fragmented, and
/// the next expansion needs the same amount.
void releaseFreed() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

Result<step::StepGraph> expand(const Planned &planned, const step::Plan &plan,
                               step::LoweringStage until) {
  releaseFreed();
  step::LoweringOptions options;
  options.functions = &planned.library;
  options.costs = planned.costs.get();
  options.until = until;
  Result<step::StepGraph> made = step::lowerPlan(planned.summary, plan, options);
  releaseFreed();
  return made;
}

/// Whether the step has direct transfers between GPUs.
bool isDirect(const step::StepGraph &graph) {
  return llvm::any_of(graph.devices, [](const step::DeviceProgram &device) {
    return llvm::any_of(device.queues, [](const step::Queue &queue) {
      return queue.kind == bundle::DEVICE_TO_DEVICE;
    });
  });
}

/// Whether two devices with work are in one group of direct peers. Otherwise no transfer is direct,
/// and the expansion with direct transfers is skipped.
bool mayBeDirect(const Planned &planned) {
  std::set<uint32_t> used;
  for (const step::Cell &cell : planned.plan.cells)
    used.insert(cell.device);
  std::set<int32_t> groups;
  return llvm::any_of(used, [&](uint32_t device) {
    return planned.d2dGroups[device] >= 0 && !groups.insert(planned.d2dGroups[device]).second;
  });
}

/// Analysis: the step of a module's plan, with direct transfers if GPUs support them and memory
/// suffices.
struct LoweredStep {
  LoweredStep(Operation *module, AnalysisManager &analyses)
      : LoweredStep(analyses.getAnalysis<Planned>(), step::LoweringStage::All) {}

  LoweredStep(const Planned &planned, step::LoweringStage until) : status(planned.status) {
    if (status.failed() || (mayBeDirect(planned) && expandDirectly(planned, until)))
      return;
    Result<step::StepGraph> made = expand(planned, planned.plan, until);
    if (made.failed())
      status = userError(planned.file + ": " + made.message());
    else
      graph = std::move(*made);
  }

  Status status;
  std::string remark;
  step::StepGraph graph; ///< valid if `status` is success

private:
  bool expandDirectly(const Planned &planned, step::LoweringStage until) {
    step::Plan plan = planned.plan;
    for (size_t d = 0; d < plan.devices.size(); ++d)
      plan.devices[d].d2dGroup = planned.d2dGroups[d];
    Result<step::StepGraph> made = expand(planned, plan, until);
    if (made.failed()) {
      remark =
          "; transfers are staged through host memory, because direct ones need more memory: " +
          StringRef(made.message()).split('\n').first.str();
      return false;
    }
    if (isDirect(*made))
      remark = ", direct transfers between GPUs";
    graph = std::move(*made);
    return true;
  }
};

ArrayAttr programsAttr(MLIRContext *context, const char *name, std::vector<std::string> programs) {
  SmallVector<Attribute> all;
  for (std::string &program : programs)
    all.push_back(bytesAttr(context, name, std::move(program)));
  return ArrayAttr::get(context, all);
}

struct LowerStepPass : pipelines::impl::ExpandStepBase<LowerStepPass> {
  void runOnOperation() final {
    markAllAnalysesPreserved();
    const LoweredStep &step = getAnalysis<LoweredStep>();
    if (failed(told(step.status)))
      return signalPassFailure();
    uint64_t largest = 0;
    for (const step::DeviceProgram &device : step.graph.devices)
      largest = std::max(largest, device.plannedBytes);
    emitRemark(getOperation().getLoc(),
               std::to_string(step.graph.instructions.size()) + " instructions, " +
                   counted(step.graph.waits.size(), "wait") + ", at most " + megabytes(largest) +
                   " on a device" + step.remark);
  }
};

struct WriteProgramsPass : pipelines::impl::WriteProgramsBase<WriteProgramsPass> {
  using WriteProgramsBase::WriteProgramsBase;

  void runOnOperation() final {
    markAllAnalysesPreserved(); // they do not read the programs
    ModuleOp module = getOperation();
    const Planned &planned = getAnalysis<Planned>();
    const LoweredStep *step = &getAnalysis<LoweredStep>();
    if (failed(told(step->status)))
      return signalPassFailure();
    const bool direct = isDirect(step->graph);
    std::vector<std::string> programs = buildPrograms(step->graph, planned.library, threads),
                             staged;
    // Large steps use most of the memory of a compilation, so only one exists at a time.
    AnalysisManager::PreservedAnalyses others;
    others.preserve<Planned>();
    getAnalysisManager().invalidate(others);
    if (programs.empty())
      return signalPassFailure();
    uint64_t bytes = 0;
    for (const std::string &program : programs)
      bytes += program.size();
    std::string remark = counted(programs.size(), "program") + ", " + megabytes(bytes);
    if (direct) { // the same step staged through host memory, if GPUs cannot reach each other at
                  // run time
      Result<step::StepGraph> graph = expand(planned, planned.plan, step::LoweringStage::All);
      if (graph.failed())
        printError(planned.file +
                   ": step staged through host memory, for GPUs that cannot reach each other: " +
                   graph.message());
      else
        staged = buildPrograms(*graph, planned.library, threads);
      if (staged.empty())
        return signalPassFailure();
      remark += "; " + std::to_string(graph->instructions.size()) +
                " instructions staged through host memory";
    }
    module->setAttr(kProgramsAttr, programsAttr(&getContext(), "program", std::move(programs)));
    module->setAttr(kStagedAttr, programsAttr(&getContext(), "staged", std::move(staged)));
    emitRemark(module.getLoc(), remark);
  }
};

struct VerifyProgramsPass : pipelines::impl::VerifyProgramsBase<VerifyProgramsPass> {
  using VerifyProgramsBase::VerifyProgramsBase;

  void runOnOperation() final {
    markAllAnalysesPreserved();
    ModuleOp module = getOperation();
    const Planned &planned = getAnalysis<Planned>();
    const std::vector<std::string> programs = programsOf(module, kProgramsAttr),
                                   staged = programsOf(module, kStagedAttr);
    Status status = planned.status;
    if (status.succeeded() && programs.empty())
      status = userError("expected " + kProgramsAttr.str() +
                         ", found none: run --zorse-write-programs first");
    if (failed(told(status)))
      return signalPassFailure();
    std::vector<bool> byHost;
    for (const step::PlanDevice &device : planned.plan.devices)
      byHost.push_back(device.hostStaged);
    const std::string plan = fileOf(module->getAttr(units::kPlanAttr))->text;
    auto verified = [&](const std::vector<std::string> &set, const std::vector<int32_t> &direct) {
      return set.empty() ||
             verifySerialized(set, planned.summary, planned.library, plan, threads, byHost, direct);
    };
    if (!verified(programs, staged.empty() ? std::vector<int32_t>() : planned.d2dGroups) ||
        !verified(staged, {}))
      return signalPassFailure();
    emitRemark(module.getLoc(), "any number of steps: matching, order, races, memory, values");
  }
};

struct ShowProgramsPass : pipelines::impl::ShowProgramsBase<ShowProgramsPass> {
  using ShowProgramsBase::ShowProgramsBase;

  void runOnOperation() final {
    if (failed(told(show(getOperation()))))
      signalPassFailure();
  }

  Status show(ModuleOp module) {
    const Planned &planned = getAnalysis<Planned>();
    const LoweredStep step(planned, until);
    if (step.status.failed())
      return step.status;
    const bundle::ProgramNames names = programNames(planned.plan, planned.summary, planned.library);
    module.getBody()->clear();
    module->setAttrs(DictionaryAttr::get(&getContext()));
    for (uint32_t device = 0; device < step.graph.devices.size(); ++device) {
      Result<bundle::Program> program = step::writeProgram(step.graph, device, planned.library);
      if (program.failed())
        return program.error();
      Result<std::string> text = bundle::programText(*program, names);
      if (text.failed())
        return text.error();
      llvm::outs() << *text;
    }
    return Status::success();
  }
};

} // namespace
