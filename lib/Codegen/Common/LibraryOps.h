// Ops that become library calls (matrix products and attention), and the strides that the library
// requires.
#pragma once

#include "Views.h"

#include "bundle.pb.h"

namespace zorse::codegen {

/// A matrix product as in bundle::Matmul, with views instead of pointers.
struct MatmulPlan {
  bundle::Matmul matmul; ///< everything except the pointers.
  View a, b;
  std::optional<View> bias;
  double flopsFixed = 0, flopsPerRow = 0;
};

/// Whether the op is matmul, biased_matmul or matmul_grad_weight.
bool isMatmul(mlir::Operation *op);
/// Whether the op is a product, attention or attention_grad.
bool isLibraryOp(mlir::Operation *op);

/// Computes the strides of a product. Returns nullopt if an operand or the result's claimed layout
/// has strides that BLAS cannot express.
std::optional<MatmulPlan> planMatmul(mlir::Operation *op, const BufferAliases &aliases);

/// The call of an attention or attention_grad without pointers. Operands are in the routine's
/// order, null if absent.
struct AttentionPlan {
  bundle::LibraryCall call;
  llvm::SmallVector<mlir::Value, 12> operands; ///< operand values and results, in the routine's
                                               ///< order.
  unsigned firstResult = 0; ///< results are operands [firstResult, end), except if the routine
                            ///< documents otherwise.
  double flopsPerRow = 0;
};
std::optional<AttentionPlan> planAttention(mlir::Operation *op, const BufferAliases &aliases);

bundle::ElementType bundleType(mlir::Type type);

} // namespace zorse::codegen
