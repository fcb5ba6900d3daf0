// Sums over the sample axis and other leading dimensions on a GPU: a block has 32 columns of the results (or one element, where there are no columns)
// and several threads for each, which take what is reduced in turn; then their sums are added in a fixed order through shared memory.
#include "CudaEmitters.h"

#include "ColumnProgram.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

namespace {

constexpr int kColumns = 32, kLines = 16;
constexpr int kThreadsAlone = 256; ///< of a block with one element

struct ColumnEmitter : ColumnProgram {
  using ColumnProgram::ColumnProgram;

  /// Over elements first, first + step, ... of what is reduced.
  SmallVector<Value> sums(SmallVectorImpl<Value> &indices, Value first, int64_t step) {
    SmallVector<Size> all;
    for (size_t dim : reducedDims)
      all.push_back(sizeOf(dim));
    // ceil((count - first) / step) turns.
    Value left = k.sub(k.add(k.size(product(all)), k.i64(step - 1)), first);
    Value turns = arith::DivSIOp::create(k.b, k.loc, left, k.i64(step));
    return k.loop(k.i64(0), turns, identities(), [&](Value turn, ArrayRef<Value> before) {
      SmallVector<Value> place = k.delinearize(k.add(first, k.mul(turn, step)), all), next;
      for (auto [dim, index] : llvm::zip(reducedDims, place))
        indices[dim] = index;
      llvm::DenseMap<int, Value> cache;
      for (auto [result, sum] : llvm::zip(results, before))
        next.push_back(k.combine(result.op.getKind(), sum, evaluate(result.node, indices, cache)));
      return next;
    });
  }

  Kernel emit() {
    SmallVector<Size> kept;
    for (size_t dim : keptDims)
      kept.push_back(sizeOf(dim));
    SmallVector<Value> indices(cluster.domain.size());
    const int threads = hasColumns ? kColumns * kLines : kThreadsAlone;
    Value block = k.blockIndex(), thread = k.threadIndex();
    const int64_t columns = hasColumns ? cluster.domain.back() : 1, blocks = (columns + kColumns - 1) / kColumns;
    if (hasColumns)
      kept.push_back(Size{blocks, false});
    const Size points = product(kept);
    SmallVector<Value> split = kept.empty() ? SmallVector<Value>() : k.delinearize(block, kept), keptIndices;
    for (auto [i, dim] : llvm::enumerate(keptDims)) {
      indices[dim] = split[i];
      keptIndices.push_back(split[i]);
    }
    if (!hasColumns) {
      SmallVector<Value> partial = sums(indices, thread, threads);
      int slot = 0;
      for (auto [result, sum] : llvm::zip(results, partial))
        sum = k.combineBlock(result.op.getKind(), sum, threads, slot++);
      k.ifTrue(arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::eq, thread, k.i64(0)), [&] {
        for (auto [result, sum] : llvm::zip(results, partial))
          store(result, sum, keptIndices);
      });
      return k.finishCuda("reduce_columns", Size{points.count * threads, points.sampled}, threads, 1);
    }
    Value line = arith::DivUIOp::create(k.b, k.loc, thread, k.i64(kColumns));
    Value inBlock = arith::RemUIOp::create(k.b, k.loc, thread, k.i64(kColumns));
    Value column = k.add(k.mul(split.back(), kColumns), inBlock);
    // Threads beyond the last column sum that one once more, and store nothing.
    Value inside = arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::slt, column, k.i64(columns));
    indices.back() = columns % kColumns ? k.smaller(column, k.i64(columns - 1)) : column;
    SmallVector<Value> partial = sums(indices, line, kLines);
    SmallVector<Value> places;
    for (auto [result, sum] : llvm::zip(results, partial)) {
      places.push_back(k.shared(result.type, kColumns * kLines));
      k.store(sum, places.back(), thread, result.type);
    }
    k.barrier();
    Value first = arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::eq, line, k.i64(0));
    k.ifTrue(arith::AndIOp::create(k.b, k.loc, first, inside), [&] {
      SmallVector<Value> place(keptIndices);
      place.push_back(column);
      for (auto [result, shared] : llvm::zip(results, places)) {
        Value sum = k.load(shared, inBlock, result.type);
        for (int other = 1; other < kLines; ++other)
          sum = k.combine(result.op.getKind(), sum, k.load(shared, k.add(inBlock, k.i64(other * kColumns)), result.type));
        store(result, sum, place);
      }
    });
    return k.finishCuda("reduce_columns", Size{points.count * threads, points.sampled}, threads, 1);
  }
};

} // namespace

Kernel cuda::buildColumnKernel(const KernelContext &context, int cluster) { return ColumnEmitter(context, cluster).emit(); }
