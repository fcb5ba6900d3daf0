#pragma once

#include "mlir/IR/Block.h"

namespace zorse {

/// Erases dead operations: those without uses and side effects, and then those that only erased
/// operations used. Keeps the terminator.
void eraseDeadOps(mlir::Block &block);

} // namespace zorse
