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

  /// Whether a parameter is read by matmuls of hidden layers alone. \param matrices  receives the
  /// sizes of the matrices that they read
  bool isHidden(Value view, SmallVectorImpl<std::pair<int64_t, int64_t>> &matrices) const {
    return !view.use_empty() && llvm::all_of(view.getUses(), [&](OpOperand &use) {
      Operation *op = use.getOwner();
      if (isView(op))
        return isHidden(op->getResult(0), matrices);
      ArrayRef<int64_t> shape = cast<RankedTensorType>(view.getType()).getShape();
      if (!isa<MatmulOp>(op) || !hidden.contains(op) || shape.size() < 2)
        return false;
      matrices.push_back({shape[shape.size() - 2], shape.back()});
      return true;
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
    SmallVector<std::pair<int64_t, int64_t>> matrices;
    if (!graph.isParameter(argument) || !graph.isTrained(argument) || type.getRank() < 2 ||
        !layers.isHidden(argument, matrices))
      continue;
    // A stack of matrices, as of experts, is read as matrices of its last two dimensions.
    const ArrayRef<int64_t> shape = type.getShape();
    const std::pair<int64_t, int64_t> last{shape[shape.size() - 2], shape.back()},
        turned{last.second, last.first};
    const bool stacked = llvm::any_of(
        matrices, [&](const auto &matrix) { return matrix == last || matrix == turned; });
    const int64_t rows = stacked ? last.first : shape[0];
    const int64_t columns = stacked ? last.second : type.getNumElements() / rows;
    model.setArgAttr(argument.getArgNumber(), kHiddenAttr,
                     builder.getDenseI64ArrayAttr({rows, columns}));
  }
}
