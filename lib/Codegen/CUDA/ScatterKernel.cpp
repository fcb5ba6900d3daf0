// scatter_add on a GPU: a warp has a row of the table, looks at all ids in order, 32 at a time, and adds the updates of those that are its own. So
// every row receives its updates in the order of the ids.
#include "CudaEmitters.h"

#include "ScatterProgram.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

static constexpr int kThreads = 256;

Kernel cuda::buildScatterKernel(const KernelContext &context, int index) {
  ScatterProgram p(context, index);
  KernelBuilder &k = p.k;
  const int64_t width = p.width;
  const size_t lead = p.leadSizes.size();
  OpBuilder &b = k.b;
  Value row = arith::DivUIOp::create(b, k.loc, k.begin, k.i64(32)), lane = arith::RemUIOp::create(b, k.loc, k.begin, k.i64(32));
  Value first = k.mul(row, width);
  Value add = p.accumulates ? k.accumulates(p.out) : Value();
  // Columns lane, lane + 32, ...
  auto eachColumn = [&](llvm::function_ref<void(Value)> body) {
    Value turns = arith::DivUIOp::create(b, k.loc, k.sub(k.i64(width + 31), lane), k.i64(32));
    k.loop(k.i64(0), turns, [&](Value turn) { body(k.add(k.mul(turn, 32), lane)); });
  };
  auto place = [&](Value token) { return p.leadSizes.empty() ? SmallVector<Value>() : k.delinearize(token, p.leadSizes); };
  k.ifTrue(arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::slt, row, k.i64(p.tableRows)), [&] {
    auto clear = [&] { eachColumn([&](Value column) { p.clear(k.add(first, column)); }); };
    if (add)
      k.ifTrue(arith::XOrIOp::create(b, k.loc, add, arith::ConstantIntOp::create(b, k.loc, 1, 1)), clear);
    else
      clear();
    Value count = k.size(p.tokens);
    Value turns = arith::DivUIOp::create(b, k.loc, k.add(count, k.i64(31)), k.i64(32));
    k.loop(k.i64(0), turns, [&](Value turn) {
      Value base = k.mul(turn, 32), token = k.add(base, lane);
      Value inside = arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::slt, token, count);
      Value id = k.widen(k.load(k.pointer(p.idOperand), k.offset(place(k.select(inside, token, k.i64(0))), p.idStrides), p.idType));
      Value mine = arith::AndIOp::create(b, k.loc, inside, arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::eq, id, row));
      if (p.op.getPadding())
        mine = k.andNot(mine, id, *p.op.getPadding());
      Value found = arith::ExtUIOp::create(b, k.loc, b.getI64Type(), k.ballot(mine));
      // Bit by bit from below; all lanes have the same bits.
      auto loop = scf::WhileOp::create(
          b, k.loc, TypeRange{b.getI64Type()}, ValueRange{found},
          [&](OpBuilder &inner, Location loc, ValueRange bits) {
            Value any = arith::CmpIOp::create(inner, loc, arith::CmpIPredicate::ne, bits[0], arith::ConstantIntOp::create(inner, loc, 0, 64));
            scf::ConditionOp::create(inner, loc, any, bits);
          },
          [&](OpBuilder &inner, Location loc, ValueRange bits) {
            OpBuilder::InsertionGuard guard(b);
            b.setInsertionPointToEnd(inner.getInsertionBlock());
            Value one = k.i64(1), lowest = math::CountTrailingZerosOp::create(b, loc, bits[0]);
            Value from = k.offset(place(k.add(base, lowest)), ArrayRef<int64_t>(p.updateStrides).take_front(lead));
            eachColumn([&](Value column) {
              Value source = from;
              if (!p.tailSizes.empty())
                source = k.add(source, k.offset(k.delinearize(column, p.tailSizes), ArrayRef<int64_t>(p.updateStrides).drop_front(lead)));
              p.add(source, k.add(first, column));
            });
            Value rest = arith::AndIOp::create(b, loc, bits[0], arith::SubIOp::create(b, loc, bits[0], one));
            scf::YieldOp::create(b, loc, rest);
            inner.setInsertionPointToEnd(b.getInsertionBlock());
          });
      (void)loop;
    });
  });
  return k.finishCuda("scatter_add", Size{p.tableRows * 32, false}, kThreads, 1);
}
