// Products and attention: ops that become library calls, and the strides these demand.
#pragma once

#include "Views.h"

#include "bundle.pb.h"

namespace zorse::codegen {

/// A matrix product as bundle::MatrixProduct says it, over views instead of pointers.
struct ProductPlan {
  bundle::MatrixProduct product; ///< everything but the pointers.
  View a, b;
  std::optional<View> bias;
  double flopsFixed = 0, flopsPerRow = 0;
};

/// True for matmul, biased_matmul and contract.
bool isProduct(mlir::Operation *op);
/// True for products, attention and attention_grad.
bool isLibraryOp(mlir::Operation *op);

/// The strides of a product; none where an operand (or the result's place) has strides that a BLAS cannot express.
std::optional<ProductPlan> planProduct(mlir::Operation *op, const Claims &claims);

/// The call of an attention or attention_grad without pointers; operands in the routine's order, null where absent. None as above.
struct AttentionPlan {
  bundle::LibraryCall call;
  llvm::SmallVector<mlir::Value, 12> operands; ///< operand values and results, in the routine's order.
  unsigned firstResult = 0;                    ///< results are operands [firstResult, end) except as the routine documents.
  double flopsPerRow = 0;
};
std::optional<AttentionPlan> planAttention(mlir::Operation *op, const Claims &claims);

bundle::ElementType bundleType(mlir::Type type);

} // namespace zorse::codegen
