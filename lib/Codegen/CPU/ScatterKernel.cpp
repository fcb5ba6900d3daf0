// scatter_add: a point is a range of rows of the table. It clears the rows (unless the kernel
// accumulates), then reads all indices in order and adds the updates for its rows. Every row
// therefore receives its updates in the order of the indices, for any distribution of points over
// threads, and memory is accessed in long contiguous ranges.
#include "RowKernel.h"

#include "ScatterProgram.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

/// Every point reads all indices, so there should be few points; threads need several to share.
static constexpr int64_t kPoints = 32;

Kernel zorse::codegen::buildScatterKernel(const KernelContext &context, int index) {
  CpuKernelBuilder k(context.context, context.resolve);
  ScatterProgram p(k, context, index);
  const int64_t tableRows = p.tableRows, width = p.width;
  const size_t lead = p.leadSizes.size();
  int64_t points = std::min(tableRows, kPoints), block = (tableRows + points - 1) / points;
  points = (tableRows + block - 1) / block;

  Value add = p.accumulates ? k.accumulates(p.out) : Value();
  k.loop(k.begin, k.end, [&](Value point) {
    Value first = k.mul(point, block),
          last = k.smaller(k.add(first, k.i64(block)), k.i64(tableRows));
    Value clearEnd = k.mul(last, width);
    if (add)
      clearEnd = k.select(add, k.mul(first, width), clearEnd);
    k.loop(k.mul(first, width), clearEnd, [&](Value position) { p.clear(position); });

    SmallVector<Value> indices(lead);
    std::function<void(size_t, Value, Value)> addRow = [&](size_t dim, Value from, Value to) {
      // One loop per outer dimension of the row, then one over the last.
      if (dim == p.tailSizes.size())
        return p.put(p.sum(p.get(to), p.update(from)), to);
      int64_t inner = 1;
      for (size_t i = dim + 1; i < p.tailSizes.size(); ++i)
        inner *= p.tailSizes[i].count;
      k.loop(k.i64(0), k.size(p.tailSizes[dim]), [&](Value i) {
        addRow(dim + 1, k.add(from, k.mul(i, p.updateStrides[lead + dim])),
               k.add(to, k.mul(i, inner)));
      });
    };
    std::function<void(size_t)> nest = [&](size_t dim) {
      if (dim < lead) {
        k.loop(k.i64(0), k.size(p.leadSizes[dim]), [&](Value i) {
          indices[dim] = i;
          nest(dim + 1);
        });
        return;
      }
      Value row = k.widen(
          k.load(k.pointer(p.indexOperand), k.offset(indices, p.indexStrides), p.indexType));
      Value from = k.offset(indices, ArrayRef<int64_t>(p.updateStrides).take_front(lead));
      Value mine = k.inRange(row, first, last);
      if (p.op.getPadding())
        mine = k.andNot(mine, row, *p.op.getPadding());
      k.ifTrue(mine, [&] { addRow(0, from, k.mul(row, width)); });
    };
    nest(0);
  });
  return k.finish("scatter_add", Size{points, false}, /*contract=*/true);
}
