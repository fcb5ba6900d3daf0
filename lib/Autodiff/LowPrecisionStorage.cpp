// Runs between steps 1 and 2 of differentiation: stores results of roundings in two bytes. No
// computed bit changes.
#include "EditFunction.h"

#include "zorse/Dialect/Zorse/EraseDeadOps.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::autodiff;

namespace {

Type withElement(Value value, Type element) {
  return RankedTensorType::get(cast<RankedTensorType>(value.getType()).getShape(), element);
}

bool isFloat(Value value) { return isa<FloatType>(getElementTypeOrSelf(value.getType())); }

/// Whether all uses of a value are roundings of it.
bool isOnlyRounded(Value value) {
  return !value.use_empty() &&
         llvm::all_of(value.getUsers(), [](Operation *user) { return isa<RoundOp>(user); });
}

class StorageConverter {
public:
  StorageConverter(func::FuncOp function, Type half)
      : function(function), half(half), builder(function.getContext()) {}

  void run() {
    hoistRounds();
    convertArguments();
    SmallVector<Operation *> ops;
    for (Operation &op : function.getBody().front().without_terminator())
      ops.push_back(&op);
    for (Operation *op : ops)
      visit(op);
    convertResults();
    eraseDeadOps(function.getBody().front());
    Operation *terminator = function.getBody().front().getTerminator();
    function.setFunctionType(FunctionType::get(function.getContext(),
                                               function.getBody().front().getArgumentTypes(),
                                               terminator->getOperandTypes()));
  }

private:
  /// round(view(x)) equals view(round(x)): moves the rounding to the producer of x, which can then
  /// write two bytes directly.
  void hoistRounds() {
    SmallVector<RoundOp> rounds(function.getBody().front().getOps<RoundOp>());
    while (!rounds.empty()) {
      RoundOp round = rounds.pop_back_val();
      Operation *view = round.getX().getDefiningOp();
      if (!view || !view->hasOneUse() || !isa<ReshapeOp, TransposeOp, ConcatOp>(view))
        continue;
      builder.setInsertionPoint(view);
      for (OpOperand &operand : view->getOpOperands()) {
        auto inner = RoundOp::create(builder, round.getLoc(), operand.get(), half,
                                     round.getStraightThrough());
        operand.set(inner);
        rounds.push_back(inner);
      }
      round.getY().replaceAllUsesWith(view->getResult(0));
      round.erase();
    }
  }

  /// Converts the value to its original type for operations that compute with it.
  void widen(Value computed, Value lowPrecision) {
    auto again =
        arith::ExtFOp::create(builder, computed.getLoc(), computed.getType(), lowPrecision);
    computed.replaceAllUsesExcept(again, again);
    lowPrecisionOf[again] = lowPrecision;
  }

  bool isLowPrecision(Value value) const { return lowPrecisionOf.contains(value); }

  void convertArguments() {
    builder.setInsertionPointToStart(&function.getBody().front());
    DenseSet<uint32_t> outs;
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      if (function.getResultAttr(i, kLowPrecisionAttr))
        outs.insert(attributeOfResult(function, i).getIndex());
    for (BlockArgument argument : function.getArguments()) {
      unsigned i = argument.getArgNumber();
      ArgumentAttr attribute = attributeOfArgument(function, i);
      bool gradient = isOfKind(attribute, ArgumentKind::BoundaryOutGradient) &&
                      outs.contains(attribute.getIndex());
      if (!gradient && !function.getArgAttr(i, kLowPrecisionAttr))
        continue;
      Type computed = argument.getType();
      argument.setType(withElement(argument, half));
      auto again = arith::ExtFOp::create(builder, argument.getLoc(), computed, argument);
      argument.replaceAllUsesExcept(again, again);
      lowPrecisionOf[again] = argument;
    }
  }

  void visit(Operation *op) {
    builder.setInsertionPointAfter(op);
    if (auto round = dyn_cast<RoundOp>(op))
      return store(round);
    auto operandsLowPrecision = [&](unsigned first, unsigned count) {
      return llvm::all_of(op->getOperands().slice(first, count),
                          [&](Value v) { return isLowPrecision(v); });
    };
    auto readLowPrecision = [&](unsigned first, unsigned count) {
      for (unsigned i = first; i < first + count; ++i)
        op->setOperand(i, lowPrecisionOf.lookup(op->getOperand(i)));
    };
    if (movesElements(op) && operandsLowPrecision(0, op->getNumOperands())) {
      readLowPrecision(0, op->getNumOperands());
      retype(op->getResult(0));
    } else if (isa<GatherOp>(op) && operandsLowPrecision(0, 1)) {
      readLowPrecision(0, 1);
      retype(op->getResult(0));
    } else if (isa<MatmulOp, MatmulGradWeightOp>(op) && operandsLowPrecision(0, 2)) {
      readLowPrecision(0, 2);
      if (isOnlyRounded(op->getResult(0)))
        retype(op->getResult(0));
    } else if (auto attention = dyn_cast<AttentionOp>(op);
               attention && operandsLowPrecision(0, 3) && isOnlyRounded(attention.getOut()) &&
               !isFloatMask(attention.getMask())) {
      readLowPrecision(0, 3);
      retype(attention.getOut());
    } else if (auto grad = dyn_cast<AttentionGradOp>(op);
               grad && operandsLowPrecision(0, 5) && !isFloatMask(grad.getMask())) {
      readLowPrecision(0, 5);
      if (llvm::all_of(op->getResults(), isOnlyRounded))
        for (Value result : op->getResults())
          retype(result);
    }
  }

  static bool isFloatMask(Value mask) { return mask && isFloat(mask); }

  /// Changes the type of the result to two bytes.
  void retype(Value result) {
    Type computed = result.getType();
    result.setType(withElement(result, half));
    auto again = arith::ExtFOp::create(builder, result.getLoc(), computed, result);
    result.replaceAllUsesExcept(again, again);
    lowPrecisionOf[again] = result;
  }

  void store(RoundOp round) {
    // If the producer has already rounded the value, it is unchanged.
    Value lowPrecision = lowPrecisionOf.lookup(round.getX());
    if (!lowPrecision)
      lowPrecision = arith::TruncFOp::create(builder, round.getLoc(),
                                             withElement(round.getX(), half), round.getX());
    widen(round.getY(), lowPrecision);
    round.erase();
  }

  void convertResults() {
    Operation *terminator = function.getBody().front().getTerminator();
    builder.setInsertionPoint(terminator);
    DenseSet<uint32_t> ins;
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      if (ArgumentAttr attribute = attributeOfArgument(function, i);
          isOfKind(attribute, ArgumentKind::BoundaryIn) &&
          function.getArgAttr(i, kLowPrecisionAttr))
        ins.insert(attribute.getIndex());
    for (OpOperand &operand : terminator->getOpOperands()) {
      unsigned i = operand.getOperandNumber();
      ArgumentAttr attribute = attributeOfResult(function, i);
      bool gradient = isOfKind(attribute, ArgumentKind::BoundaryInGradient) &&
                      ins.contains(attribute.getIndex());
      if (!gradient && !function.getResultAttr(i, kLowPrecisionAttr))
        continue;
      Value value = operand.get(), lowPrecision = lowPrecisionOf.lookup(value);
      // All contributions to this gradient have been summed, because only this unit reads the
      // value. The producer's unit would round the sum in the same way.
      if (!lowPrecision)
        lowPrecision =
            arith::TruncFOp::create(builder, value.getLoc(), withElement(value, half), value);
      operand.set(lowPrecision);
    }
  }

  func::FuncOp function;
  Type half;
  OpBuilder builder;
  DenseMap<Value, Value> lowPrecisionOf; ///< from a widened value to the stored one
};

} // namespace

void autodiff::useLowPrecisionStorage(func::FuncOp joint) {
  auto rounds = joint.getBody().front().getOps<RoundOp>();
  Type half;
  for (RoundOp round : rounds)
    half = round.getTo();
  for (BlockArgument argument : joint.getArguments())
    if (auto attribute =
            joint.getArgAttrOfType<TypeAttr>(argument.getArgNumber(), kLowPrecisionAttr))
      half = attribute.getValue();
  if (!half)
    return;
  dropPairs(joint);
  StorageConverter(joint, half).run();
}
