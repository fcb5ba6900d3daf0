// Differentiation passes: `zorse-differentiate`, and each of its steps.
#include "zorse/Autodiff/SaveOption.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::autodiff;

namespace {

/// A pass over the functions of one task in all classes.
template <typename Self> struct FunctionsPass : PassWrapper<Self, OperationPass<ModuleOp>> {
  FunctionsPass() = default;
  FunctionsPass(const FunctionsPass &other) : PassWrapper<Self, OperationPass<ModuleOp>>(other) {}

  void getDependentDialects(DialectRegistry &registry) const final {
    registry.insert<ZorseDialect, arith::ArithDialect, math::MathDialect, func::FuncDialect>();
    registerDifferentiableModels(registry);
  }

  StringRef getArgument() const final { return Self::kName; }

  void runOnOperation() final {
    SmallVector<func::FuncOp> functions;
    for (auto unitClass : this->getOperation().template getOps<ClassOp>())
      if (func::FuncOp function = unitClass.function(Self::kTask))
        functions.push_back(function);
    if (functions.empty()) {
      this->getOperation().emitError(Self::kName)
          << ": expected classes with a function '@" << stringifyTask(Self::kTask)
          << "', found none: run --" << Self::kAfter << " first";
      return this->signalPassFailure();
    }
    for (func::FuncOp function : functions)
      if (failed(static_cast<Self *>(this)->run(function)))
        return this->signalPassFailure();
  }
};

struct DifferentiatePass : FunctionsPass<DifferentiatePass> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(DifferentiatePass)
  DifferentiatePass() = default;
  DifferentiatePass(const DifferentiatePass &other) : FunctionsPass(other) {}
  static constexpr StringLiteral kName = "zorse-differentiate", kAfter = "zorse-find-units";
  static constexpr Task kTask = Task::Forward;
  StringRef getDescription() const final {
    return "Build the backward of every unit function for a saved set: all three steps of "
           "differentiation";
  }

  LogicalResult run(func::FuncOp forward) {
    FailureOr<DifferentiatedFunctions> pair = differentiate(forward, save);
    if (succeeded(pair) && split && pair->backward)
      (void)splitBackward(pair->backward);
    if (succeeded(pair) && recompute)
      (void)sliceSaved(pair->forward);
    return pair;
  }

  Option<bool> split{
      *this, "split",
      llvm::cl::desc(
          "Also split every backward that returns both kinds of gradients into two parts"),
      llvm::cl::init(false)};
  Option<bool> recompute{
      *this, "recompute",
      llvm::cl::desc(
          "Also build, for every forward with saved values, the function that recomputes them"),
      llvm::cl::init(false)};
  Option<RecomputePolicy> save{*this, "save",
                               llvm::cl::desc("Values that a forward saves for its backward"),
                               llvm::cl::init(RecomputePolicy::MinCut), savePolicies()};
};

struct JoinBackwardPass : FunctionsPass<JoinBackwardPass> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(JoinBackwardPass)
  static constexpr StringLiteral kName = "zorse-join-backward", kAfter = "zorse-find-units";
  static constexpr Task kTask = Task::Forward;
  StringRef getDescription() const final {
    return "Step 1 of differentiation: turn every forward into the joint function of the forward "
           "and its gradients";
  }

  LogicalResult run(func::FuncOp forward) { return joinBackward(forward); }
};

struct LowPrecisionStoragePass : FunctionsPass<LowPrecisionStoragePass> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(LowPrecisionStoragePass)
  static constexpr StringLiteral kName = "zorse-low-precision-storage",
                                 kAfter = "zorse-join-backward";
  static constexpr Task kTask = Task::Joint;
  StringRef getDescription() const final {
    return "Store rounded values in two bytes: between steps 1 and 2, in f32 models";
  }

  LogicalResult run(func::FuncOp joint) {
    if (!computesInF64(joint))
      useLowPrecisionStorage(joint);
    return success();
  }

  /// Models that compute in f64 with roundings are references for tests: their values stay f64.
  static bool computesInF64(func::FuncOp joint) {
    for (auto [i, type] : llvm::enumerate(joint.getArgumentTypes()))
      if (getElementTypeOrSelf(type).isF64() &&
          !isOfKind(attributeOfArgument(joint, unsigned(i)), ArgumentKind::Scalars))
        return true;
    return llvm::any_of(joint.getResultTypes(),
                        [](Type type) { return getElementTypeOrSelf(type).isF64(); });
  }
};

struct ChooseSavedPass : FunctionsPass<ChooseSavedPass> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ChooseSavedPass)
  ChooseSavedPass() = default;
  ChooseSavedPass(const ChooseSavedPass &other) : FunctionsPass(other) {}
  static constexpr StringLiteral kName = "zorse-choose-saved", kAfter = "zorse-join-backward";
  static constexpr Task kTask = Task::Joint;
  StringRef getDescription() const final {
    return "Step 2 of differentiation: choose the values that the forward of every joint function "
           "saves for its backward";
  }

  LogicalResult run(func::FuncOp joint) {
    chooseSaved(joint, save);
    return success();
  }

  Option<RecomputePolicy> save{*this, "save",
                               llvm::cl::desc("Values that a forward saves for its backward"),
                               llvm::cl::init(RecomputePolicy::MinCut), savePolicies()};
};

/// Every class has a backward, even a frozen one. It reads one argument, because a compiled
/// function without argument attributes would not be called.
void buildEmptyBackward(func::FuncOp forward) {
  OpBuilder builder(forward.getContext());
  builder.setInsertionPointToEnd(forward->getBlock());
  auto function =
      func::FuncOp::create(builder, forward.getLoc(), stringifyTask(Task::Backward),
                           builder.getFunctionType(forward.getArgumentTypes().take_front(1), {}));
  function.setArgAttr(0, attributes::kArgument, attributeOfArgument(forward, 0));
  builder.setInsertionPointToEnd(function.addEntryBlock());
  func::ReturnOp::create(builder, forward.getLoc());
}

struct SliceJointPass : FunctionsPass<SliceJointPass> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(SliceJointPass)
  SliceJointPass() = default;
  SliceJointPass(const SliceJointPass &other) : FunctionsPass(other) {}
  static constexpr StringLiteral kName = "zorse-slice-joint", kAfter = "zorse-join-backward";
  static constexpr Task kTask = Task::Joint;
  StringRef getDescription() const final {
    return "Step 3 of differentiation: slice every joint function into its forward and its "
           "backward";
  }

  LogicalResult run(func::FuncOp joint) {
    DifferentiatedFunctions pair = sliceJoint(joint);
    if ((split || all) && pair.backward)
      (void)splitBackward(pair.backward);
    if (recompute || all)
      (void)sliceSaved(pair.forward);
    if (all && !pair.backward)
      buildEmptyBackward(pair.forward);
    return success();
  }

  Option<bool> all{*this, "all",
                   llvm::cl::desc("Also build all functions that programs call: as with split and "
                                  "recompute, and an empty backward if there is none"),
                   llvm::cl::init(false)};

  Option<bool> split{
      *this, "split",
      llvm::cl::desc(
          "Also split every backward that returns both kinds of gradients into two parts"),
      llvm::cl::init(false)};
  Option<bool> recompute{
      *this, "recompute",
      llvm::cl::desc(
          "Also build, for every forward with saved values, the function that recomputes them"),
      llvm::cl::init(false)};
};

} // namespace

std::unique_ptr<Pass> autodiff::createJoinBackward() {
  return std::make_unique<JoinBackwardPass>();
}

std::unique_ptr<Pass> autodiff::createLowPrecisionStorage() {
  return std::make_unique<LowPrecisionStoragePass>();
}

std::unique_ptr<Pass> autodiff::createChooseSaved(RecomputePolicy policy) {
  auto pass = std::make_unique<ChooseSavedPass>();
  pass->save = policy;
  return pass;
}

std::unique_ptr<Pass> autodiff::createSliceJoint() {
  auto pass = std::make_unique<SliceJointPass>();
  pass->all = true;
  return pass;
}

void autodiff::registerPasses() {
  PassRegistration<JoinBackwardPass>();
  PassRegistration<LowPrecisionStoragePass>();
  PassRegistration<ChooseSavedPass>();
  PassRegistration<SliceJointPass>();
  PassRegistration<DifferentiatePass>();
}
