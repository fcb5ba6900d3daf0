// scatter_add on a GPU: a warp has a row of the table, looks at all ids in order, 32 at a time, and adds the updates of those that are its own. So
// every row receives its updates in the order of the ids.
#include "CudaEmitters.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

static constexpr int kThreads = 256;

Kernel cuda::buildScatterKernel(const KernelContext &context, int index) {
  auto op = cast<ScatterAddOp>(context.clustering.clusters[size_t(index)].ops.front());
  KernelBuilder k(context.context, context.resolve);
  auto table = cast<RankedTensorType>(op.getY().getType());
  Type element = table.getElementType(), idType = getElementTypeOrSelf(op.getIds().getType());
  View ids = *viewOf(op.getIds(), context.claims), updates = *viewOf(op.getUpdates(), context.claims);
  Type updateElement = getElementTypeOrSelf(updates.root.getType()); // narrower where a view widens
  unsigned idOperand = k.operand(ids.root, ids.layout.offset), updateOperand = k.operand(updates.root, updates.layout.offset);
  unsigned out = k.operand(op.getY(), storageLayout(op.getY(), context.claims).offset);
  const bool accumulates = context.accumulates(op.getY());
  if (accumulates)
    k.markAccumulated(out);

  SmallVector<int64_t, 4> leadShape = squeezedShape(op.getIds().getType());
  SmallVector<int64_t, 4> idStrides = squeezedStrides(op.getIds().getType(), ids.layout);
  SmallVector<int64_t, 4> updateStrides = squeezedStrides(op.getUpdates().getType(), updates.layout);
  const size_t lead = leadShape.size();
  SmallVector<Size> leadSizes, tailSizes; // of ids, and of a row of the table, which is contiguous
  Size tokens;
  for (int64_t size : leadShape) {
    leadSizes.push_back(ShapedType::isDynamic(size) ? Size{1, true} : Size{size, false});
    tokens = Size{tokens.count * leadSizes.back().count, tokens.sampled || leadSizes.back().sampled};
  }
  for (int64_t size : table.getShape().drop_front())
    if (size != 1)
      tailSizes.push_back(Size{size, false});
  const int64_t tableRows = table.getDimSize(0), width = elementCount(table) / tableRows;
  k.addCost(Size{elementCount(table), false}, elementBytes(element));
  k.addCost(Size{tokens.count * width, tokens.sampled}, 3 * elementBytes(element));

  OpBuilder &b = k.b;
  Value row = arith::DivUIOp::create(b, k.loc, k.begin, k.i64(32)), lane = arith::RemUIOp::create(b, k.loc, k.begin, k.i64(32));
  Value first = k.mul(row, width);
  Value add = accumulates ? k.accumulates(out) : Value();
  // Columns lane, lane + 32, ...
  auto eachColumn = [&](llvm::function_ref<void(Value)> body) {
    Value turns = arith::DivUIOp::create(b, k.loc, k.sub(k.i64(width + 31), lane), k.i64(32));
    k.loop(k.i64(0), turns, [&](Value turn) { body(k.add(k.mul(turn, 32), lane)); });
  };
  auto place = [&](Value token) { return leadSizes.empty() ? SmallVector<Value>() : k.delinearize(token, leadSizes); };
  k.ifTrue(arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::slt, row, k.i64(tableRows)), [&] {
    auto clear = [&] {
      eachColumn([&](Value column) { k.store(k.number(KernelBuilder::computeType(element), 0.0), k.pointer(out), k.add(first, column), element); });
    };
    if (add)
      k.ifTrue(arith::XOrIOp::create(b, k.loc, add, arith::ConstantIntOp::create(b, k.loc, 1, 1)), clear);
    else
      clear();
    Value count = k.size(tokens);
    Value turns = arith::DivUIOp::create(b, k.loc, k.add(count, k.i64(31)), k.i64(32));
    k.loop(k.i64(0), turns, [&](Value turn) {
      Value base = k.mul(turn, 32), token = k.add(base, lane);
      Value inside = arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::slt, token, count);
      Value id = k.widen(k.load(k.pointer(idOperand), k.offset(place(k.select(inside, token, k.i64(0))), idStrides), idType));
      Value mine = arith::AndIOp::create(b, k.loc, inside, arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::eq, id, row));
      if (op.getPadding())
        mine = k.andNot(mine, id, *op.getPadding());
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
            Value from = k.offset(place(k.add(base, lowest)), ArrayRef<int64_t>(updateStrides).take_front(lead));
            eachColumn([&](Value column) {
              Value source = from;
              if (!tailSizes.empty())
                source = k.add(source, k.offset(k.delinearize(column, tailSizes), ArrayRef<int64_t>(updateStrides).drop_front(lead)));
              Value to = k.add(first, column);
              Value sum = k.combine(ReduceKind::Sum, k.load(k.pointer(out), to, element), k.load(k.pointer(updateOperand), source, updateElement));
              k.store(sum, k.pointer(out), to, element);
            });
            Value rest = arith::AndIOp::create(b, loc, bits[0], arith::SubIOp::create(b, loc, bits[0], one));
            scf::YieldOp::create(b, loc, rest);
            inner.setInsertionPointToEnd(b.getInsertionBlock());
          });
      (void)loop;
    });
  });
  return k.finishCuda("scatter_add", Size{tableRows * 32, false}, kThreads, 1);
}
