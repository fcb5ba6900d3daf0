#include "Groups.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

void cuda::takeGroups(CudaKernelBuilder &k, Value count, int groups,
                      function_ref<void(Value)> whole, function_ref<void(Value)> part) {
  OpBuilder &b = k.b;
  const int64_t perBlock = int64_t(kGroupThreads) * groups;
  auto low = [&](Value value) -> Value {
    return arith::TruncIOp::create(b, k.loc, b.getI32Type(), value);
  };
  auto atMost = [&](Value x, Value y) -> Value {
    return arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::ule, x, y);
  };
  // The index of a full block is computed in 32 bits if all groups, including those of a partial
  // last block, fit into 32 bits: GPUs need two or more instructions for 64-bit arithmetic.
  Value first = arith::MulIOp::create(b, k.loc, low(k.blockIndex()), k.i32(perBlock));
  Value isWhole = atMost(arith::AddIOp::create(b, k.loc, first, k.i32(perBlock)), low(count));
  isWhole = arith::AndIOp::create(
      b, k.loc, atMost(count, k.i64(int64_t(UINT32_MAX) - 2 * perBlock)), isWhole);
  k.ifTrue(isWhole, [&] {
    Value group = arith::AddIOp::create(b, k.loc, first, low(k.threadIndex()));
    whole(arith::ExtUIOp::create(b, k.loc, b.getI64Type(), group));
  });
  k.ifTrue(arith::XOrIOp::create(b, k.loc, isWhole, arith::ConstantIntOp::create(b, k.loc, 1, 1)),
           [&] {
             Value group = k.add(k.mul(k.blockIndex(), perBlock), k.threadIndex());
             k.loop(k.i64(0), k.i64(groups),
                    [&](Value i) { part(k.add(group, k.mul(i, kGroupThreads))); });
           });
}
