// scatter_add on a GPU. A block owns neighboring rows of the table and up to kThreads columns, one
// for each thread. It reads all indices in order, kChunk at a time, and lists in shared memory the
// indices that refer to its rows, in order. Then every thread adds the listed updates to its
// column. Every element of the table therefore receives its updates in the order of the indices,
// and indices are read once per block instead of once per row.
//
// A row with many updates is the longest chain of additions. Its sum stays in a register between
// updates, and kUpdatesAtOnce updates are loaded before the first is added.
#include "CudaEmitters.h"

#include "ScatterProgram.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;
using namespace zorse::codegen::cuda;

namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kIndices = 4; ///< number of indices of a chunk that each thread reads
constexpr int kChunk = kThreads * kIndices, kBallots = kWarps * kIndices;
constexpr int64_t kBlocks = 1024; ///< approximate number of blocks, if the table has enough rows
constexpr int64_t kMinRows = 2; ///< minimum number of rows per block, because each block reads all
                                ///< indices
constexpr int64_t kUpdatesAtOnce = 8;

int64_t ceilDivide(int64_t x, int64_t y) { return (x + y - 1) / y; }

class ScatterKernel {
public:
  ScatterKernel(const KernelContext &context, int index, HalfConversions conversions)
      : k(context.context, context.resolve, conversions), p(k, context, index), b(k.b),
        columnBlocks(ceilDivide(p.width, kThreads)),
        rowsOfBlock(std::max(
            kMinRows, ceilDivide(p.tableRows, std::max<int64_t>(kBlocks / columnBlocks, 1)))),
        counts(k.shared(b.getI32Type(), 2 * kBallots)), places(k.shared(b.getI32Type(), kChunk)),
        rows(k.shared(b.getI32Type(), kChunk)) {}

  Kernel build() {
    thread = k.threadIndex();
    lane = arith::AndIOp::create(b, k.loc, thread, k.i64(31));
    warp = arith::ShRUIOp::create(b, k.loc, thread, k.i64(5));
    Value block = k.blockIndex(),
          columnBlock = arith::RemUIOp::create(b, k.loc, block, k.i64(columnBlocks));
    column = k.add(k.mul(columnBlock, kThreads), thread);
    hasColumn = arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::slt, column, k.i64(p.width));
    firstRow = k.mul(arith::DivUIOp::create(b, k.loc, block, k.i64(columnBlocks)), rowsOfBlock);
    endRow = k.smaller(k.add(firstRow, k.i64(rowsOfBlock)), k.i64(p.tableRows));
    clearRows();
    Value count = k.size(p.tokens),
          chunks = arith::DivUIOp::create(b, k.loc, k.add(count, k.i64(kChunk - 1)), k.i64(kChunk));
    k.loop(k.i64(0), chunks, [&](Value chunk) { addChunk(chunk, count); });
    const int64_t blocks = ceilDivide(p.tableRows, rowsOfBlock) * columnBlocks;
    return k.finish("scatter_add", Size{blocks * kThreads, false}, kThreads, 1);
  }

private:
  CudaKernelBuilder k;
  ScatterProgram p;
  OpBuilder &b;
  const int64_t columnBlocks, rowsOfBlock;
  Value counts, places,
      rows; ///< in shared memory: double-buffered hit count of each ballot; position of each hit in
            ///< the chunk, and its row in the block
  Value thread, lane, warp, firstRow, endRow;
  Value column, hasColumn; ///< of this thread

  struct Hits {
    Value place, row, mine, ballot; ///< place in the chunk, row in the block
  };

  /// Clears the rows, unless the run requests accumulation.
  void clearRows() {
    Value clears = hasColumn;
    if (p.accumulates) {
      Value overwrites = arith::XOrIOp::create(b, k.loc, k.accumulates(p.out),
                                               arith::ConstantIntOp::create(b, k.loc, 1, 1));
      clears = arith::AndIOp::create(b, k.loc, clears, overwrites);
    }
    k.ifTrue(clears, [&] { k.loop(firstRow, endRow, [&](Value row) { p.clear(target(row)); }); });
  }

  /// Index of the element in this thread's column of a table row.
  Value target(Value row) { return k.add(k.mul(row, p.width), column); }

  SmallVector<Value> indicesOf(Value token) {
    return p.leadSizes.empty() ? SmallVector<Value>() : k.delinearize(token, p.leadSizes);
  }

  /// Finds the hits of a warp among 32 indices.
  Hits look(Value begin, Value place, Value count) {
    Hits hits;
    hits.place = place;
    Value token = k.add(begin, place);
    Value inside = arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::slt, token, count);
    Value index = k.widen(k.load(
        k.pointer(p.indexOperand),
        k.offset(indicesOf(k.select(inside, token, k.i64(0))), p.indexStrides), p.indexType));
    hits.mine = arith::AndIOp::create(b, k.loc, inside, k.inRange(index, firstRow, endRow));
    if (p.op.getPadding())
      hits.mine = k.andNot(hits.mine, index, *p.op.getPadding());
    hits.row = k.sub(index, firstRow);
    hits.ballot = k.ballot(hits.mine);
    return hits;
  }

  Value bitsIn(Value word) {
    return arith::ExtUIOp::create(b, k.loc, b.getI64Type(), math::CtPopOp::create(b, k.loc, word));
  }

  void addChunk(Value chunk, Value count) {
    Value begin = k.mul(chunk, kChunk);
    Value isFirstLane = arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::eq, lane, k.i64(0));
    // Counts are double-buffered: a thread may read those of this chunk while another writes those
    // of the next.
    Value half = k.mul(arith::AndIOp::create(b, k.loc, chunk, k.i64(1)), kBallots);
    SmallVector<Hits> all;
    for (int i = 0; i < kIndices; ++i) {
      all.push_back(look(begin, k.add(thread, k.i64(int64_t(i) * kThreads)), count));
      Value number = math::CtPopOp::create(b, k.loc, all.back().ballot);
      k.ifTrue(isFirstLane, [&] {
        k.store(number, counts, k.add(half, k.add(k.i64(int64_t(i) * kWarps), warp)),
                b.getI32Type());
      });
    }
    k.barrier();
    Value total = k.i64(0);
    SmallVector<Value> before; // number of this warp's hits before each ballot
    for (int i = 0; i < kIndices; ++i) {
      before.push_back(total);
      for (int w = 0; w < kWarps; ++w) {
        Value number = k.load(counts, k.add(half, k.i64(int64_t(i) * kWarps + w)), b.getI32Type());
        number = arith::ExtUIOp::create(b, k.loc, b.getI64Type(), number);
        Value isBefore = arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::ugt, warp, k.i64(w));
        before.back() = k.add(before.back(), k.select(isBefore, number, k.i64(0)));
        total = k.add(total, number);
      }
    }
    k.ifTrue(arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::ne, total, k.i64(0)), [&] {
      for (auto [hits, position] : llvm::zip(all, before))
        list(hits, position);
      k.barrier();
      addListed(begin, total);
    });
  }

  void list(const Hits &hits, Value before) {
    k.ifTrue(hits.mine, [&] {
      Type word = b.getI32Type();
      Value bit =
          arith::ShLIOp::create(b, k.loc, k.i32(1), arith::TruncIOp::create(b, k.loc, word, lane));
      Value lower = arith::SubIOp::create(b, k.loc, bit, k.i32(1));
      Value at = k.add(before, bitsIn(arith::AndIOp::create(b, k.loc, hits.ballot, lower)));
      k.store(arith::TruncIOp::create(b, k.loc, word, hits.place), places, at, word);
      k.store(arith::TruncIOp::create(b, k.loc, word, hits.row), rows, at, word);
    });
  }

  /// Adds the listed updates. The barrier of the next chunk keeps the list until all threads have
  /// read it.
  void addListed(Value begin, Value total) {
    k.ifTrue(hasColumn, [&] {
      Value many = arith::DivUIOp::create(b, k.loc, total, k.i64(kUpdatesAtOnce));
      // Row in the block, or -1; its sum so far.
      SmallVector<Value> sum = {k.i32(-1), k.number(KernelBuilder::computeType(p.element), 0)};
      sum = k.loop(k.i64(0), many, sum, [&](Value turn, ArrayRef<Value> before) {
        return add(begin, k.mul(turn, kUpdatesAtOnce), kUpdatesAtOnce, before);
      });
      sum = k.loop(k.mul(many, kUpdatesAtOnce), total, sum,
                   [&](Value at, ArrayRef<Value> before) { return add(begin, at, 1, before); });
      p.put(sum[1], targetIn(sum[0])); // at least one update is listed, so there is a row
    });
  }

  Value targetIn(Value rowOfBlock) {
    return target(k.add(firstRow, arith::ExtUIOp::create(b, k.loc, b.getI64Type(), rowOfBlock)));
  }

  /// Adds `count` listed updates from `at` on. \returns row and sum of the last
  SmallVector<Value> add(Value begin, Value at, int64_t count, ArrayRef<Value> before) {
    SmallVector<Value> updates, ownRows;
    for (int64_t i = 0; i < count; ++i) {
      Value entry = k.add(at, k.i64(i)), place = k.load(places, entry, b.getI32Type());
      Value token = k.add(begin, arith::ExtUIOp::create(b, k.loc, b.getI64Type(), place));
      ownRows.push_back(k.load(rows, entry, b.getI32Type()));
      const size_t lead = p.leadSizes.size();
      Value source =
          k.offset(indicesOf(token), ArrayRef<int64_t>(p.updateStrides).take_front(lead));
      if (!p.tailSizes.empty())
        source = k.add(source, k.offset(k.delinearize(column, p.tailSizes),
                                        ArrayRef<int64_t>(p.updateStrides).drop_front(lead)));
      updates.push_back(p.update(source));
    }
    Value row = before[0], sum = before[1];
    for (auto [update, next] : llvm::zip(updates, ownRows)) {
      sum = sumOf(next, row, sum);
      sum = p.sum(sum, update);
      row = next;
    }
    return {row, sum};
  }

  /// Returns the sum so far of row `next`. Stores the sum of the previous row in the table if it is
  /// another one.
  Value sumOf(Value next, Value row, Value sum) {
    Value changes = arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::ne, next, row);
    return k.ifElse(changes, {sum}, [&] {
      k.ifTrue(arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::sge, row, k.i32(0)),
               [&] { p.put(sum, targetIn(row)); });
      return SmallVector<Value>{p.get(targetIn(next))};
    })[0];
  }
};

} // namespace

Kernel cuda::buildScatterKernel(const KernelContext &context, int index,
                                HalfConversions conversions) {
  return ScatterKernel(context, index, conversions).build();
}
