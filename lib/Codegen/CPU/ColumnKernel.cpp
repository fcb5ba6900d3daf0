// Sums over the sample axis and other leading dimensions, in a fixed order. A point is a block of
// columns (or one element) of the results and reduces all its inputs alone. Long f32 sums have two
// levels to reduce rounding errors.
#include "RowKernel.h"

#include "ColumnProgram.h"
#include "Prepare.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

/// Columns per block: a whole number of cache lines that divides the columns evenly. The block is
/// as wide as possible while several points remain for the threads.
static int64_t blockOf(int64_t columns) {
  int64_t narrowest = 0;
  for (int64_t block : {128, 96, 64, 48, 32, 16}) {
    if (columns % block != 0)
      continue;
    if (columns / block >= 8)
      return block;
    narrowest = block;
  }
  return narrowest ? narrowest : std::min<int64_t>(columns, 64);
}

namespace {

struct ColumnEmitter : ColumnProgram {
  ColumnEmitter(CpuKernelBuilder &k, const KernelContext &context, int index)
      : ColumnProgram(k, context, index), k(k) {}

  CpuKernelBuilder &k;

  /// Loops over reduced dimensions [first, last); `body` runs innermost.
  void nest(SmallVectorImpl<Value> &indices, size_t first, size_t last, function_ref<void()> body) {
    if (first == last)
      return body();
    size_t dim = reducedDims[first];
    k.loop(k.i64(0), k.size(sizeOf(dim)), [&](Value index) {
      indices[dim] = index;
      nest(indices, first + 1, last, body);
    });
  }

  /// acc[c] = combine(acc[c], from(c)) over the columns of the block.
  void emitColumns(SmallVectorImpl<Value> &indices, Value firstColumn, Value count, int64_t block) {
    size_t depth = reducedDims.size();
    std::vector<Value> total, part;
    for (Result &result : results) {
      total.push_back(k.scratch(result.type, block));
      part.push_back(depth > 1 ? k.scratch(result.type, block) : total.back());
    }
    auto fill = [&](ArrayRef<Value> buffers) {
      k.loop(k.i64(0), count, [&](Value column) {
        for (auto [result, buffer] : llvm::zip(results, buffers))
          k.store(k.identity(result.op.getKind(), result.type), buffer, column, result.type);
      });
    };
    fill(total);
    nest(indices, 0, depth - 1, [&] {
      if (depth > 1)
        fill(part);
      nest(indices, depth - 1, depth, [&] {
        k.loop(k.i64(0), count, [&](Value column) {
          indices.back() = k.add(firstColumn, column);
          llvm::DenseMap<int, Value> cache;
          SmallVector<Value> values;
          for (Result &result : results)
            values.push_back(evaluate(result.node, indices, cache));
          for (auto [result, buffer, value] : llvm::zip(results, part, values))
            k.store(k.combine(result.op.getKind(), k.load(buffer, column, result.type), value),
                    buffer, column, result.type);
        });
      });
      if (depth > 1)
        k.loop(k.i64(0), count, [&](Value column) {
          for (auto [result, to, from] : llvm::zip(results, total, part))
            k.store(k.combine(result.op.getKind(), k.load(to, column, result.type),
                              k.load(from, column, result.type)),
                    to, column, result.type);
        });
    });
    k.loop(k.i64(0), count, [&](Value column) {
      SmallVector<Value> kept;
      for (size_t dim : keptDims)
        kept.push_back(indices[dim]);
      kept.push_back(k.add(firstColumn, column));
      for (auto [result, buffer] : llvm::zip(results, total))
        store(result, k.load(buffer, column, result.type), kept);
    });
  }

  /// Emits sums of a kernel without columns: a point is one element of each result, and sums run
  /// over the innermost reduced dimension.
  SmallVector<Value> emitSums(SmallVectorImpl<Value> &indices, size_t level,
                              ArrayRef<Value> carried) {
    size_t dim = reducedDims[level];
    bool innermost = level + 1 == reducedDims.size();
    return k.loop(k.i64(0), k.size(sizeOf(dim)), carried, [&](Value index, ArrayRef<Value> sums) {
      indices[dim] = index;
      SmallVector<Value> terms, next;
      if (innermost) {
        llvm::DenseMap<int, Value> cache;
        for (Result &result : results)
          terms.push_back(evaluate(result.node, indices, cache));
      } else {
        terms = emitSums(indices, level + 1, identities());
      }
      for (auto [result, sum, term] : llvm::zip(results, sums, terms))
        next.push_back(k.combine(result.op.getKind(), sum, term));
      return next;
    });
  }

  Kernel run() {
    SmallVector<Size> sizes;
    for (size_t dim : keptDims)
      sizes.push_back(sizeOf(dim));
    int64_t columns = hasColumns ? fusionGroup.domain.back() : 1,
            block = hasColumns ? blockOf(columns) : 1;
    int64_t blocks = (columns + block - 1) / block;
    if (hasColumns)
      sizes.push_back(Size{blocks, false});
    const Size points = matmul(sizes);
    k.loop(k.begin, k.end, [&](Value point) {
      SmallVector<Value> split = k.delinearize(point, sizes);
      SmallVector<Value> indices(fusionGroup.domain.size());
      for (auto [i, dim] : llvm::enumerate(keptDims))
        indices[dim] = split[i];
      if (hasColumns) {
        Value first = k.mul(split.back(), block);
        Value count = k.i64(block);
        if (columns % block != 0)
          count = k.smaller(count, k.sub(k.i64(columns), first));
        return emitColumns(indices, first, count, block);
      }
      SmallVector<Value> sums = emitSums(indices, 0, identities()), kept;
      for (size_t dim : keptDims)
        kept.push_back(indices[dim]);
      for (auto [result, sum] : llvm::zip(results, sums))
        store(result, sum, kept);
    });
    return k.finish("reduce_columns", points, /*contract=*/true);
  }
};

} // namespace

Kernel zorse::codegen::buildColumnKernel(const KernelContext &context, int cluster) {
  CpuKernelBuilder k(context.context, context.resolve);
  return ColumnEmitter(k, context, cluster).run();
}
