// scatter_add: a point is a range of rows of the table; it clears them (unless it adds to what is there), then walks all ids in order and adds the
// updates of those in its range. So every row receives its updates in the order of the ids, however points are split among threads, and memory is
// walked in long runs.
#include "RowKernel.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

/// Every point reads all ids, so points should be few; threads need some to share.
static constexpr int64_t kPoints = 32;

Kernel zorse::codegen::buildScatterKernel(const KernelContext &context, int index) {
  auto op = cast<ScatterAddOp>(context.clustering.clusters[index].ops.front());
  KernelBuilder k(context.context, context.resolve);
  auto table = cast<RankedTensorType>(op.getY().getType());
  Type element = table.getElementType(), idType = getElementTypeOrSelf(op.getIds().getType());
  View ids = *viewOf(op.getIds(), context.claims), updates = *viewOf(op.getUpdates(), context.claims);
  Type updateElement = getElementTypeOrSelf(updates.root.getType()); // narrower where a view widens
  unsigned idOperand = k.operand(ids.root, ids.layout.offset), updateOperand = k.operand(updates.root, updates.layout.offset);
  unsigned out = k.operand(op.getY(), storageLayout(op.getY(), context.claims).offset);
  bool accumulates = context.accumulates(op.getY());
  if (accumulates)
    k.markAccumulated(out);

  SmallVector<int64_t, 4> leadShape = squeezedShape(op.getIds().getType());
  SmallVector<int64_t, 4> idStrides = squeezedStrides(op.getIds().getType(), ids.layout);
  SmallVector<int64_t, 4> updateStrides = squeezedStrides(op.getUpdates().getType(), updates.layout);
  size_t lead = leadShape.size();
  // The dimensions of a table row, which is contiguous.
  SmallVector<int64_t> tail;
  for (int64_t size : table.getShape().drop_front())
    if (size != 1)
      tail.push_back(size);
  int64_t tableRows = table.getDimSize(0), width = elementCount(table) / tableRows;
  int64_t points = std::min(tableRows, kPoints), block = (tableRows + points - 1) / points;
  points = (tableRows + block - 1) / block;
  Size tokens;
  for (int64_t size : leadShape)
    ShapedType::isDynamic(size) ? void(tokens.sampled = true) : void(tokens.count *= size);
  k.addCost(Size{elementCount(table), false}, elementBytes(element));
  k.addCost(Size{tokens.count * width, tokens.sampled}, 3 * elementBytes(element));

  Value add = accumulates ? k.accumulates(out) : Value();
  k.loop(k.begin, k.end, [&](Value point) {
    Value first = k.mul(point, block), last = k.smaller(k.add(first, k.i64(block)), k.i64(tableRows));
    Value clearEnd = k.mul(last, width);
    if (add)
      clearEnd = k.select(add, k.mul(first, width), clearEnd);
    k.loop(k.mul(first, width), clearEnd,
           [&](Value position) { k.store(k.number(KernelBuilder::computeType(element), 0.0), k.pointer(out), position, element); });

    SmallVector<Value> indices(lead);
    std::function<void(size_t, Value, Value)> addRow = [&](size_t dim, Value from, Value to) {
      // Outer dimensions of the row, then one loop over the last.
      if (dim == tail.size()) {
        Value sum = k.combine(ReduceKind::Sum, k.load(k.pointer(out), to, element), k.load(k.pointer(updateOperand), from, updateElement));
        return k.store(sum, k.pointer(out), to, element);
      }
      int64_t inner = 1;
      for (size_t i = dim + 1; i < tail.size(); ++i)
        inner *= tail[i];
      k.loop(k.i64(0), k.i64(tail[dim]),
             [&](Value i) { addRow(dim + 1, k.add(from, k.mul(i, updateStrides[lead + dim])), k.add(to, k.mul(i, inner))); });
    };
    std::function<void(size_t)> nest = [&](size_t dim) {
      if (dim < lead) {
        Size size = ShapedType::isDynamic(leadShape[dim]) ? Size{1, true} : Size{leadShape[dim], false};
        k.loop(k.i64(0), k.size(size), [&](Value i) {
          indices[dim] = i;
          nest(dim + 1);
        });
        return;
      }
      Value id = k.widen(k.load(k.pointer(idOperand), k.offset(indices, idStrides), idType));
      Value from = k.offset(indices, ArrayRef<int64_t>(updateStrides).take_front(lead));
      Value mine = k.inRange(id, first, last);
      if (op.getPadding())
        mine = k.andNot(mine, id, *op.getPadding());
      k.ifTrue(mine, [&] { addRow(0, from, k.mul(id, width)); });
    };
    nest(0);
  });
  return k.finish("scatter_add", Size{points, false}, /*contract=*/true);
}
