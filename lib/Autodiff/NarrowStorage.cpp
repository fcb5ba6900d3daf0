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

Type withElement(Value value, Type element) { return RankedTensorType::get(cast<RankedTensorType>(value.getType()).getShape(), element); }

bool isFloat(Value value) { return isa<FloatType>(getElementTypeOrSelf(value.getType())); }

/// Whether all uses of a value are roundings of it.
bool isOnlyRounded(Value value) {
  return !value.use_empty() && llvm::all_of(value.getUsers(), [](Operation *user) { return isa<RoundOp>(user); });
}

class Narrower {
public:
  Narrower(func::FuncOp function, Type half) : function(function), half(half), builder(function.getContext()) {}

  void run() {
    hoistRounds();
    narrowArguments();
    SmallVector<Operation *> ops;
    for (Operation &op : function.getBody().front().without_terminator())
      ops.push_back(&op);
    for (Operation *op : ops)
      visit(op);
    narrowResults();
    eraseDeadOps(function.getBody().front());
    Operation *terminator = function.getBody().front().getTerminator();
    function.setFunctionType(FunctionType::get(function.getContext(), function.getBody().front().getArgumentTypes(), terminator->getOperandTypes()));
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
        auto inner = RoundOp::create(builder, round.getLoc(), operand.get(), half, round.getStraightThrough());
        operand.set(inner);
        rounds.push_back(inner);
      }
      round.getY().replaceAllUsesWith(view->getResult(0));
      round.erase();
    }
  }

  /// Widens the value to its original type for operations that compute with it.
  void widen(Value wide, Value narrow) {
    auto again = arith::ExtFOp::create(builder, wide.getLoc(), wide.getType(), narrow);
    wide.replaceAllUsesExcept(again, again);
    narrowOf[again] = narrow;
  }

  bool isNarrow(Value value) const { return narrowOf.contains(value); }

  void narrowArguments() {
    builder.setInsertionPointToStart(&function.getBody().front());
    DenseSet<uint32_t> outs;
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      if (function.getResultAttr(i, kNarrowAttr))
        outs.insert(attributeOfResult(function, i).getIndex());
    for (BlockArgument argument : function.getArguments()) {
      unsigned i = argument.getArgNumber();
      ArgumentAttr attribute = attributeOfArgument(function, i);
      bool gradient = isOfKind(attribute, ArgumentKind::BoundaryOutGradient) && outs.contains(attribute.getIndex());
      if (!gradient && !function.getArgAttr(i, kNarrowAttr))
        continue;
      Type wide = argument.getType();
      argument.setType(withElement(argument, half));
      auto again = arith::ExtFOp::create(builder, argument.getLoc(), wide, argument);
      argument.replaceAllUsesExcept(again, again);
      narrowOf[again] = argument;
    }
  }

  void visit(Operation *op) {
    builder.setInsertionPointAfter(op);
    if (auto round = dyn_cast<RoundOp>(op))
      return store(round);
    auto operandsNarrow = [&](unsigned first, unsigned count) {
      return llvm::all_of(op->getOperands().slice(first, count), [&](Value v) { return isNarrow(v); });
    };
    auto readNarrow = [&](unsigned first, unsigned count) {
      for (unsigned i = first; i < first + count; ++i)
        op->setOperand(i, narrowOf.lookup(op->getOperand(i)));
    };
    if (movesElements(op) && operandsNarrow(0, op->getNumOperands())) {
      readNarrow(0, op->getNumOperands());
      retype(op->getResult(0));
    } else if (isa<GatherOp>(op) && operandsNarrow(0, 1)) {
      readNarrow(0, 1);
      retype(op->getResult(0));
    } else if (isa<MatmulOp, ContractOp>(op) && operandsNarrow(0, 2)) {
      readNarrow(0, 2);
      if (isOnlyRounded(op->getResult(0)))
        retype(op->getResult(0));
    } else if (auto attention = dyn_cast<AttentionOp>(op);
               attention && operandsNarrow(0, 3) && isOnlyRounded(attention.getOut()) && !isFloatMask(attention.getMask())) {
      readNarrow(0, 3);
      retype(attention.getOut());
    } else if (auto grad = dyn_cast<AttentionGradOp>(op); grad && operandsNarrow(0, 5) && !isFloatMask(grad.getMask())) {
      readNarrow(0, 5);
      if (llvm::all_of(op->getResults(), isOnlyRounded))
        for (Value result : op->getResults())
          retype(result);
    }
  }

  static bool isFloatMask(Value mask) { return mask && isFloat(mask); }

  /// Changes the type of the result to two bytes.
  void retype(Value result) {
    Type wide = result.getType();
    result.setType(withElement(result, half));
    auto again = arith::ExtFOp::create(builder, result.getLoc(), wide, result);
    result.replaceAllUsesExcept(again, again);
    narrowOf[again] = result;
  }

  void store(RoundOp round) {
    // If the producer has already rounded the value, it is unchanged.
    Value narrow = narrowOf.lookup(round.getX());
    if (!narrow)
      narrow = arith::TruncFOp::create(builder, round.getLoc(), withElement(round.getX(), half), round.getX());
    widen(round.getY(), narrow);
    round.erase();
  }

  void narrowResults() {
    Operation *terminator = function.getBody().front().getTerminator();
    builder.setInsertionPoint(terminator);
    DenseSet<uint32_t> ins;
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      if (ArgumentAttr attribute = attributeOfArgument(function, i);
          isOfKind(attribute, ArgumentKind::BoundaryIn) && function.getArgAttr(i, kNarrowAttr))
        ins.insert(attribute.getIndex());
    for (OpOperand &operand : terminator->getOpOperands()) {
      unsigned i = operand.getOperandNumber();
      ArgumentAttr attribute = attributeOfResult(function, i);
      bool gradient = isOfKind(attribute, ArgumentKind::BoundaryInGradient) && ins.contains(attribute.getIndex());
      if (!gradient && !function.getResultAttr(i, kNarrowAttr))
        continue;
      Value value = operand.get(), narrow = narrowOf.lookup(value);
      // All contributions to this gradient have been summed, because only this unit reads the
      // value. The producer's unit would round the sum in the same way.
      if (!narrow)
        narrow = arith::TruncFOp::create(builder, value.getLoc(), withElement(value, half), value);
      operand.set(narrow);
    }
  }

  func::FuncOp function;
  Type half;
  OpBuilder builder;
  DenseMap<Value, Value> narrowOf; ///< from a widened value to the stored one
};

} // namespace

void autodiff::narrowStorage(func::FuncOp joint) {
  auto rounds = joint.getBody().front().getOps<RoundOp>();
  Type half;
  for (RoundOp round : rounds)
    half = round.getTo();
  for (BlockArgument argument : joint.getArguments())
    if (auto attribute = joint.getArgAttrOfType<TypeAttr>(argument.getArgNumber(), kNarrowAttr))
      half = attribute.getValue();
  if (!half)
    return;
  dropPairs(joint);
  Narrower(joint, half).run();
}
