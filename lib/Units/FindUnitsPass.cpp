// zorse-find-units: replaces @model by the functions of its classes, differentiated.
#include "zorse/Units/Units.h"

#include "zorse/Autodiff/SaveOption.h"
#include "zorse/Dialect/Zorse/ZorseDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Pass/Pass.h"

using namespace mlir;
using namespace zorse;
using units::Until;

namespace {

struct FindUnitsPass : PassWrapper<FindUnitsPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(FindUnitsPass)

  FindUnitsPass() = default;
  FindUnitsPass(const FindUnitsPass &other) : PassWrapper(other) {}

  StringRef getArgument() const final { return "zorse-find-units"; }
  StringRef getDescription() const final { return "Cut @model into units and replace it by the forward and backward functions of their classes"; }

  void getDependentDialects(DialectRegistry &registry) const final {
    registry.insert<ZorseDialect, arith::ArithDialect, math::MathDialect, func::FuncDialect>();
    autodiff::registerDifferentiableModels(registry);
  }

  void runOnOperation() final {
    units::UnitOptions options;
    options.saved = save;
    options.until = until;
    options.training.set_optimizer(bundle::TrainingOptions::ADAMW);
    options.training.set_beta1(0.9);
    options.training.set_beta2(0.999);
    options.training.set_epsilon(1e-8);
    options.training.set_weight_decay(0.1);
    FailureOr<units::UnitModel> found = units::buildUnits(getOperation(), options);
    if (failed(found))
      return signalPassFailure();
    if (summary && until == Until::Functions)
      units::printSummary(found->summary, llvm::outs());
    Block *body = getOperation().getBody();
    body->clear();
    body->getOperations().splice(body->end(), (*found->functions).getBody()->getOperations());
  }

  Option<bool> summary{*this, "print-summary", llvm::cl::desc("Print the model summary as text"), llvm::cl::init(false)};
  Option<autodiff::SavePolicy> save{*this, "save", llvm::cl::desc("What forwards keep for their backwards"),
                                    llvm::cl::init(autodiff::SavePolicy::MinimumCut), autodiff::savePolicies()};
  Option<Until> until{*this, "until", llvm::cl::desc("Stop earlier, for a look at the classes"), llvm::cl::init(Until::Functions),
                      llvm::cl::values(clEnumValN(Until::Forward, "forward", "one forward function per class"),
                                       clEnumValN(Until::Joint, "joint", "forward and backward of a class in one joint function"),
                                       clEnumValN(Until::Functions, "functions", "all functions, and the summary"))};
};

} // namespace

std::unique_ptr<Pass> units::createFindUnits() { return std::make_unique<FindUnitsPass>(); }

void units::registerPasses() { PassRegistration<FindUnitsPass>(); }
