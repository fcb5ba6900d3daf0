// The saved set and the deferred set are vertex cuts. Every value is a node with its bytes per row
// as capacity. Values that must not be recomputed are connected to the source, values that the
// gradients read are connected to the sink, and operands are connected to results. Values that can
// be recomputed cheaply from arguments are not connected to the source and cost nothing.
#include "SavedSet.h"

#include "EditFunction.h"
#include "zorse/Base/MaxFlow.h"
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

bool autodiff::isExpensive(OpResult value) {
  Operation *op = value.getOwner();
  if (isa<MatmulOp, MatmulGradWeightOp, AttentionOp, AttentionGradOp, CrossEntropyOp, AllReduceOp,
          AllGatherOp>(op))
    return true;
  return hasOptionalStatistics(op) && value.getResultNumber() > 0;
}

std::vector<Value> autodiff::chooseCut(ArrayRef<Operation *> ops, const DenseSet<Value> &needed,
                                       function_ref<bool(OpResult)> offered,
                                       function_ref<bool(OpResult)> once,
                                       ArrayRef<Value> arguments) {
  std::vector<Value> values(arguments.begin(), arguments.end());
  DenseMap<Value, int> index;
  for (auto [i, argument] : llvm::enumerate(arguments))
    index[argument] = i;
  for (Operation *op : ops)
    for (Value result : op->getResults()) {
      index[result] = values.size();
      values.push_back(result);
    }
  // Values that depend only on constants and arguments without a batch dimension have no rows to
  // save. An exchanged value depends on samples even if the device adds only zeros.
  DenseSet<Value> sampled;
  for (Operation *op : ops)
    if (isa<AllReduceOp, AllGatherOp>(op) || llvm::any_of(op->getOperands(), [&](Value v) {
          return sampled.contains(v) || (isa<BlockArgument>(v) && carriesSamples(v.getType()));
        }))
      sampled.insert(op->result_begin(), op->result_end());

  // Node 2i is the computed value, 2i + 1 the value available to its readers.
  int source = 2 * values.size(), sink = source + 1;
  MaxFlow flow(sink + 1);
  constexpr int64_t kBytes = 4096; // bytes dominate; the lower digits break ties
  for (auto [i, argument] : llvm::enumerate(arguments)) {
    flow.addEdge(2 * i, 2 * i + 1, savedBytesPerRow(argument.getType()) * kBytes + 1);
    flow.addEdge(source, 2 * i, MaxFlow::kInfinite);
  }
  for (Operation *op : ops)
    for (OpResult result : op->getResults()) {
      int i = index[result];
      bool keepable = carriesSamples(result.getType()) && sampled.contains(result) &&
                      offered(result);
      flow.addEdge(2 * i, 2 * i + 1,
                   keepable ? savedBytesPerRow(result.getType()) * kBytes + (isView(op) ? 1 : 0)
                            : MaxFlow::kInfinite);
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

void autodiff::chooseSaved(func::FuncOp joint, RecomputePolicy policy) {
  SmallVector<Value> gradients = resultsOf(joint, isGradientKind);
  if (policy == RecomputePolicy::Full || gradients.empty())
    return;
  DenseSet<Operation *> forward = sliceOf(joint, isForwardKind);
  SmallVector<Operation *> ops;
  DenseSet<Value> needed;
  auto need = [&](Value value) {
    if (Operation *producer = value.getDefiningOp(); producer && forward.contains(producer))
      needed.insert(value);
  };
  for (Operation &op : joint.getBody().front().without_terminator())
    if (forward.contains(&op))
      ops.push_back(&op);
    else if (auto pair = dyn_cast<GradientOfOp>(op)) // does not read the forward value
      need(pair.getGradient());
    else
      llvm::for_each(op.getOperands(), need);
  llvm::for_each(gradients, need);

  SmallVector<ResultValue> saved;
  auto once = [&](OpResult value) {
    return isExpensive(value) || (policy == RecomputePolicy::None && !isView(value.getOwner()));
  };
  for (auto [index, value] :
       llvm::enumerate(chooseCut(ops, needed, [](OpResult) { return true; }, once)))
    saved.push_back({value, ArgumentKind::Saved, uint32_t(index)});
  appendResults(joint, saved);
}
