#include "InputRoles.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <algorithm>

using namespace mlir;
using namespace zorse;
using namespace zorse::units;

namespace {

/// Use of an integer input by the model.
struct InputUse {
  StringRef role;
  int64_t upperBound = 0; ///< exclusive; 0: none
  std::optional<int64_t> ignoreIndex;
  bool shifted = false;
};

class InputReader {
public:
  explicit InputReader(InputUse &info) : info(info) {}

  void follow(Value value, bool shifted) {
    for (OpOperand &use : value.getUses()) {
      Operation *op = use.getOwner();
      if (auto gather = dyn_cast<GatherOp>(op)) {
        if (use.getOperandNumber() == 1) {
          bound(gather.getTable().getType().getDimSize(0));
          info.role = "ids"; // also if the graph computes labels from them
        }
      } else if (auto take = dyn_cast<TakeAlongDimOp>(op)) {
        if (use.getOperandNumber() == 1)
          label(take.getX().getType().getShape().back(), shifted);
      } else if (auto loss = dyn_cast<CrossEntropyOp>(op)) {
        if (value != loss.getLabels())
          continue;
        label(loss.getLogits().getType().getShape().back(), shifted);
        if (std::optional<int64_t> ignored = loss.getIgnoreIndex())
          info.ignoreIndex = ignored;
      } else if (auto slice = dyn_cast<SliceOp>(op)) {
        // Positions are dimension 1: a slice that starts at 1 pairs every position with its
        // successor.
        follow(slice.getY(),
               shifted || (slice.getOffsets().size() > 1 && slice.getOffsets()[1] > 0));
      } else if (isa<ReshapeOp, TransposeOp, ConcatOp, BroadcastOp, arith::ExtSIOp,
                     arith::TruncIOp>(op)) {
        follow(op->getResult(0), shifted);
      }
    }
  }

private:
  void bound(int64_t rows) {
    info.upperBound = info.upperBound ? std::min(info.upperBound, rows) : rows;
  }
  void label(int64_t classes, bool shifted) {
    bound(classes);
    if (info.role.empty())
      info.role = "labels";
    info.shifted |= shifted;
  }

  InputUse &info;
};

} // namespace

void units::describeInputs(const ModelGraph &graph) {
  func::FuncOp model = graph.model;
  for (BlockArgument input : model.getArguments()) {
    if (graph.isParameter(input))
      continue;
    unsigned i = input.getArgNumber();
    InputUse use;
    if (Type type = getElementTypeOrSelf(input.getType()); type.isInteger(64) || type.isInteger(32))
      InputReader(use).follow(input, false);
    Builder b(model.getContext());
    auto set = [&](StringRef name,
                   Attribute value) { // attributes set by the importer take precedence
      if (!model.getArgAttr(i, name))
        model.setArgAttr(i, name, value);
    };
    if (!use.role.empty())
      set(attributes::kRole, b.getStringAttr(use.role));
    if (use.upperBound)
      set(attributes::kUpperBound, b.getI64IntegerAttr(use.upperBound));
    if (use.ignoreIndex && use.role != "ids") // an ignored id would still index the embedding
      set(attributes::kIgnoreIndex, b.getI64IntegerAttr(*use.ignoreIndex));
    if (use.shifted)
      set(attributes::kShiftedInGraph, b.getBoolAttr(true));
  }
}

void units::readInput(func::FuncOp model, unsigned i, bundle::GraphInput &info) {
  if (auto role = model.getArgAttrOfType<StringAttr>(i, attributes::kRole))
    info.set_role(role.getValue().str());
  if (auto bound = model.getArgAttrOfType<IntegerAttr>(i, attributes::kLowerBound))
    info.set_lower_bound(bound.getInt());
  if (auto bound = model.getArgAttrOfType<IntegerAttr>(i, attributes::kUpperBound))
    info.set_upper_bound(bound.getInt());
  if (auto ignored = model.getArgAttrOfType<IntegerAttr>(i, attributes::kIgnoreIndex)) {
    info.set_ignore_allowed(true);
    info.set_ignore_index(ignored.getInt());
  }
  if (auto shifted = model.getArgAttrOfType<BoolAttr>(i, attributes::kShiftedInGraph))
    info.set_shifted_in_graph(shifted.getValue());
}
