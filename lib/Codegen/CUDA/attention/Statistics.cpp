// What both gradients need of every query. A query has as many lanes as its head has pieces of 16 bytes; neighbouring queries of a head follow each
// other, so that their statistics lie in whole sectors.
#include "AttentionKernels.h"

#include "Scores.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;
using namespace zorse::codegen::cuda;

static constexpr int kThreads = 128;

int64_t cuda::statisticsBytes(Operation *operation) {
  auto q = cast<RankedTensorType>(cast<AttentionGradOp>(operation).getQ().getType());
  return q.getDimSize(1) * q.getDimSize(2) * 2 * int64_t(sizeof(float));
}

Kernel cuda::buildAttentionStatistics(const KernelContext &context, const AttentionProblem &problem, const KernelBuilder::Place &statistics) {
  KernelBuilder k(context.context, context.resolve);
  WarpBuilder w(k, problem.element);
  const int64_t pieces = problem.size / 8;
  int lanes = 1;
  while (lanes < pieces)
    lanes *= 2;
  const Size lines{problem.heads * problem.queries, true};
  Value line = arith::DivUIOp::create(k.b, k.loc, k.begin, k.i64(lanes)), lane = arith::RemUIOp::create(k.b, k.loc, k.begin, k.i64(lanes));
  Value isLine = arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::slt, line, k.size(lines));
  Value isPiece = arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::slt, lane, k.i64(pieces));
  SmallVector<Value> at = k.delinearize(line, {Size{1, true}, Size{problem.heads, false}, Size{problem.queries, false}});

  auto load = [&](const HeadTensor &tensor) {
    Value offset = k.offset({at[0], at[1], at[2], lane}, {tensor.row, tensor.head, tensor.position, 8});
    return k.loadMany(k.pointer(k.operand(tensor.root, tensor.offset)), offset, tensor.element, 8);
  };
  SmallVector<Value> sums = k.ifElse(w.both(isLine, isPiece), {w.f32(0)}, [&]() -> SmallVector<Value> {
    Value sum;
    for (auto [x, y] : llvm::zip(load(problem.out), load(problem.dout)))
      sum = sum ? w.fma(x, y, sum) : w.mulF(x, y);
    return {sum};
  });
  Value sum = sums.front();
  for (int other = 1; other < lanes; other *= 2)
    sum = w.addF(sum, w.exchange(sum, other));

  const unsigned lse = k.operand(problem.lse, problem.lseOffset), result = k.operand(statistics);
  k.markWritten(result);
  Value isFirst = arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::eq, lane, k.i64(0));
  k.ifTrue(w.both(isLine, isFirst), [&] {
    Value logarithm = k.load(k.pointer(lse), line, k.b.getF32Type());
    // A query that sees no key has scores of -inf alone, and e^(-inf - 0) = 0.
    Value finite = k.select(w.isMinusInfinite(logarithm), w.f32(0), logarithm);
    // What Scores::probability takes, of natural units.
    Value reference = problem.isPlain() ? w.mulF(finite, w.f32(-kLog2E)) : finite;
    Value both = w.pair(reference, w.mulF(sum, w.f32(-problem.options.scale)));
    w.store(both, w.at(w.global(result), k.mul(line, 8)), 8);
  });
  for (const HeadTensor *tensor : {&problem.out, &problem.dout})
    k.addCost(Size{tensor->numbers, true}, 2);
  k.addCost(lines, 12);
  return k.finishCuda("attention_statistics", Size{lines.count * lanes, true}, kThreads, 1);
}
