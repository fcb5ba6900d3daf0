// zorse-lower-bodies: from functions to a zorse.target for each architecture.
#include "AssignBodies.h"
#include "TrainPipeline.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Pass/Pass.h"

using namespace mlir;

namespace zorse::pipelines {

namespace {

struct LowerBodiesPass : PassWrapper<LowerBodiesPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(LowerBodiesPass)

  LowerBodiesPass() = default;
  LowerBodiesPass(const LowerBodiesPass &other) : PassWrapper(other) {}

  ListOption<std::string> architectures{
      *this, "arch", llvm::cl::desc("What to compile for: a CPU as LLVM knows it, native, or a CUDA architecture; default: native")};
  Option<unsigned> sumTerms{*this, "sum-terms", llvm::cl::desc("Most terms of sums of GPUs that exchange directly; 0: there are none"),
                            llvm::cl::init(0)};

  StringRef getArgument() const override { return "zorse-lower-bodies"; }
  StringRef getDescription() const override { return "Lowers functions to bodies and kernels, which a zorse.target of each architecture holds"; }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<ZorseDialect, arith::ArithDialect, math::MathDialect, scf::SCFDialect, LLVM::LLVMDialect>();
  }

  void runOnOperation() override {
    if (failed(run(getOperation())))
      signalPassFailure();
  }

  LogicalResult run(ModuleOp module) {
    if (auto targets = module.getOps<TargetOp>(); !targets.empty())
      return module.emitError("zorse-lower-bodies: expected functions alone, found target '@")
             << (*targets.begin()).getSymName() << "': bodies have been lowered already";
    FailureOr<bundle::ModelSummary> summary = units::summarize(module);
    if (failed(summary))
      return failure();
    std::vector<codegen::CompiledBodies> targets;
    SmallVector<std::string> wanted(architectures.begin(), architectures.end());
    for (const std::string &arch : wanted.empty() ? SmallVector<std::string>{"native"} : wanted) {
      codegen::CodegenOptions code;
      code.arch = arch;
      code.useCache = false; // nothing is compiled
      code.tf32 = summary->tf32();
      code.sumsF16 = summary->sums_f16();
      FailureOr<codegen::CompiledBodies> lowered = codegen::lowerBodies(module, code);
      if (failed(lowered))
        return failure();
      targets.push_back(std::move(*lowered));
    }
    levelTargets(&getContext(), targets, *summary, sumTerms);
    for (codegen::CompiledBodies &target : targets)
      codegen::writeTarget(module, target);
    return success();
  }
};

} // namespace

std::unique_ptr<Pass> createLowerBodies(const std::vector<std::string> &architectures, uint32_t sumTerms) {
  auto pass = std::make_unique<LowerBodiesPass>();
  pass->architectures = architectures;
  pass->sumTerms = sumTerms;
  return pass;
}

void registerLowerBodies() { PassRegistration<LowerBodiesPass>(); }

} // namespace zorse::pipelines
