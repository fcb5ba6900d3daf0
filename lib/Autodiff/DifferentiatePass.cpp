// zorse-differentiate: every `@<class>.forward` of a module gets its saved results and its `@<class>.backward`, with `split` also the parts of it.
#include "zorse/Autodiff/Autodiff.h"
#include "zorse/Dialect/Zorse/ZorseDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::autodiff;

namespace {

struct DifferentiatePass : PassWrapper<DifferentiatePass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(DifferentiatePass)

  DifferentiatePass() = default;
  DifferentiatePass(const DifferentiatePass &other) : PassWrapper(other) {}

  StringRef getArgument() const final { return "zorse-differentiate"; }
  StringRef getDescription() const final { return "Build the backward of every unit function for a saved set"; }

  void getDependentDialects(DialectRegistry &registry) const final {
    registry.insert<ZorseDialect, arith::ArithDialect, math::MathDialect, func::FuncDialect>();
    registerDifferentiableModels(registry);
  }

  void runOnOperation() final {
    SmallVector<func::FuncOp> forwards;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (function.getName().ends_with(".forward") && !function.isDeclaration())
        forwards.push_back(function);
    for (func::FuncOp forward : forwards) {
      FailureOr<Differentiated> pair = differentiate(forward, save);
      if (failed(pair))
        return signalPassFailure();
      if (split && pair->backward)
        (void)splitBackward(pair->backward);
    }
  }

  Option<bool> split{*this, "split", llvm::cl::desc("Also build the two parts of every backward that has both"), llvm::cl::init(false)};

  Option<SavePolicy> save{*this, "save", llvm::cl::desc("What a forward keeps for its backward"), llvm::cl::init(SavePolicy::MinimumCut),
                          llvm::cl::values(clEnumValN(SavePolicy::MinimumCut, "min-cut", "fewest bytes without recomputing products or attention"),
                                           clEnumValN(SavePolicy::Keep, "keep", "everything the gradients read"),
                                           clEnumValN(SavePolicy::Full, "full", "nothing: recompute from the boundary inputs"))};
};

} // namespace

void autodiff::registerPasses() { PassRegistration<DifferentiatePass>(); }
