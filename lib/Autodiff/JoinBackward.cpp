// Step 1 of differentiation: appends the operations of the gradients to those of the forward, in
// one block.
#include "EditFunction.h"
#include "VjpBuilder.h"

#include "zorse/Autodiff/Autodiff.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::autodiff;

namespace {

/// Returns the values on a path from an argument that needs a gradient to a result that has one.
DenseSet<Value> activeValuesOf(func::FuncOp function) {
  Block &body = function.getBody().front();
  SmallVector<Value> sources, targets;
  for (BlockArgument argument : body.getArguments())
    if (function.getArgAttr(argument.getArgNumber(), kGradientAttr))
      sources.push_back(argument);
  for (auto [i, returned] : llvm::enumerate(body.getTerminator()->getOperands()))
    if (function.getResultAttr(i, kGradientAttr) ||
        isOfKind(attributeOfResult(function, i), ArgumentKind::Loss))
      targets.push_back(returned);
  return activeValues(body, sources, targets);
}

void requestStatistics(func::FuncOp function) {
  DenseSet<Value> active = activeValuesOf(function);
  OpBuilder builder(function.getContext());
  SmallVector<Operation *> ops;
  for (Operation &op : function.getBody().front().without_terminator())
    if (hasOptionalStatistics(&op) && active.contains(op.getResult(0)))
      ops.push_back(&op);
  for (Operation *op : ops) {
    builder.setInsertionPoint(op);
    withStatistics(builder, op);
  }
}

class JointBuilder {
public:
  explicit JointBuilder(func::FuncOp function)
      : function(function), builder(function.getBody().front().getTerminator()) {}

  LogicalResult build() {
    requestStatistics(function);
    DenseSet<Value> active = activeValuesOf(function);
    auto isActive = [&](Value value) { return active.contains(value); };
    SmallVector<Operation *> forwardOps;
    for (Operation &op : function.getBody().front().without_terminator())
      forwardOps.push_back(&op);
    seedResults(active);
    if (failed(appendBackward(builder, forwardOps, gradients, isActive)))
      return failure();
    returnGradients();
    return success();
  }

private:
  /// Seeds the gradients of the forward's results.
  void seedResults(const DenseSet<Value> &active) {
    for (auto [i, returned] :
         llvm::enumerate(function.getBody().front().getTerminator()->getOperands())) {
      ArgumentAttr attribute = attributeOfResult(function, i);
      Location loc = returned.getLoc();
      Value seed;
      if (isOfKind(attribute, ArgumentKind::BoundaryOut) &&
          function.getResultAttr(i, kGradientAttr))
        seed = addArgument(function, returned.getType(), ArgumentKind::BoundaryOutGradient,
                           attribute.getIndex(), loc);
      else if (isOfKind(attribute, ArgumentKind::Loss) && active.contains(returned))
        seed = lossGradient(cast<RankedTensorType>(returned.getType()), attribute.getIndex(), loc);
      if (!seed)
        continue;
      Value &sum = gradients[returned];
      sum = sum ? arith::AddFOp::create(builder, loc, sum, seed).getResult() : seed;
    }
  }

  /// Returns lossGradient[k], read at run time, for every row.
  Value lossGradient(RankedTensorType type, uint32_t index, Location loc) {
    auto f64 = RankedTensorType::get({}, builder.getF64Type());
    Value seed = addArgument(function, f64, ArgumentKind::Scalars, index, loc);
    if (!type.getElementType().isF64())
      seed = arith::TruncFOp::create(builder, loc, RankedTensorType::get({}, type.getElementType()),
                                     seed);
    return BroadcastOp::create(builder, loc, type, seed, ArrayRef<int64_t>{});
  }

  void returnGradients() {
    SmallVector<ResultValue> results;
    for (auto [kind, gradientKind] :
         {std::pair(ArgumentKind::BoundaryIn, ArgumentKind::BoundaryInGradient),
          std::pair(ArgumentKind::Parameter, ArgumentKind::ParameterGradient)})
      for (BlockArgument argument : function.getArguments()) {
        unsigned i = argument.getArgNumber();
        ArgumentAttr attribute = attributeOfArgument(function, i);
        if (!isOfKind(attribute, kind) || !function.getArgAttr(i, kGradientAttr))
          continue;
        Value gradient = gradients.lookup(argument);
        // Other units expect this contribution, so a vanishing gradient is returned as zeros.
        if (!gradient)
          gradient = createSplat(builder, argument.getLoc(),
                                 cast<RankedTensorType>(argument.getType()), 0.0);
        results.push_back({gradient, gradientKind, attribute.getIndex()});
      }
    appendResults(function, results);
  }

  func::FuncOp function;
  OpBuilder builder; ///< inserts after the forward's operations
  DenseMap<Value, Value> gradients;
};

/// Detach operations have done their work: gradients are built, so they are replaced by their
/// operands.
void dropDetaches(func::FuncOp function) {
  for (Operation &op : llvm::make_early_inc_range(function.getBody().front()))
    if (auto detach = dyn_cast<DetachOp>(op)) {
      detach.getY().replaceAllUsesWith(detach.getX());
      detach.erase();
    }
}

} // namespace

FailureOr<func::FuncOp> autodiff::joinBackward(func::FuncOp function) {
  bool wanted = llvm::any_of(llvm::seq(function.getNumArguments()), [&](unsigned i) {
    return bool(function.getArgAttr(i, kGradientAttr));
  });
  if (wanted && failed(JointBuilder(function).build()))
    return failure();
  dropDetaches(function);
  function.setName(stringifyTask(Task::Joint));
  return function;
}
