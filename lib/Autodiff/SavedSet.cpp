// The saved set is a vertex cut, and so is the deferred set: every value is a node whose capacity is its bytes per row; what must not be computed twice
// is a source, what the gradients read leads to the sink, operands lead to results. Values that follow cheaply from arguments hang on no source and cost nothing.
#include "SavedSet.h"

#include "MaxFlow.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::autodiff;

int64_t autodiff::bytesPerRow(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  unsigned bits = tensor.getElementTypeBitWidth();
  return elementsPerRow(tensor) * std::max<int64_t>(1, bits / 8);
}

int64_t autodiff::savedBytesPerRow(Type type) { return (bytesPerRow(type) + 63) / 64 * 64; }

bool autodiff::isView(Operation *op) { return isa<ReshapeOp, TransposeOp, SliceOp, BroadcastOp>(op); }

bool autodiff::isExpensive(OpResult value) {
  Operation *op = value.getOwner();
  if (isa<MatmulOp, ContractOp, AttentionOp, AttentionGradOp, CrossEntropyOp>(op))
    return true;
  return hasOptionalStatistics(op) && value.getResultNumber() > 0;
}

std::vector<Value> autodiff::chooseSaved(ArrayRef<Operation *> forwardOps, const DenseSet<Value> &needed, SavePolicy policy) {
  if (policy == SavePolicy::Full)
    return {};
  return chooseCut(
      forwardOps, needed, [](OpResult) { return true; },
      [&](OpResult value) { return isExpensive(value) || (policy == SavePolicy::Keep && !isView(value.getOwner())); });
}

std::vector<Value> autodiff::chooseCut(ArrayRef<Operation *> ops, const DenseSet<Value> &needed, function_ref<bool(OpResult)> offered,
                                       function_ref<bool(OpResult)> once, ArrayRef<Value> arguments) {
  std::vector<Value> values(arguments.begin(), arguments.end());
  DenseMap<Value, int> index;
  for (auto [i, argument] : llvm::enumerate(arguments))
    index[argument] = i;
  for (Operation *op : ops)
    for (Value result : op->getResults()) {
      index[result] = values.size();
      values.push_back(result);
    }
  // What follows from constants and unsampled arguments alone has no rows of its own to keep.
  DenseSet<Value> sampled;
  for (Operation *op : ops)
    if (llvm::any_of(op->getOperands(), [&](Value v) { return sampled.contains(v) || (isa<BlockArgument>(v) && carriesSamples(v.getType())); }))
      sampled.insert(op->result_begin(), op->result_end());

  // Node 2i is the value computed, 2i + 1 the value available to whoever needs it.
  int source = 2 * values.size(), sink = source + 1;
  MaxFlow flow(sink + 1);
  constexpr int64_t kBytes = 4096; // bytes dominate; the rest breaks ties
  for (auto [i, argument] : llvm::enumerate(arguments)) {
    flow.addEdge(2 * i, 2 * i + 1, savedBytesPerRow(argument.getType()) * kBytes + 1);
    flow.addEdge(source, 2 * i, MaxFlow::kInfinite);
  }
  for (Operation *op : ops)
    for (OpResult result : op->getResults()) {
      int i = index[result];
      bool keepable = carriesSamples(result.getType()) && sampled.contains(result) && offered(result);
      flow.addEdge(2 * i, 2 * i + 1, keepable ? savedBytesPerRow(result.getType()) * kBytes + (isView(op) ? 1 : 0) : MaxFlow::kInfinite);
      if (keepable && once(result))
        flow.addEdge(source, 2 * i, MaxFlow::kInfinite);
      if (needed.contains(result))
        flow.addEdge(2 * i + 1, sink, MaxFlow::kInfinite);
      for (Value operand : op->getOperands())
        if (auto it = index.find(operand); it != index.end())
          flow.addEdge(2 * it->second + 1, 2 * i, MaxFlow::kInfinite);
    }
  flow.solve(source, sink);

  std::vector<bool> onSinkSide = flow.sinkSide(sink);
  std::vector<Value> chosen;
  for (auto [i, value] : llvm::enumerate(values))
    if (!onSinkSide[2 * i] && onSinkSide[2 * i + 1])
      chosen.push_back(value);
  return chosen;
}
