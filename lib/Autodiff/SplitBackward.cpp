// Splits a backward into the gradients of values and the gradients of parameters. Both parts are
// slices of the complete backward. Values that the first part computes and the second needs are
// deferred, or recomputed if that needs fewer bytes and no product or attention.
#include "EditFunction.h"
#include "SavedSet.h"

#include "zorse/Dialect/Zorse/EraseDeadOps.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::autodiff;

namespace {

int64_t bytesOf(ArrayRef<Value> values) {
  int64_t bytes = 0;
  for (Value value : values)
    bytes += savedBytesPerRow(value.getType());
  return bytes;
}

/// Chooses the values that the first part passes to the second (`ops`, which compute `needed`).
/// Other units wait for the first part, so it computes nothing that only the second part needs.
///
/// The second part can read the saved block, but only as a whole. If it reads little of it (an
/// attention's W reads its result, and not queries, keys and values), this little is deferred with
/// the rest, and the saved block is freed after the first part.
std::vector<Value> chooseDeferred(func::FuncOp backward, ArrayRef<Operation *> ops,
                                  const DenseSet<Value> &needed,
                                  const DenseSet<Operation *> &first) {
  auto offered = [&](OpResult value) { return first.contains(value.getOwner()); };
  std::vector<Value> besides = chooseCut(ops, needed, offered, isExpensive), saved;
  for (BlockArgument argument : backward.getArguments())
    if (isOfKind(attributeOfArgument(backward, argument.getArgNumber()), ArgumentKind::Saved) &&
        carriesSamples(argument.getType()))
      saved.push_back(argument);
  std::vector<Value> instead = chooseCut(ops, needed, offered, isExpensive, saved);
  constexpr double kWorth = 0.9; // fraction of the bytes held: copies cost time in the part that
                                 // others wait for
  return bytesOf(instead) < kWorth * (bytesOf(besides) + bytesOf(saved)) ? instead : besides;
}

/// Removes operations and arguments without uses after some results were removed.
void prune(func::FuncOp function) {
  eraseDeadOps(function.getBody().front());
  dropUnusedArguments(function);
  dropUnusedStatistics(function.getBody().front());
}

} // namespace

SplitBackward autodiff::splitBackward(func::FuncOp backward) {
  auto ofInputs = [](ArgumentKind kind) { return kind == ArgumentKind::BoundaryInGradient; };
  auto ofWeights = [](ArgumentKind kind) { return kind == ArgumentKind::ParameterGradient; };
  SmallVector<Value> weightGradients = resultsOf(backward, ofWeights);
  if (resultsOf(backward, ofInputs).empty() || weightGradients.empty())
    return {};

  DenseSet<Operation *> first = sliceOf(backward, ofInputs), second = sliceOf(backward, ofWeights);
  SmallVector<Operation *> ops;
  DenseSet<Value> needed(weightGradients.begin(), weightGradients.end());
  for (Operation &op : backward.getBody().front().without_terminator())
    if (second.contains(&op))
      ops.push_back(&op);
  std::vector<Value> deferred = chooseDeferred(backward, ops, needed, first);

  IRMapping toWeights, toInputs;
  func::FuncOp weights = cloneAs(backward, Task::WeightGradients, toWeights);
  func::FuncOp inputs = cloneAs(backward, Task::InputGradients, toInputs);
  dropResults(inputs, ofWeights);
  dropResults(weights, ofInputs);
  SmallVector<ResultValue> results;
  for (auto [index, value] : llvm::enumerate(deferred)) {
    results.push_back({toInputs.lookup(value), ArgumentKind::SavedForWeightGrad, uint32_t(index)});
    Value argument = addArgument(weights, value.getType(), ArgumentKind::SavedForWeightGrad,
                                 uint32_t(index), value.getLoc());
    toWeights.lookup(value).replaceAllUsesWith(argument);
  }
  appendResults(inputs, results);
  prune(inputs);
  prune(weights);
  return {inputs, weights};
}
