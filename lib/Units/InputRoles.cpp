#include "InputRoles.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <algorithm>

using namespace mlir;
using namespace zorse;
using namespace zorse::units;

namespace {

class InputReader {
public:
  explicit InputReader(bundle::GraphInput &info) : info(info) {}

  void follow(Value value, bool shifted) {
    for (OpOperand &use : value.getUses()) {
      Operation *op = use.getOwner();
      if (auto gather = dyn_cast<GatherOp>(op)) {
        if (use.getOperandNumber() == 1) {
          bound(gather.getTable().getType().getDimSize(0));
          info.set_role("ids"); // also where the graph makes labels of them
        }
      } else if (auto take = dyn_cast<TakeOp>(op)) {
        if (use.getOperandNumber() == 1)
          label(take.getX().getType().getShape().back(), shifted);
      } else if (auto loss = dyn_cast<CrossEntropyOp>(op)) {
        if (value != loss.getLabels())
          continue;
        label(loss.getLogits().getType().getShape().back(), shifted);
        if (std::optional<int64_t> ignored = loss.getIgnoreIndex()) {
          info.set_ignore_allowed(true);
          info.set_ignore_index(*ignored);
        }
      } else if (auto slice = dyn_cast<SliceOp>(op)) {
        // Positions are dimension 1: taking them from 1 on pairs every position with its successor.
        follow(slice.getY(), shifted || (slice.getOffsets().size() > 1 && slice.getOffsets()[1] > 0));
      } else if (isa<ReshapeOp, TransposeOp, ConcatOp, BroadcastOp, arith::ExtSIOp, arith::TruncIOp>(op)) {
        follow(op->getResult(0), shifted);
      }
    }
  }

private:
  void bound(int64_t rows) { info.set_upper_bound(info.upper_bound() ? std::min(info.upper_bound(), rows) : rows); }
  void label(int64_t classes, bool shifted) {
    bound(classes);
    if (info.role().empty())
      info.set_role("labels");
    if (shifted)
      info.set_shifted_in_graph(true);
  }

  bundle::GraphInput &info;
};

} // namespace

void units::describeInput(const ModelGraph &graph, BlockArgument input, bundle::GraphInput &info) {
  if (info.type() == bundle::I64 || info.type() == bundle::I32)
    InputReader(info).follow(input, false);
  if (info.role() == "ids") { // an ignored id would still index the table
    info.set_ignore_allowed(false);
    info.set_ignore_index(0);
  }
  func::FuncOp model = graph.model;
  unsigned i = input.getArgNumber();
  if (auto role = model.getArgAttrOfType<StringAttr>(i, attributes::kRole))
    info.set_role(role.getValue().str());
  if (auto bound = model.getArgAttrOfType<IntegerAttr>(i, "zorse.lower_bound"))
    info.set_lower_bound(bound.getInt());
  if (auto bound = model.getArgAttrOfType<IntegerAttr>(i, "zorse.upper_bound"))
    info.set_upper_bound(bound.getInt());
  if (auto ignored = model.getArgAttrOfType<IntegerAttr>(i, "zorse.ignore_index")) {
    info.set_ignore_allowed(true);
    info.set_ignore_index(ignored.getInt());
  }
  if (auto shifted = model.getArgAttrOfType<BoolAttr>(i, "zorse.shifted_in_graph"))
    info.set_shifted_in_graph(shifted.getValue());
}
