// Ops whose indices count along a divided factor: table lookups and the cross-entropy of logits
// that are divided by classes.
#pragma once

#include "zorse/Sharding/Sharding.h"

#include "mlir/IR/Builders.h"

namespace zorse::sharding {

/// Returns why an op with a divided factor along which the indices of an operand count cannot be
/// built, or "".
std::string whyNotByIds(mlir::Operation *op);

/// Whether the results of a divided op are whole, because its parts exchange numbers: a
/// cross-entropy whose factor is combined as a softmax.
bool combines(mlir::Operation *op);

/// One device's part of an op with indices.
struct PartByIds {
  llvm::SmallVector<mlir::Value> operands; ///< local parts; the indices are whole
  int64_t begin = 0, size = 0;             ///< range of the table rows or classes of the device
  size_t device = 0, devices = 0;
  int64_t exchange = 0; ///< number of its exchange, if it has one
};

/// Builds the part. Indices outside of the range read zero and write nothing. Returns the results:
/// summands of those of a lookup, whole ones of a cross-entropy, the device's classes of a
/// gradient.
llvm::SmallVector<mlir::Value> buildByIds(mlir::OpBuilder &builder, mlir::Operation *op,
                                          const PartByIds &part);

} // namespace zorse::sharding
