// scatter_add: a point is a block of columns of the table; it clears them (unless it adds to what is there), then walks all ids in order, so the
// bits do not depend on how points are split.
#include "RowKernel.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

Kernel zorse::codegen::buildScatterKernel(const KernelContext &context, int index) {
  auto op = cast<ScatterAddOp>(context.clustering.clusters[index].ops.front());
  KernelBuilder k(context.context, context.resolve);
  auto table = cast<RankedTensorType>(op.getY().getType());
  Type element = table.getElementType(), idType = getElementTypeOrSelf(op.getIds().getType());
  View ids = *viewOf(op.getIds(), context.claims), updates = *viewOf(op.getUpdates(), context.claims);
  unsigned idOperand = k.operand(ids.root, ids.layout.offset), updateOperand = k.operand(updates.root, updates.layout.offset);
  Layout place = storageLayout(op.getY(), context.claims);
  unsigned out = k.operand(op.getY(), place.offset);
  bool accumulates = context.accumulates(op.getY());
  if (accumulates)
    k.markAccumulated(out);

  SmallVector<int64_t, 4> leadShape = squeezedShape(op.getIds().getType());
  SmallVector<int64_t, 4> idStrides = squeezedStrides(op.getIds().getType(), ids.layout);
  SmallVector<int64_t, 4> updateStrides = squeezedStrides(op.getUpdates().getType(), updates.layout);
  size_t lead = leadShape.size();
  // Columns of the table are walked with dense strides, those of the updates with theirs.
  SmallVector<Size> tail;
  SmallVector<int64_t> tailStrides;
  for (int64_t dim = 1; dim < table.getRank(); ++dim)
    if (table.getDimSize(dim) != 1) {
      tail.push_back(Size{table.getDimSize(dim), false});
      tailStrides.push_back(place.strides[dim]);
    }
  int64_t columns = tail.empty() ? 1 : tail.back().count;
  int64_t block = columns % 64 == 0 ? 64 : std::min<int64_t>(columns, 64), blocks = (columns + block - 1) / block;
  SmallVector<Size> sizes(tail);
  if (!sizes.empty())
    sizes.pop_back();
  sizes.push_back(Size{blocks, false});
  Size points;
  for (const Size &size : sizes)
    points.count *= size.count;
  Size tokens;
  for (int64_t size : leadShape)
    ShapedType::isDynamic(size) ? void(tokens.sampled = true) : void(tokens.count *= size);
  k.addCost(Size{elementCount(table), false}, elementBytes(element));
  k.addCost(Size{tokens.count * (elementCount(table) / table.getDimSize(0)), tokens.sampled}, 3 * elementBytes(element));

  Value add = accumulates ? k.accumulates(out) : Value();
  Value rowsToClear = k.i64(table.getDimSize(0));
  if (add)
    rowsToClear = k.select(add, k.i64(0), rowsToClear);
  k.loop(k.begin, k.end, [&](Value point) {
    SmallVector<Value> split = k.delinearize(point, sizes);
    Value first = k.mul(split.back(), block), count = k.i64(block);
    if (columns % block != 0)
      count = k.smaller(count, k.sub(k.i64(columns), first));
    ArrayRef<Value> outer = ArrayRef<Value>(split).drop_back();
    auto tableOffset = [&](Value row, Value column) {
      Value offset = k.mul(row, place.strides[0]);
      for (size_t i = 0; i < outer.size(); ++i)
        offset = k.add(offset, k.mul(outer[i], tailStrides[i]));
      return tail.empty() ? offset : k.add(offset, k.mul(k.add(first, column), tailStrides.back()));
    };
    Type compute = KernelBuilder::computeType(element);
    k.loop(k.i64(0), rowsToClear, [&](Value row) {
      k.loop(k.i64(0), count, [&](Value column) { k.store(k.number(compute, 0.0), k.pointer(out), tableOffset(row, column), element); });
    });
    SmallVector<Value> indices(lead);
    std::function<void(size_t)> nest = [&](size_t dim) {
      if (dim < lead) {
        Size size = ShapedType::isDynamic(leadShape[dim]) ? Size{1, true} : Size{leadShape[dim], false};
        k.loop(k.i64(0), k.size(size), [&](Value index) {
          indices[dim] = index;
          nest(dim + 1);
        });
        return;
      }
      Value id = k.widen(k.load(k.pointer(idOperand), k.offset(indices, idStrides), idType));
      k.loop(k.i64(0), count, [&](Value column) {
        Value from = k.offset(indices, ArrayRef<int64_t>(updateStrides).take_front(lead));
        SmallVector<Value> tailIndices(outer.begin(), outer.end());
        if (!tail.empty())
          tailIndices.push_back(k.add(first, column));
        from = k.add(from, k.offset(tailIndices, ArrayRef<int64_t>(updateStrides).drop_front(lead)));
        Value to = tableOffset(id, column);
        Value sum = k.combine(ReduceKind::Sum, k.load(k.pointer(out), to, element), k.load(k.pointer(updateOperand), from, element));
        k.store(sum, k.pointer(out), to, element);
      });
    };
    nest(0);
  });
  return k.finish("scatter_add", points, /*contract=*/true);
}
