#include "zorse/Dialect/Zorse/EraseDeadOps.h"

#include "mlir/IR/Operation.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;

void zorse::eraseDeadOps(Block &block) {
  // Does not use llvm::reverse: it creates a std::reverse_iterator for ranges without rbegin
  // (Block::without_terminator), which points to the operation after the current one. An early
  // increment would then continue from an erased operation.
  for (Operation *op = block.empty() ? nullptr : &block.back(); op;) {
    Operation *before = op->getPrevNode();
    if (isOpTriviallyDead(op))
      op->erase();
    op = before;
  }
}
