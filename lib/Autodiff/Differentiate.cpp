// From a forward unit function to forward + backward for one saved set. Forward and gradients are first built in one block; the block is then cut:
// saved values become arguments, what else the gradients read stays as recomputation, the rest of the forward disappears.
#include "EditFunction.h"
#include "SavedSet.h"
#include "VjpBuilder.h"

#include "zorse/Autodiff/Autodiff.h"
#include "zorse/Dialect/Zorse/EraseDeadOps.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::autodiff;

namespace {

int64_t indexOf(Attribute index) { return cast<IntegerAttr>(index).getInt(); }

/// The values on a way from an argument that wants a gradient to a result that has one.
DenseSet<Value> activeValuesOf(func::FuncOp function) {
  Block &body = function.getBody().front();
  SmallVector<Value> sources, targets;
  for (BlockArgument argument : body.getArguments())
    if (function.getArgAttr(argument.getArgNumber(), kGradientAttr))
      sources.push_back(argument);
  for (auto [i, returned] : llvm::enumerate(body.getTerminator()->getOperands()))
    if (function.getResultAttr(i, kGradientAttr) || function.getResultAttrOfType<StringAttr>(i, kSlotAttr).getValue() == "loss")
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

class BackwardBuilder {
public:
  BackwardBuilder(func::FuncOp forward, SavePolicy policy) : forward(forward), policy(policy) {}

  FailureOr<func::FuncOp> build() {
    requestStatistics(forward);
    declare();
    if (failed(buildGradients()))
      return failure();
    cut();
    scheduleRecomputation();
    dropUnusedArguments(backward);
    dropUnusedStatistics(forward.getBody().front());
    dropUnusedStatistics(backward.getBody().front());
    return backward;
  }

private:
  /// The backward with the forward's arguments and a copy of its operations.
  void declare() {
    OpBuilder builder(forward.getContext());
    builder.setInsertionPointAfter(forward);
    StringRef name = forward.getName();
    name.consume_back(".forward");
    backward = func::FuncOp::create(builder, forward.getLoc(), (name + ".backward").str(),
                                    builder.getFunctionType(forward.getArgumentTypes(), {}));
    Block *body = backward.addEntryBlock();
    Block &original = forward.getBody().front();
    IRMapping mapping;
    for (auto [from, to] : llvm::zip(original.getArguments(), body->getArguments())) {
      mapping.map(from, to);
      setSlot(backward, true, to.getArgNumber(), slotOfArgument(forward, from.getArgNumber()), indexOf(forward.getArgAttr(from.getArgNumber(), kIndexAttr)));
      to.setLoc(from.getLoc());
    }
    builder.setInsertionPointToEnd(body);
    for (Operation &op : original.without_terminator()) {
      Operation *copy = builder.clone(op, mapping);
      copies.push_back(copy);
      for (auto [from, to] : llvm::zip(op.getResults(), copy->getResults()))
        origin[to] = from;
    }
    Operation *terminator = original.getTerminator();
    for (Value returned : terminator->getOperands())
      returnedCopies.push_back(mapping.lookup(returned));
    func::ReturnOp::create(builder, forward.getLoc());
  }

  LogicalResult buildGradients() {
    OpBuilder builder(backward.getBody().front().getTerminator());
    // Whether a value is active is asked of the forward and answered for its copy.
    DenseSet<Value> active = activeValuesOf(forward);
    auto isActive = [&](Value value) {
      if (auto it = origin.find(value); it != origin.end())
        return active.contains(it->second);
      auto argument = dyn_cast<BlockArgument>(value);
      return argument && argument.getArgNumber() < forward.getNumArguments() && active.contains(forward.getArgument(argument.getArgNumber()));
    };

    DenseMap<Value, Value> gradients;
    for (auto [i, returned] : llvm::enumerate(returnedCopies)) {
      StringRef slot = forward.getResultAttrOfType<StringAttr>(i, kSlotAttr).getValue();
      int64_t index = indexOf(forward.getResultAttr(i, kIndexAttr));
      Location loc = returned.getLoc();
      Value seed;
      if (slot == "boundary_out" && forward.getResultAttr(i, kGradientAttr))
        seed = addArgument(backward, returned.getType(), "boundary_out_gradient", index, loc);
      else if (slot == "loss" && isActive(returned))
        seed = lossSeed(builder, cast<RankedTensorType>(returned.getType()), index, loc);
      if (!seed)
        continue;
      Value &sum = gradients[returned];
      sum = sum ? arith::AddFOp::create(builder, loc, sum, seed).getResult() : seed;
    }
    if (failed(appendBackward(builder, copies, gradients, isActive)))
      return failure();

    SmallVector<SlotValue> results;
    for (StringRef kind : {"boundary_in", "parameter"})
      for (unsigned i = 0; i < forward.getNumArguments(); ++i) {
        if (slotOfArgument(forward, i) != kind || !forward.getArgAttr(i, kGradientAttr))
          continue;
        Value argument = backward.getArgument(i);
        Value gradient = gradients.lookup(argument);
        // Others count on this contribution, so a gradient that vanishes is returned as zeros.
        if (!gradient)
          gradient = createSplat(builder, argument.getLoc(), cast<RankedTensorType>(argument.getType()), 0.0);
        results.push_back({gradient, kind == "parameter" ? "parameter_gradient" : "boundary_in_gradient", indexOf(forward.getArgAttr(i, kIndexAttr))});
      }
    appendResults(backward, results);
    return success();
  }

  /// lossSeed[k], read at run time, for every row.
  Value lossSeed(OpBuilder &builder, RankedTensorType type, int64_t index, Location loc) {
    auto f64 = RankedTensorType::get({}, builder.getF64Type());
    Value seed = addArgument(backward, f64, "scalars", index, loc);
    if (!type.getElementType().isF64())
      seed = arith::TruncFOp::create(builder, loc, RankedTensorType::get({}, type.getElementType()), seed);
    return BroadcastOp::create(builder, loc, type, seed, ArrayRef<int64_t>{});
  }

  bool isCopy(Operation *op) const { return copySet.contains(op); }

  /// Replaces the saved values by arguments, and returns them from the forward.
  void cut() {
    copySet.insert(copies.begin(), copies.end());
    DenseSet<Value> needed;
    for (Operation &op : backward.getBody().front())
      if (!isCopy(&op))
        for (Value operand : op.getOperands())
          if (Operation *producer = operand.getDefiningOp(); producer && isCopy(producer))
            needed.insert(operand);

    SmallVector<SlotValue> results;
    for (auto [index, value] : llvm::enumerate(chooseSaved(copies, needed, policy))) {
      results.push_back({origin[value], "saved", int64_t(index)});
      Value argument = addArgument(backward, value.getType(), "saved", index, value.getLoc());
      value.replaceAllUsesWith(argument);
    }
    appendResults(forward, results);
  }

  /// Erases copies that are not read any more and moves the others to just before their first reader, so that they live shortly.
  void scheduleRecomputation() {
    for (Operation *op : llvm::reverse(copies)) {
      if (op->use_empty()) {
        op->erase();
        continue;
      }
      Operation *firstUser = nullptr;
      for (Operation *user : op->getUsers())
        if (!firstUser || user->isBeforeInBlock(firstUser))
          firstUser = user;
      op->moveBefore(firstUser);
    }
    eraseDeadOps(backward.getBody().front()); // gradient operations that lead nowhere
  }

  func::FuncOp forward, backward;
  SavePolicy policy;
  SmallVector<Operation *> copies; ///< the forward's operations in the backward, in order
  DenseSet<Operation *> copySet;
  DenseMap<Value, Value> origin; ///< result of a copy -> result of the forward
  SmallVector<Value> returnedCopies;
};

/// Anything to do: a gradient is asked for, and one can arrive.
bool needsBackward(func::FuncOp forward) {
  bool wanted = false;
  for (unsigned i = 0; i < forward.getNumArguments(); ++i)
    wanted |= bool(forward.getArgAttr(i, kGradientAttr));
  return wanted;
}

} // namespace

/// Where gradients stop has been decided: from here on it is the value itself.
static void dropDetaches(func::FuncOp function) {
  for (Operation &op : llvm::make_early_inc_range(function.getBody().front()))
    if (auto detach = dyn_cast<DetachOp>(op)) {
      detach.getY().replaceAllUsesWith(detach.getX());
      detach.erase();
    }
}

FailureOr<Differentiated> autodiff::differentiate(func::FuncOp forward, SavePolicy policy) {
  Differentiated result{forward, nullptr};
  if (needsBackward(forward)) {
    FailureOr<func::FuncOp> backward = BackwardBuilder(forward, policy).build();
    if (failed(backward))
      return failure();
    result.backward = *backward;
    dropDetaches(result.backward);
  }
  dropDetaches(forward);
  return result;
}
