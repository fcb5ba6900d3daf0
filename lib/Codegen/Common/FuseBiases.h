// Linear layers for devices whose library adds the bias.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace zorse::codegen {

/// Makes `zorse.biased_matmul` of a product with a weight, the addition of a vector to its rows and a rounding, where nothing else reads what is
/// between: the product then writes what would be read, added to and written again. Products of f64 stay: libraries add no bias to them.
void fuseBiases(mlir::func::FuncOp function);

} // namespace zorse::codegen
