#include "HiddenMatrices.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Units/Units.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::units;

namespace {

bool isView(Operation *op) { return isa<ReshapeOp, TransposeOp, SliceOp, RoundOp>(op); }

/// Returns the parameter of which a value is a view, or null.
BlockArgument viewedParameter(const ModelGraph &graph, Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!isView(op))
      return {};
    value = op->getOperand(0);
  }
  auto argument = cast<BlockArgument>(value);
  return graph.isParameter(argument) ? argument : BlockArgument();
}

class HiddenLayers {
public:
  explicit HiddenLayers(const ModelGraph &graph) : graph(graph) {
    func::FuncOp model = graph.model;
    for (Operation &op : llvm::reverse(model.getBody().front().without_terminator())) {
      const bool follows =
          llvm::any_of(op.getResults(), [&](Value value) { return beforeLayer.contains(value); });
      if (follows)
        hidden.insert(&op);
      if (follows || isLayer(op))
        beforeLayer.insert(op.operand_begin(), op.operand_end());
    }
  }

  /// Whether a parameter is read by matmuls of hidden layers alone. \param stacked  set if some
  /// matmul has a matrix for each index of the leading dimensions
  bool isHidden(Value parameter, bool regrouped, bool &stacked) const {
    return !parameter.use_empty() && llvm::all_of(parameter.getUses(), [&](OpOperand &use) {
      Operation *op = use.getOwner();
      if (isView(op))
        return isHidden(op->getResult(0), regrouped || isa<ReshapeOp>(op), stacked);
      auto rank = cast<RankedTensorType>(parameter.getType()).getRank();
      stacked |= rank > 2 && !regrouped;
      return isa<MatmulOp>(op) && hidden.contains(op);
    });
  }

private:
  bool isLayer(Operation &op) const {
    return isa<MatmulOp>(op) && llvm::any_of(op.getOperands(), [&](Value operand) {
             return bool(viewedParameter(graph, operand));
           });
  }

  const ModelGraph &graph;
  DenseSet<Value> beforeLayer;  ///< values from which a path leads to a matmul with a parameter
  DenseSet<Operation *> hidden; ///< operations of which a result is such a value
};

} // namespace

void units::markHiddenMatrices(const ModelGraph &graph) {
  const HiddenLayers layers(graph);
  func::FuncOp model = graph.model;
  Builder builder(model.getContext());
  for (BlockArgument argument : model.getArguments()) {
    auto type = cast<RankedTensorType>(argument.getType());
    bool stacked = false;
    if (!graph.isParameter(argument) || !graph.isTrained(argument) || type.getRank() < 2 ||
        !layers.isHidden(argument, /*regrouped=*/false, stacked))
      continue;
    const ArrayRef<int64_t> shape = type.getShape();
    const int64_t rows = stacked ? shape[shape.size() - 2] : shape[0];
    const int64_t columns = stacked ? shape.back() : type.getNumElements() / rows;
    model.setArgAttr(argument.getArgNumber(), kHiddenAttr,
                     builder.getDenseI64ArrayAttr({rows, columns}));
  }
}
