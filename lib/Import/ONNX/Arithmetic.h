// Operators that other importers apply directly: binary arithmetic, matmul, dropout.
#pragma once

#include "OpContext.h"

namespace zorse::onnx_import {

class Decomposition;

/// Sets the result to `which` of both operands: Add, Sub, Mul, Div, Mod, Max or Min. Fails after an
/// error.
mlir::LogicalResult binary(OpContext &op, const std::string &which, const ImportedValue &a,
                           const ImportedValue &b);
/// A matmul with the semantics of MatMul. Fails after an error.
mlir::FailureOr<ImportedValue> product(OpContext &op, ImportedValue a, ImportedValue b);
/// Multiplies x [..., G, K] by w [G, K, N], which carries no samples; the result is [..., G, N].
ImportedValue groupedProduct(Decomposition &make, const ImportedValue &x, const ImportedValue &w);
/// Returns exactly 1 / sqrt(channels) if `scale` equals it up to rounding, otherwise `scale`.
double attentionScale(const ImportState &state, double scale, int64_t channels);
/// Sets the result to a dropout of a value that does not depend on samples. Fails after an error.
mlir::LogicalResult dropConstant(OpContext &op, const ImportedValue &x, double ratio,
                                 int64_t rngId);
/// Sets the result to the first operand.
mlir::LogicalResult importIdentity(OpContext &op);

} // namespace zorse::onnx_import
