#include "ContractProducts.h"

#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Transforms/Scalar/SpeculativeExecution.h"
#include "llvm/Transforms/Utils/Local.h"

using namespace llvm;

/// `value` as a product that a sum in `block` may contract; null: it is none.
static BinaryOperator *productOf(Value *value, const BasicBlock *block) {
  auto *product = dyn_cast<BinaryOperator>(value);
  return product && product->getOpcode() == Instruction::FMul && product->hasAllowContract() &&
                 product->getParent() == block
             ? product
             : nullptr;
}

/// The negation of a value is shared within its block and counts as one use of the value.
static Value *negated(BinaryOperator &sum, Value *value) {
  for (User *user : value->users())
    if (auto *negation = dyn_cast<UnaryOperator>(user);
        negation && negation->getOpcode() == Instruction::FNeg &&
        negation->getParent() == sum.getParent() && negation->comesBefore(&sum))
      return negation;
  auto *defined = dyn_cast<Instruction>(value);
  const bool isHere = defined && defined->getParent() == sum.getParent() && !isa<PHINode>(defined);
  IRBuilder<> b(sum.getParent(), isHere ? std::next(defined->getIterator())
                                        : sum.getParent()->getFirstInsertionPt());
  return b.CreateFNeg(value);
}

static Value *fma(IRBuilder<> &b, Value *x, Value *y, Value *z) {
  return b.CreateIntrinsic(Intrinsic::fma, {x->getType()}, {x, y, z});
}

/// The fma that replaces `sum`; null: none.
static Value *contracted(BinaryOperator &sum) {
  Value *first = sum.getOperand(0), *second = sum.getOperand(1);
  BinaryOperator *left = productOf(first, sum.getParent()),
                 *right = productOf(second, sum.getParent());
  // Of two products, contract the one with fewer uses.
  const bool takesRight = right && (!left || left->getNumUses() > right->getNumUses());
  BinaryOperator *product = takesRight ? right : left;
  if (!product)
    return nullptr;
  IRBuilder<> b(&sum);
  Value *x = product->getOperand(0), *y = product->getOperand(1),
        *other = takesRight ? first : second;
  if (sum.getOpcode() == Instruction::FAdd)
    return fma(b, x, y, other);
  return takesRight ? fma(b, negated(sum, x), y, other) : fma(b, x, y, negated(sum, other));
}

/// Reorders x y + u v + z to x y + (u v + z) if reassociation is allowed; any number of products.
/// Null: not such a sum.
static Value *chained(BinaryOperator &sum) {
  auto isOnce = [&](Value *value) {
    auto *call = dyn_cast<IntrinsicInst>(value);
    return call && call->getIntrinsicID() == Intrinsic::fma && call->hasOneUse() &&
           call->getParent() == sum.getParent();
  };
  const bool isSecond = !isOnce(sum.getOperand(0));
  Value *chain = sum.getOperand(isSecond ? 1 : 0), *other = sum.getOperand(isSecond ? 0 : 1);
  SmallVector<IntrinsicInst *> factors;
  for (; isOnce(chain); chain = factors.back()->getArgOperand(2))
    factors.push_back(cast<IntrinsicInst>(chain));
  auto *product = dyn_cast<BinaryOperator>(chain);
  if (factors.empty() || !product || product->getOpcode() != Instruction::FMul ||
      !product->hasOneUse() || product->getParent() != sum.getParent())
    return nullptr;
  IRBuilder<> b(&sum);
  Value *total = fma(b, product->getOperand(0), product->getOperand(1), other);
  for (IntrinsicInst *outer : reverse(factors))
    total = fma(b, outer->getArgOperand(0), outer->getArgOperand(1), total);
  return total;
}

/// Replaces the last sum of the block for which `combine` returns a value. \returns whether there
/// was one
static bool replaceSums(BasicBlock &block, function_ref<Value *(BinaryOperator &)> combine) {
  for (Instruction &instruction : reverse(block)) {
    auto *sum = dyn_cast<BinaryOperator>(&instruction);
    if (!sum || (sum->getOpcode() != Instruction::FAdd && sum->getOpcode() != Instruction::FSub) ||
        !sum->hasAllowContract())
      continue;
    Value *one = combine(*sum);
    if (!one)
      continue;
    sum->replaceAllUsesWith(one);
    RecursivelyDeleteTriviallyDeadInstructions(sum);
    return true;
  }
  return false;
}

void zorse::emulator::contractProducts(Module &module) {
  // Like the passes before the backend: moves cheap instructions of a block to the block that
  // branches there.
  FunctionAnalysisManager analyses;
  PassBuilder().registerFunctionAnalyses(analyses);
  for (Function &function : module) {
    if (function.isDeclaration())
      continue;
    SpeculativeExecutionPass().run(function, analyses);
    for (BasicBlock &block : function) {
      while (replaceSums(block, contracted))
        ;
      auto mayChain = [](BinaryOperator &sum) {
        return sum.getOpcode() == Instruction::FAdd && sum.hasAllowReassoc() ? chained(sum)
                                                                             : nullptr;
      };
      while (replaceSums(block, mayChain))
        ;
    }
  }
}
