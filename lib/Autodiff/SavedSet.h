// Which forward values to keep for the backward.
#pragma once

#include "zorse/Autodiff/Autodiff.h"

#include <vector>

namespace zorse::autodiff {

/// Chooses S among the results of `forwardOps` (straight line, in order), ordered as they are made.
///
/// \param needed  forward values the gradient operations read.
std::vector<mlir::Value> chooseSaved(llvm::ArrayRef<mlir::Operation *> forwardOps, const llvm::DenseSet<mlir::Value> &needed, SavePolicy policy);

/// True for operations that only rename elements, so that keeping their operand is as good as keeping their result.
bool isView(mlir::Operation *op);

} // namespace zorse::autodiff
