// One unit function → one body.
#pragma once

#include "KernelCompiler.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace zorse::codegen {

/// Fills `body` and `facts`; kernels go to `kernels`. Fails after a diagnostic.
mlir::LogicalResult lowerFunction(mlir::func::FuncOp function, KernelSet &kernels, bundle::Body &body, BodyFacts &facts);

} // namespace zorse::codegen
