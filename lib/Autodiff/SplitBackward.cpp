// A backward in two: what gradients of values need, and what gradients of parameters need besides. Both are slices of the whole backward; what the
// first makes and the second needs is deferred or, where that takes fewer bytes and no product or attention, made again.
#include "EditFunction.h"
#include "SavedSet.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::autodiff;

namespace {

/// The operations that results of this slot depend on.
DenseSet<Operation *> sliceOf(func::FuncOp function, StringRef slot) {
  DenseSet<Operation *> slice;
  Block &body = function.getBody().front();
  Operation *terminator = body.getTerminator();
  auto add = [&](Value value) {
    if (Operation *producer = value.getDefiningOp())
      slice.insert(producer);
  };
  for (auto [i, returned] : llvm::enumerate(terminator->getOperands()))
    if (slotOfResult(function, i) == slot)
      add(returned);
  for (Operation &op : llvm::reverse(body.without_terminator()))
    if (slice.contains(&op))
      for (Value operand : op.getOperands())
        add(operand);
  return slice;
}

func::FuncOp cloneAs(func::FuncOp function, StringRef name, IRMapping &mapping) {
  OpBuilder builder(function);
  builder.setInsertionPointAfter(function);
  auto clone = cast<func::FuncOp>(builder.clone(*function, mapping));
  clone.setName(name);
  return clone;
}

/// What is left when some results are gone.
void prune(func::FuncOp function) {
  eraseDeadOps(function.getBody().front());
  dropUnusedArguments(function);
  dropUnusedStatistics(function.getBody().front());
}

} // namespace

SplitBackward autodiff::splitBackward(func::FuncOp backward) {
  auto makes = [&](StringRef slot) { return llvm::any_of(llvm::seq(backward.getNumResults()), [&](unsigned i) { return slotOfResult(backward, i) == slot; }); };
  if (!makes(kInputGradient) || !makes(kWeightGradient))
    return {};

  DenseSet<Operation *> first = sliceOf(backward, kInputGradient), second = sliceOf(backward, kWeightGradient);
  SmallVector<Operation *> ops;
  DenseSet<Value> needed;
  for (Operation &op : backward.getBody().front().without_terminator())
    if (second.contains(&op))
      ops.push_back(&op);
  for (auto [i, returned] : llvm::enumerate(backward.getBody().front().getTerminator()->getOperands()))
    if (slotOfResult(backward, i) == kWeightGradient)
      needed.insert(returned);
  // Others wait for the first part: it makes nothing that only the second needs.
  std::vector<Value> deferred = chooseCut(
      ops, needed, [&](OpResult value) { return first.contains(value.getOwner()); }, [](OpResult value) { return isExpensive(value); });

  StringRef name = backward.getName();
  name.consume_back(".backward");
  IRMapping toWeights, toInputs;
  func::FuncOp weights = cloneAs(backward, (name + ".backward_weights").str(), toWeights);
  func::FuncOp inputs = cloneAs(backward, (name + ".backward_inputs").str(), toInputs);
  dropResults(inputs, [](StringRef slot) { return slot == kWeightGradient; });
  dropResults(weights, [](StringRef slot) { return slot == kInputGradient; });
  SmallVector<SlotValue> results;
  for (auto [index, value] : llvm::enumerate(deferred)) {
    results.push_back({toInputs.lookup(value), "deferred", int64_t(index)});
    toWeights.lookup(value).replaceAllUsesWith(addArgument(weights, value.getType(), "deferred", index, value.getLoc()));
  }
  appendResults(inputs, results);
  prune(inputs);
  prune(weights);
  return {inputs, weights};
}
