#pragma once

#include "mlir/IR/Block.h"

namespace zorse {

/// Erases what leads to nothing: operations without uses and effects, and then those that only they used. The terminator stays.
void eraseDeadOps(mlir::Block &block);

} // namespace zorse
