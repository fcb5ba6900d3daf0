// Fuses biases into linear layers, for devices with a library that adds the bias.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace zorse::codegen {

/// Replaces a product with a weight, the addition of a vector to its rows, and a rounding by
/// `zorse.biased_matmul`, if the intermediate results have no other use. This saves writing and
/// reading the product. Products in f64 are not fused: libraries add no bias to them.
void fuseBiases(mlir::func::FuncOp function);

} // namespace zorse::codegen
