// Operators that others apply by themselves: arithmetic of two operands, products of matrices, dropout.
#pragma once

#include "OpContext.h"

namespace zorse::onnx_import {

class Composition;

/// Sets the result to `which` of both: Add, Sub, Mul, Div, Mod, Max or Min. Fails after an error.
mlir::LogicalResult binary(OpContext &op, const std::string &which, const ImportedValue &a, const ImportedValue &b);
/// A product of matrices, as MatMul has it. Fails after an error.
mlir::FailureOr<ImportedValue> product(OpContext &op, ImportedValue a, ImportedValue b);
/// x [..., G, K] and w [G, K, N], which carries no samples, to [..., G, N].
ImportedValue groupedProduct(Composition &make, const ImportedValue &x, const ImportedValue &w);
/// 1 / sqrt(channels), where `scale` is that but for rounding.
double attentionScale(const ImportState &state, double scale, int64_t channels);
/// Sets the result to a dropout of what does not depend on samples. Fails after an error.
mlir::LogicalResult dropConstant(OpContext &op, const ImportedValue &x, double ratio, int64_t instance);
/// Sets the result to the first operand.
mlir::LogicalResult importIdentity(OpContext &op);

} // namespace zorse::onnx_import
