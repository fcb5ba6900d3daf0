// Sums over the sample axis and other leading dimensions, in a fixed order: a point is a block of columns (or one element) of the results, and walks
// everything that is reduced alone. Two levels of sums keep rounding errors of long f32 sums down.
#include "RowKernel.h"

#include "Expression.h"
#include "Prepare.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

/// Columns of a block: a whole number of cache lines that divides evenly, as wide as still gives several points for threads to share.
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

struct ColumnEmitter {
  const KernelContext &context;
  const Cluster &cluster;
  KernelBuilder k;
  Expression expression;

  struct Result {
    ReduceOp op;
    int node; ///< of the reduced expression
    unsigned operand;
    SmallVector<int64_t, 4> strides; ///< over the kept dimensions
    Type type, element;
  };
  std::vector<Result> results;
  SmallVector<size_t> keptDims, reducedDimensions; ///< of the domain; without the column dimension
  bool hasColumns;

  ColumnEmitter(const KernelContext &context, int index)
      : context(context), cluster(context.clustering.clusters[index]), k(context.context, context.resolve),
        expression(k, context.clustering, index, context.claims, cluster.domain, true) {
    hasColumns = !cluster.reduced.back() && !ShapedType::isDynamic(cluster.domain.back());
    for (size_t dim = 0; dim < cluster.domain.size(); ++dim) {
      if (cluster.reduced[dim])
        reducedDimensions.push_back(dim);
      else if (!hasColumns || dim + 1 < cluster.domain.size())
        keptDims.push_back(dim);
    }
  }

  Size sizeOf(size_t dim) const { return ShapedType::isDynamic(cluster.domain[dim]) ? Size{1, true} : Size{cluster.domain[dim], false}; }

  void buildGraph() {
    for (Operation *op : cluster.ops) {
      auto reduce = dyn_cast<ReduceOp>(op);
      if (!reduce) {
        expression.define(op);
        continue;
      }
      Result result;
      result.op = reduce;
      result.node = expression.use(reduce.getX());
      result.element = getElementTypeOrSelf(reduce.getY().getType());
      result.type = KernelBuilder::computeType(result.element);
      Layout layout = storageLayout(reduce.getY(), context.claims);
      result.operand = k.operand(reduce.getY(), layout.offset);
      result.strides = squeezedStrides(reduce.getY().getType(), layout);
      if (context.accumulates(reduce.getY()))
        k.markAccumulated(result.operand);
      results.push_back(result);
    }
  }

  Value evaluate(int node, ArrayRef<Value> indices, llvm::DenseMap<int, Value> &cache) {
    if (Value found = cache.lookup(node))
      return found;
    SmallVector<Value> inputs;
    for (int input : expression.nodes[node].inputs)
      inputs.push_back(evaluate(input, indices, cache));
    return cache[node] = expression.evaluate(expression.nodes[node], inputs, indices);
  }

  void storeResult(Result &result, Value value, ArrayRef<Value> keptIndices) {
    Value flag = context.accumulates(result.op.getY()) ? k.accumulates(result.operand) : Value();
    k.store(value, k.pointer(result.operand), k.offset(keptIndices, result.strides), result.element, flag);
  }

  /// Loops over reduced dimensions [first, last); `body` runs innermost.
  void nest(SmallVectorImpl<Value> &indices, size_t first, size_t last, function_ref<void()> body) {
    if (first == last)
      return body();
    size_t dim = reducedDimensions[first];
    k.loop(k.i64(0), k.size(sizeOf(dim)), [&](Value index) {
      indices[dim] = index;
      nest(indices, first + 1, last, body);
    });
  }

  /// acc[c] = combine(acc[c], from(c)) over the columns of the block.
  void emitColumns(SmallVectorImpl<Value> &indices, Value firstColumn, Value count, int64_t block) {
    size_t depth = reducedDimensions.size();
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
            k.store(k.combine(result.op.getKind(), k.load(buffer, column, result.type), value), buffer, column, result.type);
        });
      });
      if (depth > 1)
        k.loop(k.i64(0), count, [&](Value column) {
          for (auto [result, to, from] : llvm::zip(results, total, part))
            k.store(k.combine(result.op.getKind(), k.load(to, column, result.type), k.load(from, column, result.type)), to, column, result.type);
        });
    });
    k.loop(k.i64(0), count, [&](Value column) {
      SmallVector<Value> kept;
      for (size_t dim : keptDims)
        kept.push_back(indices[dim]);
      kept.push_back(k.add(firstColumn, column));
      for (auto [result, buffer] : llvm::zip(results, total))
        storeResult(result, k.load(buffer, column, result.type), kept);
    });
  }

  /// Without columns: one element of each result per point; sums run over the innermost reduced dimension.
  SmallVector<Value> emitSums(SmallVectorImpl<Value> &indices, size_t level, ArrayRef<Value> carried) {
    size_t dim = reducedDimensions[level];
    bool innermost = level + 1 == reducedDimensions.size();
    return k.loop(k.i64(0), k.size(sizeOf(dim)), carried, [&](Value index, ArrayRef<Value> sums) {
      indices[dim] = index;
      SmallVector<Value> terms, next;
      if (innermost) {
        llvm::DenseMap<int, Value> cache;
        for (Result &result : results)
          terms.push_back(evaluate(result.node, indices, cache));
      } else {
        SmallVector<Value> start;
        for (Result &result : results)
          start.push_back(k.identity(result.op.getKind(), result.type));
        terms = emitSums(indices, level + 1, start);
      }
      for (auto [result, sum, term] : llvm::zip(results, sums, terms))
        next.push_back(k.combine(result.op.getKind(), sum, term));
      return next;
    });
  }

  Kernel run() {
    buildGraph();
    SmallVector<Size> sizes;
    for (size_t dim : keptDims)
      sizes.push_back(sizeOf(dim));
    int64_t columns = hasColumns ? cluster.domain.back() : 1, block = hasColumns ? blockOf(columns) : 1;
    int64_t blocks = (columns + block - 1) / block;
    if (hasColumns)
      sizes.push_back(Size{blocks, false});
    Size points;
    for (const Size &size : sizes)
      points = Size{points.count * size.count, points.sampled || size.sampled};
    k.loop(k.begin, k.end, [&](Value point) {
      SmallVector<Value> split = k.delinearize(point, sizes);
      SmallVector<Value> indices(cluster.domain.size());
      for (auto [i, dim] : llvm::enumerate(keptDims))
        indices[dim] = split[i];
      if (hasColumns) {
        Value first = k.mul(split.back(), block);
        Value count = k.i64(block);
        if (columns % block != 0)
          count = k.smaller(count, k.sub(k.i64(columns), first));
        return emitColumns(indices, first, count, block);
      }
      SmallVector<Value> start, kept;
      for (Result &result : results)
        start.push_back(k.identity(result.op.getKind(), result.type));
      SmallVector<Value> sums = emitSums(indices, 0, start);
      for (size_t dim : keptDims)
        kept.push_back(indices[dim]);
      for (auto [result, sum] : llvm::zip(results, sums))
        storeResult(result, sum, kept);
    });
    return k.finish("reduce_columns", points, /*contract=*/true);
  }
};

} // namespace

Kernel zorse::codegen::buildColumnKernel(const KernelContext &context, int cluster) { return ColumnEmitter(context, cluster).run(); }
