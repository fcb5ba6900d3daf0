#include "ContractProducts.h"

#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"

using namespace llvm;

/// The product that `value` is for a sum in `block`; null: it is none.
static BinaryOperator *productOf(Value *value, const BasicBlock *block) {
  auto *product = dyn_cast<BinaryOperator>(value);
  return product && product->getOpcode() == Instruction::FMul && product->hasAllowContract() && product->getParent() == block ? product : nullptr;
}

static Value *fma(IRBuilder<> &b, Value *x, Value *y, Value *z) { return b.CreateIntrinsic(Intrinsic::fma, {x->getType()}, {x, y, z}); }

/// The fma that `sum` becomes; null: none.
static Value *contracted(BinaryOperator &sum) {
  Value *first = sum.getOperand(0), *second = sum.getOperand(1);
  BinaryOperator *left = productOf(first, sum.getParent()), *right = productOf(second, sum.getParent());
  // Of two products the one with fewer uses.
  const bool takesRight = right && (!left || left->getNumUses() > right->getNumUses());
  BinaryOperator *product = takesRight ? right : left;
  if (!product)
    return nullptr;
  IRBuilder<> b(&sum);
  Value *x = product->getOperand(0), *y = product->getOperand(1), *other = takesRight ? first : second;
  if (sum.getOpcode() == Instruction::FAdd)
    return fma(b, x, y, other);
  return takesRight ? fma(b, b.CreateFNeg(x), y, other) : fma(b, x, y, b.CreateFNeg(other));
}

void zorse::emulator::contractProducts(Module &module) {
  for (Function &function : module)
    for (BasicBlock &block : function)
      for (Instruction &instruction : make_early_inc_range(block)) {
        auto *sum = dyn_cast<BinaryOperator>(&instruction);
        if (!sum || (sum->getOpcode() != Instruction::FAdd && sum->getOpcode() != Instruction::FSub) || !sum->hasAllowContract())
          continue;
        if (Value *one = contracted(*sum)) {
          sum->replaceAllUsesWith(one);
          sum->eraseFromParent();
        }
      }
}
