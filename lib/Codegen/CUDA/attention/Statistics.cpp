// Statistics of every query that both gradients need. A query has one lane per 16 bytes of its
// head.
#include "AttentionKernels.h"

#include "Scores.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;
using namespace zorse::codegen::cuda;

static constexpr int kThreads = 128;

int64_t cuda::statisticsBytes(Operation *operation) {
  auto op = cast<AttentionGradOp>(operation);
  auto q = cast<RankedTensorType>(op.getQ().getType());
  return q.getDimSize(1) * q.getDimSize(2) * (isAddedMask(op.getMask()) ? 4 : 2) *
         int64_t(sizeof(float));
}

Kernel cuda::buildAttentionStatistics(const KernelContext &context, const AttentionProblem &problem,
                                      const KernelBuilder::Place &statistics) {
  CudaKernelBuilder k(context.context, context.resolve);
  WarpBuilder w(k, problem.element);
  const int64_t pieces = problem.size / 8;
  int lanes = 1;
  while (lanes < pieces)
    lanes *= 2;
  // A warp processes at least eight neighboring queries, several at a time if it has enough lanes,
  // so that their statistics are complete memory sectors.
  const int atATime = 32 / lanes, turns = std::max(1, 8 / atATime);
  const Size lines{problem.heads * problem.queries, true};
  Value number = arith::DivUIOp::create(k.b, k.loc, k.begin, k.i64(turns));
  Value inWarp = arith::RemUIOp::create(k.b, k.loc, number, k.i64(32)),
        ofWarp = k.mul(arith::DivUIOp::create(k.b, k.loc, number, k.i64(32)), atATime * turns);
  Value lane = arith::RemUIOp::create(k.b, k.loc, inWarp, k.i64(lanes)),
        line = k.add(ofWarp, arith::DivUIOp::create(k.b, k.loc, inWarp, k.i64(lanes)));
  auto isBelow = [&](Value x, Value end) -> Value {
    return arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::slt, x, end);
  };
  Value end = k.size(lines), isPiece = isBelow(lane, k.i64(pieces));

  /// The sum of out * dout of a query, in each of its lanes.
  auto sumOf = [&](Value line) {
    SmallVector<Value> at = k.delinearize(
        line, {Size{1, true}, Size{problem.heads, false}, Size{problem.queries, false}});
    auto load = [&](const HeadTensor &tensor) {
      Value offset =
          k.offset({at[0], at[1], at[2], lane}, {tensor.row, tensor.head, tensor.position, 8});
      return k.loadMany(k.pointer(k.operand(tensor.root, tensor.offset)), offset, tensor.element,
                        8);
    };
    Value sum =
        k.ifElse(w.both(isBelow(line, end), isPiece), {w.f32(0)}, [&]() -> SmallVector<Value> {
           Value sum;
           for (auto [x, y] : llvm::zip(load(problem.out), load(problem.dout)))
             sum = sum ? w.fma(x, y, sum) : w.mulF(x, y);
           return {sum};
         }).front();
    for (int other = 1; other < lanes; other *= 2)
      sum = w.addF(sum, w.exchange(sum, other));
    return sum;
  };
  // Lane t of a query's lanes keeps and stores the sum of iteration t.
  Value mine;
  for (int turn = 0; turn < turns; ++turn) {
    Value sum = sumOf(k.add(line, k.i64(int64_t(turn) * atATime)));
    Value isTurn = arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::eq, lane, k.i64(turn));
    mine = mine ? k.select(isTurn, sum, mine) : sum;
  }
  line = k.add(line, k.mul(lane, atATime));

  const unsigned lse = k.operand(problem.lse, problem.lseOffset), result = k.operand(statistics);
  k.markWritten(result);
  k.ifTrue(w.both(isBelow(line, end), isBelow(lane, k.i64(turns))), [&] {
    Value first = k.mul(line, problem.numbersOfQuery()),
          statistic = k.load(k.pointer(lse), first, k.b.getF32Type());
    // A query without visible keys has only scores of -inf, and e^(-inf - 0) = 0.
    Value hidden = w.isMinusInfinite(statistic), finite = k.select(hidden, w.f32(0), statistic);
    // The values that Scores::probability needs, from natural units.
    Value shift = problem.isPlain() ? w.mulF(finite, w.f32(-kLog2E)) : finite,
          delta = w.mulF(mine, w.f32(-problem.options.scale));
    SmallVector<Value> all{shift, delta};
    if (problem.addsMask()) {
      Value sum = k.select(hidden, w.f32(1),
                           k.load(k.pointer(lse), k.add(first, k.i64(1)), k.b.getF32Type()));
      all.append({w.mulF(math::LogOp::create(k.b, k.loc, sum), w.f32(-kLog2E)), w.f32(0)});
    }
    const int64_t bytes = 4 * problem.statisticsOfQuery();
    w.store(w.vector(all), w.at(w.global(result), k.mul(line, bytes)), unsigned(bytes));
  });
  for (const HeadTensor *tensor : {&problem.out, &problem.dout})
    k.addCost(Size{tensor->numbers, true}, 2);
  k.addCost(lines, int(4 * (problem.numbersOfQuery() + problem.statisticsOfQuery())));
  return k.finish("attention_statistics", Size{lines.count * lanes, true}, kThreads, turns);
}
