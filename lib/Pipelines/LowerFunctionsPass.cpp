// zorse-lower-functions: lowers functions to a zorse.target for each architecture.
#include "AssignFunctions.h"
#include "Diagnostics.h"
#include "GpuWork.h"
#include "Planned.h"

#include "zorse/Bundle/BundleWriter.h"
#include "zorse/Dialect/Zorse/Resources.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Pipelines/Passes.h"
#include "zorse/Summary/Summary.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <map>
#include <set>

namespace zorse::pipelines {
#define GEN_PASS_DEF_LOWERFUNCTIONS
#include "zorse/Pipelines/Passes.h.inc"
} // namespace zorse::pipelines

using namespace mlir;
using namespace zorse;
using namespace zorse::pipelines;

namespace {

/// Returns the maximum number of terms of sums on GPUs with direct transfers
/// (codegen::appendBuiltinFunctions); 0: there are none.
uint32_t directTerms(const planning::Cluster &cluster) {
  std::map<int32_t, uint32_t> sizes;
  uint32_t max = 0;
  for (int32_t group : planning::d2dGroups(cluster))
    if (group >= 0)
      max = std::max(max, ++sizes[group]);
  return max < 2 ? 0 : std::min(max, kMaxSumTerms);
}

struct LowerFunctionsPass : pipelines::impl::LowerFunctionsBase<LowerFunctionsPass> {
  using LowerFunctionsBase::LowerFunctionsBase;

  void runOnOperation() final {
    if (failed(run(getOperation())))
      signalPassFailure();
  }

  LogicalResult run(ModuleOp module) {
    if (auto targets = module.getOps<TargetOp>(); !targets.empty())
      return module.emitError("zorse-lower-functions: expected only functions, found target '@")
             << (*targets.begin()).getSymName() << "': functions have been lowered already";
    FailureOr<bundle::ModelSummary> summary = units::summarize(module);
    if (failed(summary))
      return failure();
    SmallVector<std::string> wanted;
    auto want = [&](const std::string &arch) {
      if (std::string resolved = codegen::resolveArch(arch); !llvm::is_contained(wanted, resolved))
        wanted.push_back(std::move(resolved));
    };
    llvm::for_each(architectures, want);
    if (wanted.empty())
      want("native");
    uint32_t sumTerms = 0;
    if (module->hasAttr(units::kClusterAttr)) {
      Result<planning::Cluster> cluster = clusterOf(module);
      if (cluster.failed())
        return told(cluster.error());
      sumTerms = directTerms(*cluster);
      std::set<std::string> asked; // architectures of devices; other devices use the compiler's
                                   // default
      for (const planning::ClusterDevice &device : cluster->devices)
        if (!device.arch.empty())
          asked.insert(device.arch);
      llvm::for_each(asked, want);
    }
    std::vector<codegen::CompiledFunctions> targets;
    for (const std::string &arch : wanted) {
      codegen::CodegenOptions code;
      code.arch = arch;
      code.useCache = false; // nothing is compiled
      code.tf32 = summary->tf32();
      code.sumsF16 = summary->sums_f16();
      FailureOr<codegen::CompiledFunctions> lowered = codegen::lowerFunctions(module, code);
      if (failed(lowered))
        return failure();
      if (codegen::isCudaArch(arch))
        addGpuWork(module, *summary, *lowered);
      targets.push_back(std::move(*lowered));
    }
    if (simulateOnly) // the other targets are not executed; they only provide GPU times
      targets.erase(targets.begin() + 1, targets.end());
    if (const std::string problem = levelTargets(&getContext(), targets, *summary, sumTerms);
        !problem.empty())
      return module.emitError("targets differ: ") << problem << "; this is a compiler bug";
    nameFunctions(*summary, targets.front().library);
    module->setAttr(kSummaryAttr, bytesAttr(&getContext(), "summary", bundle::serialize(*summary)));
    size_t launches = 0;
    for (const bundle::CompiledFunction &compiled : targets.front().library.functions())
      launches += compiled.launches_size();
    emitRemark(module.getLoc(), std::to_string(targets.front().library.functions_size()) +
                                    " functions, " + std::to_string(launches) + " launches");
    for (codegen::CompiledFunctions &target : targets)
      codegen::writeTarget(module, target);
    return success();
  }
};

} // namespace
