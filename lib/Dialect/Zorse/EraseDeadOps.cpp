#include "zorse/Dialect/Zorse/EraseDeadOps.h"

#include "mlir/IR/Operation.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;

void zorse::eraseDeadOps(Block &block) {
  // Steps by hand: std::reverse_iterator, which llvm::reverse gives for ranges without an rbegin of their own (Block::without_terminator), stands on
  // the operation behind the one it means. An early increment over such a range goes on from an operation that was erased.
  for (Operation *op = block.empty() ? nullptr : &block.back(); op;) {
    Operation *before = op->getPrevNode();
    if (isOpTriviallyDead(op))
      op->erase();
    op = before;
  }
}
