// Reverse mode over a straight-line list of operations.
#include "VjpBuilder.h"

#include "zorse/Autodiff/Autodiff.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::autodiff;

void autodiff::registerDifferentiableModels(DialectRegistry &registry) {
  registerArithModels(registry);
  registerMathModels(registry);
  registry.addExtension(+[](MLIRContext *context, ZorseDialect *) {
    registerViewModels(context);
    registerLinearModels(context);
    registerModelModels(context);
  });
}

bool autodiff::isDifferentiableType(Type type) {
  return isa<FloatType>(getElementTypeOrSelf(type));
}

bool autodiff::propagatesGradient(OpOperand &use) {
  Operation *op = use.getOwner();
  if (!isDifferentiableType(use.get().getType()))
    return false;
  if (auto differentiable = dyn_cast<DifferentiableOpInterface>(op))
    return differentiable.isOperandDifferentiable(use.getOperandNumber());
  return llvm::any_of(op->getResultTypes(), isDifferentiableType);
}

DenseSet<Value> autodiff::activeValues(Block &block, ArrayRef<Value> sources,
                                       ArrayRef<Value> targets) {
  DenseSet<Value> varied(sources.begin(), sources.end()), useful(targets.begin(), targets.end()),
      active;
  for (Operation &op : block.without_terminator())
    if (llvm::any_of(op.getOpOperands(), [&](OpOperand &use) {
          return varied.contains(use.get()) && propagatesGradient(use);
        }))
      for (Value result : op.getResults())
        if (isDifferentiableType(result.getType()))
          varied.insert(result);
  for (Operation &op : llvm::reverse(block.without_terminator()))
    if (llvm::any_of(op.getResults(), [&](Value v) { return useful.contains(v); }))
      for (OpOperand &use : op.getOpOperands())
        if (propagatesGradient(use))
          useful.insert(use.get());
  for (Value value : varied)
    if (useful.contains(value))
      active.insert(value);
  return active;
}

namespace {

/// Gradients of slices of one value, collected until the value's own gradient is needed. Slices
/// that tile it (fused q, k, v) then become one concat instead of a sum of mostly zeros.
using SliceGradients = SmallVector<std::pair<SliceOp, Value>>;

/// Returns the only dimension along which a slice takes a contiguous part; -1 for other slices.
int64_t slicedDim(SliceOp slice) {
  auto x = cast<RankedTensorType>(slice.getX().getType());
  int64_t found = -1;
  for (int64_t dim = 0; dim < x.getRank(); ++dim) {
    if (slice.getStrides()[dim] != 1)
      return -1;
    if (x.isDynamicDim(dim) || slice.getSizes()[dim] == x.getDimSize(dim))
      continue;
    if (found >= 0)
      return -1;
    found = dim;
  }
  return found;
}

/// Joins the slices' gradients to one concat with zeros in the gaps. Null if they overlap or differ
/// in their dimension.
Value joinSlices(OpBuilder &builder, SliceGradients parts) {
  int64_t dim = slicedDim(parts.front().first);
  if (dim < 0 || llvm::any_of(parts, [&](auto &part) { return slicedDim(part.first) != dim; }))
    return {};
  auto offsetOf = [&](const std::pair<SliceOp, Value> &part) {
    return SliceOp(part.first).getOffsets()[dim];
  };
  llvm::stable_sort(parts, [&](auto &a, auto &b) { return offsetOf(a) < offsetOf(b); });

  auto x = cast<RankedTensorType>(parts.front().first.getX().getType());
  Location loc = parts.front().first.getLoc();
  SmallVector<Value> pieces;
  int64_t position = 0;
  auto fill = [&](int64_t until) {
    if (until == position)
      return;
    SmallVector<int64_t> shape(x.getShape());
    shape[dim] = until - position;
    pieces.push_back(
        createSplat(builder, loc, RankedTensorType::get(shape, x.getElementType()), 0.0));
  };
  for (auto &[slice, gradient] : parts) {
    int64_t offset = slice.getOffsets()[dim];
    if (offset < position)
      return {};
    fill(offset);
    pieces.push_back(gradient);
    position = offset + slice.getSizes()[dim];
  }
  fill(x.getDimSize(dim));
  return pieces.size() == 1 ? pieces.front()
                            : ConcatOp::create(builder, loc, pieces, dim).getResult();
}

class ReverseSweep {
public:
  ReverseSweep(OpBuilder &builder, DenseMap<Value, Value> &gradients,
               function_ref<bool(Value)> active)
      : builder(builder), gradients(gradients), active(active) {}

  LogicalResult visit(Operation *op) {
    SmallVector<Value> resultGradients;
    for (Value result : op->getResults())
      resultGradients.push_back(settle(result));
    if (llvm::none_of(resultGradients, [](Value v) { return bool(v); }))
      return success();
    auto needs = [&](unsigned index) {
      return active(op->getOperand(index)) && propagatesGradient(op->getOpOperand(index));
    };
    if (llvm::none_of(llvm::seq<unsigned>(0, op->getNumOperands()), needs))
      return success();

    if (auto slice = dyn_cast<SliceOp>(op)) {
      pendingSlices[slice.getX()].push_back({slice, resultGradients.front()});
      return success();
    }
    auto differentiable = dyn_cast<DifferentiableOpInterface>(op);
    if (!differentiable)
      return op->emitError("'") << op->getName()
                                << "' has no gradient, and a trained parameter depends on it: "
                                   "expected a differentiable operation here";
    FailureOr<SmallVector<Value>> operandGradients =
        differentiable.buildVjp(builder, resultGradients, needs);
    if (failed(operandGradients))
      return failure();
    for (auto [index, gradient] : llvm::enumerate(*operandGradients))
      if (gradient && needs(index))
        accumulate(op->getOperand(index), gradient, op->getLoc());
    return success();
  }

  /// Returns the complete gradient of a value after all its users have been visited, and inserts it
  /// with its pair; null: zero.
  Value settle(Value value) {
    if (auto it = pendingSlices.find(value); it != pendingSlices.end()) {
      SliceGradients parts = std::move(it->second);
      pendingSlices.erase(it);
      if (Value joined = parts.size() > 1 ? joinSlices(builder, parts) : Value())
        accumulate(value, joined, value.getLoc());
      else
        for (auto &[slice, gradient] : parts)
          accumulate(value, padSlice(builder, slice, gradient), slice.getLoc());
    }
    auto it = gradients.find(value);
    if (it == gradients.end())
      return {};
    if (paired.insert(value).second)
      it->second = GradientOfOp::create(builder, value.getLoc(), value, it->second);
    return it->second;
  }

private:
  void accumulate(Value value, Value contribution, Location loc) {
    Value &sum = gradients[value];
    auto round = value.getDefiningOp<RoundOp>();
    const auto narrow = [&](Value gradient) -> Value {
      return round && round.getPerOperator()
                 ? RoundOp::create(builder, loc, gradient, round.getTo()).getY()
                 : gradient;
    };
    contribution = narrow(contribution);
    sum = sum ? narrow(arith::AddFOp::create(builder, loc, sum, contribution)) : contribution;
  }

  OpBuilder &builder;
  DenseMap<Value, Value> &gradients;
  function_ref<bool(Value)> active;
  DenseMap<Value, SliceGradients> pendingSlices;
  DenseSet<Value> paired;
};

} // namespace

LogicalResult autodiff::appendBackward(OpBuilder &builder, ArrayRef<Operation *> forwardOps,
                                       DenseMap<Value, Value> &gradients,
                                       function_ref<bool(Value)> active) {
  ReverseSweep sweep(builder, gradients, active);
  for (Operation *op : llvm::reverse(forwardOps))
    if (failed(sweep.visit(op)))
      return failure();
  // Values defined outside the list (arguments) may have been sliced as well.
  llvm::SmallSetVector<Value, 16> outside;
  for (Operation *op : forwardOps)
    for (Value operand : op->getOperands())
      outside.insert(operand);
  for (Value value : outside)
    sweep.settle(value);
  return success();
}
