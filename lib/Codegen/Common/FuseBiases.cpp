#include "FuseBiases.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace zorse;

/// Returns the vector of `element`s that `value` repeats along all dimensions except the last. Null
/// if there is none, or if it is stored in another type.
static Value repeatedVector(Value value, Type element) {
  auto narrowOf = [](Value wide) {
    auto widened = wide.getDefiningOp<arith::ExtFOp>();
    return widened ? widened.getIn() : wide;
  };
  auto repeated = narrowOf(value).getDefiningOp<BroadcastOp>();
  if (!repeated || repeated.getDims() !=
                       ArrayRef<int64_t>{cast<RankedTensorType>(value.getType()).getRank() - 1})
    return Value();
  Value vector = narrowOf(repeated.getX());
  return getElementTypeOrSelf(vector.getType()) == element ? vector : Value();
}

static void fuse(MatmulOp matmul) {
  Value y = matmul.getY();
  auto sum = y.hasOneUse() ? dyn_cast<arith::AddFOp>(*y.user_begin()) : arith::AddFOp();
  if (!sum || matmul.getTransposeA() ||
      cast<RankedTensorType>(matmul.getB().getType()).getRank() != 2)
    return;
  Operation *last = sum;
  Type element = getElementTypeOrSelf(matmul.getA().getType());
  if (!element.isF32()) { // fused only if the sum is rounded to the type of the operands
    auto rounding = sum->hasOneUse() ? dyn_cast<arith::TruncFOp>(*sum->user_begin())
                                     : arith::TruncFOp();
    if (!rounding || !getElementTypeOrSelf(y.getType()).isF32() ||
        getElementTypeOrSelf(rounding.getType()) != element)
      return;
    last = rounding;
  }
  Value bias = repeatedVector(sum.getLhs() == y ? sum.getRhs() : sum.getLhs(), element);
  if (!bias)
    return;
  OpBuilder builder(last);
  Location all = builder.getFusedLoc({matmul.getLoc(), sum.getLoc()});
  auto fused = BiasedMatmulOp::create(builder, all, last->getResult(0).getType(), matmul.getA(),
                                      matmul.getB(), bias, matmul.getTransposeB());
  last->replaceAllUsesWith(fused);
  last->erase();
  if (last != sum)
    sum->erase();
  matmul->erase();
}

void codegen::fuseBiases(func::FuncOp function) {
  for (MatmulOp matmul : llvm::make_early_inc_range(function.getBody().front().getOps<MatmulOp>()))
    if (isa<Float32Type, BFloat16Type, Float16Type>(getElementTypeOrSelf(matmul.getA().getType())))
      fuse(matmul);
}
