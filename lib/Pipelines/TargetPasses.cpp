// zorse-drop-unused-functions and zorse-compile-kernels: reduce every target to the compiled
// functions that the plan uses, and compile its machine code.
#include "AssignFunctions.h"
#include "Diagnostics.h"
#include "Planned.h"

#include "zorse/Bundle/BundleWriter.h"
#include "zorse/Dialect/Zorse/Resources.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Pipelines/Passes.h"

#include <set>

namespace zorse::pipelines {
#define GEN_PASS_DEF_DROPUNUSEDFUNCTIONS
#define GEN_PASS_DEF_COMPILEKERNELS
#include "zorse/Pipelines/Passes.h.inc"
} // namespace zorse::pipelines

using namespace mlir;
using namespace zorse;
using namespace zorse::pipelines;

namespace {

struct Target {
  TargetOp op;
  bundle::FunctionLibrary library;
  bool used = false;
};

/// Returns the compiled functions that the host executes if all devices are GPUs: counting the
/// denominator of the loss, and updates that the plan assigns to the host.
std::set<int> functionsOfHost(const Planned &planned) {
  std::set<int> functions;
  if (planned.summary.count_function() >= 0)
    functions.insert(planned.summary.count_function());
  if (llvm::any_of(planned.plan.offload, [](const step::OffloadRule &rule) {
        return rule.optimizer == step::MemoryTier::Host;
      }))
    for (const bundle::UpdateRule &rule : planned.summary.update_rules())
      functions.insert(int(rule.function()));
  return functions;
}

/// Erases targets that no device runs. A target that only the host needs becomes the last one, with
/// only the code of its compiled functions.
void dropTargets(std::vector<Target> &targets, const Planned &planned) {
  for (const bundle::BundleDevice &device : planned.devices)
    targets[device.target].used = true;
  auto forGpus = [](const Target &target) { return codegen::isCudaArch(target.library.arch()); };
  const std::set<int> ofHost = functionsOfHost(planned);
  Target &first = targets.front();
  const bool forHost =
      !first.used && !forGpus(first) && !ofHost.empty() &&
      llvm::all_of(targets, [&](const Target &target) { return !target.used || forGpus(target); });
  if (forHost) {
    for (int b = 0; b < first.library.functions_size(); ++b)
      if (!ofHost.count(b))
        first.library.mutable_functions(b)->clear_launches();
    first.used = true;
    first.op->moveBefore(first.op->getBlock(), first.op->getBlock()->end());
    std::rotate(targets.begin(), targets.begin() + 1, targets.end());
  }
  for (Target &target : targets)
    if (!target.used)
      target.op.erase();
  llvm::erase_if(targets, [](const Target &target) { return !target.used; });
}

struct DropUnusedFunctionsPass : pipelines::impl::DropUnusedFunctionsBase<DropUnusedFunctionsPass> {
  using DropUnusedFunctionsBase::DropUnusedFunctionsBase;

  void runOnOperation() final {
    const Planned &planned = getAnalysis<Planned>();
    if (failed(told(planned.status)))
      return signalPassFailure();
    ModuleOp module = getOperation();
    std::vector<Target> targets;
    for (auto target : module.getOps<TargetOp>())
      if (!parseBytes(target.getFunctions(), targets.emplace_back(Target{target, {}}).library)) {
        target.emitOpError(
            "expects functions to be a serialized FunctionLibrary, but it is missing or damaged");
        return signalPassFailure();
      }
    dropTargets(targets, planned);
    const std::set<std::string> parts = keepAll ? std::set<std::string>()
                                                : unusedParts(planned.summary, planned.plan);
    for (Target &target : targets) {
      auto &functions = *target.library.mutable_functions();
      functions.erase(llvm::remove_if(functions,
                                      [&](const bundle::CompiledFunction &compiled) {
                                        return parts.count(compiled.name()) > 0;
                                      }),
                      functions.end());
      codegen::setFunctions(target.op, target.library);
    }
    bundle::ModelSummary summary = planned.summary;
    nameFunctions(summary, targets.front().library);
    module->setAttr(kSummaryAttr, bytesAttr(&getContext(), "summary", bundle::serialize(summary)));
  }
};

struct CompileKernelsPass : pipelines::impl::CompileKernelsBase<CompileKernelsPass> {
  using CompileKernelsBase::CompileKernelsBase;

  void runOnOperation() final {
    markAllAnalysesPreserved();
    codegen::CodegenOptions code;
    code.threads = threads;
    code.useCache = cache;
    code.dumpDir = dumpDir;
    unsigned kernels = 0, compiled = 0;
    std::string names;
    for (auto target : getOperation().getOps<TargetOp>()) {
      if (!dumpDir.empty() && !names.empty())
        code.dumpDir = dumpDir + "/" + target.getSymName().str();
      if (failed(codegen::compileTarget(target, code, kernels, compiled)))
        return signalPassFailure();
      names += (names.empty() ? "" : ", ") + target.getSymName().str();
    }
    emitRemark(getOperation().getLoc(), counted(kernels, "kernel") + " (" +
                                            std::to_string(kernels - compiled) + " cached) for " +
                                            names);
  }
};

} // namespace
