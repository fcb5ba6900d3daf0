// Sums over the batch dimension and other leading dimensions on a GPU.
//
// A block has 32 columns of the results (or one element, if there are no columns) and several
// threads per column. Each thread sums every n-th element; the block adds the threads' sums in a
// fixed order through shared memory. If there are few columns, several blocks share the elements of
// each column. They write their sums to memory, and the last block to finish adds them in the order
// of the parts, not in the order in which the blocks finish.
#include "CudaEmitters.h"

#include "ColumnProgram.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;
using namespace zorse::codegen::cuda;

namespace {

constexpr int kColumns = 32, kLines = 16;
constexpr int kThreadsAlone = 256; ///< threads of a block with one element
/// Number of blocks of a launch that keeps a large GPU busy.
constexpr int64_t kBlocks = 512;
/// Minimum number of elements per thread before another block is used.
constexpr int64_t kMinTurns = 4;
/// Number of elements that a thread loads at the same time.
constexpr int64_t kLoadsAtOnce = 8;
/// A probable row count of calls. The number of parts is chosen for it; a call uses only the
/// parts that it has work for.
constexpr int64_t kLikelyRows = 32, kMinParts = 16;

int64_t ceilDivide(int64_t x, int64_t y) { return (x + y - 1) / y; }

struct ColumnEmitter : ColumnProgram {
  ColumnEmitter(CudaKernelBuilder &k, const KernelContext &context, int index)
      : ColumnProgram(k, context, index), k(k) {
    for (size_t dim : reducedDims)
      reducedSizes.push_back(sizeOf(dim));
    for (size_t dim : keptDims)
      keptSizes.push_back(sizeOf(dim));
    columns = hasColumns ? fusionGroup.domain.back() : 1;
    if (hasColumns)
      keptSizes.push_back(Size{ceilDivide(columns, kColumns), false});
    lines = hasColumns ? kLines : kThreadsAlone;
    threads = hasColumns ? kColumns * kLines : kThreadsAlone;
  }

  Kernel emit() {
    const Size sites = matmul(keptSizes);
    const int64_t parts = partsOf(sites);
    Value block = k.blockIndex(), site = block, part;
    if (parts > 1) {
      part = arith::DivUIOp::create(k.b, k.loc, block, k.i64(sites.count));
      site = arith::RemUIOp::create(k.b, k.loc, block, k.i64(sites.count));
    }
    locate(site);
    if (parts == 1) {
      storeResults(together(sums(line, k.i64(lines))));
    } else {
      Value chunk = k.i64(lines * kMinTurns);
      Value needed = arith::DivUIOp::create(
          k.b, k.loc, k.sub(k.add(k.size(matmul(reducedSizes)), chunk), k.i64(1)), chunk);
      Value active = k.smaller(needed, k.i64(parts));
      k.ifTrue(arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::slt, part, active),
               [&] { emitPart(site, part, active, sites.count, parts); });
    }
    return k.finish("reduce_columns", Size{sites.count * parts * threads, sites.sampled}, threads,
                    1);
  }

private:
  CudaKernelBuilder &k;
  SmallVector<Size> reducedSizes, keptSizes;
  int64_t columns, lines, threads;
  SmallVector<Value> indices, keptIndices; ///< indices in the domain; in the results
  Value line, inBlock; ///< position of this thread; inBlock is null without columns
  Value writes;        ///< whether this thread writes a result
  /// Shared memory for a block's sums, and whether threads may still read it.
  struct SharedScratch {
    Value memory;
    bool busy = false;
  };
  llvm::DenseMap<Type, SharedScratch> places;

  /// Maximum number of blocks that share the elements of a result. It does not depend on rows: a
  /// launch of few rows uses fewer of them.
  int64_t partsOf(const Size &sites) const {
    const Size reduced = matmul(reducedSizes);
    if (sites.sampled)
      return 1;
    const int64_t chunk = lines * kMinTurns, wanted = ceilDivide(kBlocks, sites.count);
    const int64_t work = reduced.sampled
                             ? std::max(kMinParts, ceilDivide(reduced.count * kLikelyRows, chunk))
                             : ceilDivide(reduced.count, chunk);
    return std::min(wanted, work);
  }

  /// Computes the indices of this thread in block `site` of the results.
  void locate(Value site) {
    indices.assign(fusionGroup.domain.size(), Value());
    SmallVector<Value> split = keptSizes.empty() ? SmallVector<Value>()
                                                 : k.delinearize(site, keptSizes);
    for (auto [i, dim] : llvm::enumerate(keptDims)) {
      indices[dim] = split[i];
      keptIndices.push_back(split[i]);
    }
    line = k.threadIndex();
    if (!hasColumns) {
      writes = arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::eq, line, k.i64(0));
      return;
    }
    inBlock = arith::RemUIOp::create(k.b, k.loc, line, k.i64(kColumns));
    line = arith::DivUIOp::create(k.b, k.loc, line, k.i64(kColumns));
    Value column = k.add(k.mul(split.back(), kColumns), inBlock);
    keptIndices.push_back(column);
    // Threads beyond the last column sum the last column again and store nothing.
    indices.back() = columns % kColumns ? k.smaller(column, k.i64(columns - 1)) : column;
    writes = arith::AndIOp::create(
        k.b, k.loc, arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::eq, line, k.i64(0)),
        arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::slt, column, k.i64(columns)));
  }

  /// Sums the reduced elements first, first + step, ... It loads several at a time, so that a
  /// thread waits once for several loads.
  SmallVector<Value> sums(Value first, Value step) {
    auto include = [&](Value element, ArrayRef<Value> before) {
      SmallVector<Value> next;
      for (auto [dim, index] : llvm::zip(reducedDims, k.delinearize(element, reducedSizes)))
        indices[dim] = index;
      llvm::DenseMap<int, Value> cache;
      for (auto [result, sum] : llvm::zip(results, before))
        next.push_back(k.combine(result.op.getKind(), sum, evaluate(result.node, indices, cache)));
      return next;
    };
    SmallVector<Value> carried = {first};
    carried.append(identities());
    Value end = k.size(matmul(reducedSizes));
    const auto loads =
        llvm::count_if(expression.nodes, [](const Node &node) { return node.kind == Node::Load; });
    const int64_t atOnce =
        std::clamp<int64_t>(kLoadsAtOnce / std::max<int64_t>(loads, 1), 1, kLoadsAtOnce);
    carried = k.loop(
        first, k.sub(end, k.mul(step, atOnce - 1)), carried,
        [&](Value element, ArrayRef<Value> before) {
          SmallVector<Value> next(before.drop_front());
          for (int64_t turn = 0; turn < atOnce; ++turn, element = k.add(element, step))
            next = include(element, next);
          next.insert(next.begin(), element);
          return next;
        },
        k.mul(step, atOnce));
    return k.loop(carried[0], end, ArrayRef<Value>(carried).drop_front(), include, step);
  }

  /// Combines the partial sums of a block's threads. The first line (without columns, every thread)
  /// gets the result.
  SmallVector<Value> together(ArrayRef<Value> parts) {
    SmallVector<Value> all;
    Value thread = k.threadIndex(),
          first = arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::eq, line, k.i64(0));
    for (size_t r = 0; r < results.size(); ++r) {
      const ReduceKind kind = results[r].op.getKind();
      Type type = results[r].type;
      Value sum = parts[r];
      if (!hasColumns) {
        all.push_back(k.combineBlock(kind, sum, int(threads)));
        continue;
      }
      SharedScratch &place = places[type];
      if (place.busy)
        k.barrier();
      if (!place.memory)
        place.memory = k.shared(type, threads);
      place.busy = true;
      Value shared = place.memory;
      k.store(sum, shared, thread, type);
      k.barrier();
      all.append(k.ifElse(first, {sum}, [&] {
        Value total = k.load(shared, inBlock, type);
        for (int other = 1; other < kLines; ++other)
          total = k.combine(kind, total,
                            k.load(shared, k.add(inBlock, k.i64(int64_t(other) * kColumns)), type));
        return SmallVector<Value>{total};
      }));
    }
    return all;
  }

  void storeResults(ArrayRef<Value> values) {
    k.ifTrue(writes, [&] {
      for (auto [result, value] : llvm::zip(results, values))
        store(result, value, keptIndices);
    });
  }

  /// \param active  number of parts in this launch
  void emitPart(Value site, Value part, Value active, int64_t sites, int64_t parts) {
    const int64_t width = hasColumns ? kColumns : 1;
    Value counters = k.common(k.b.getI32Type(), sites), place = k.mul(site, width);
    place = hasColumns ? k.add(place, inBlock) : place;
    auto placeOf = [&](Value part) { return k.add(k.mul(part, sites * width), place); };
    SmallVector<Value> partials;
    for (Result &result : results)
      partials.push_back(k.common(result.type, parts * sites * width));
    SmallVector<Value> own = together(sums(k.add(k.mul(part, lines), line), k.mul(active, lines)));
    k.ifTrue(arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::eq, line, k.i64(0)), [&] {
      for (auto [result, partial, value] : llvm::zip(results, partials, own))
        k.store(value, partial, placeOf(part), result.type);
    });
    Value isLast = k.comesLast(counters, site, active);
    for (auto &[type, shared] : places)
      shared.busy = false; // a barrier was executed
    k.ifTrue(isLast, [&] {
      auto include = [&](Value part, ArrayRef<Value> before) {
        SmallVector<Value> next;
        for (auto [result, partial, sum] : llvm::zip(results, partials, before))
          next.push_back(k.combine(result.op.getKind(), sum,
                                   k.loadCommon(partial, placeOf(part), result.type)));
        return next;
      };
      storeResults(together(k.loop(line, active, identities(), include, k.i64(lines))));
    });
  }
};

} // namespace

Kernel cuda::buildColumnKernel(const KernelContext &context, int cluster,
                               HalfConversions conversions) {
  CudaKernelBuilder k(context.context, context.resolve, conversions);
  return ColumnEmitter(k, context, cluster).emit();
}
