// Chooses which values to save: of the forward for the backward, and of B for W.
#pragma once

#include "zorse/Autodiff/Autodiff.h"

#include <vector>

namespace zorse::autodiff {

/// Returns the cheapest cut, in bytes, between available values and `needed`. The returned values,
/// in the order of their definition, are passed on; `needed` can be computed from them and from
/// arguments by executing some of `ops` again (straight line, in order).
///
/// \param offered    values that can be passed on; only those with a batch dimension are.
/// \param once       subset of the values that is never recomputed.
/// \param arguments  values that are available to `ops` only if they are passed on as well.
std::vector<mlir::Value> chooseCut(llvm::ArrayRef<mlir::Operation *> ops,
                                   const llvm::DenseSet<mlir::Value> &needed,
                                   llvm::function_ref<bool(mlir::OpResult)> offered,
                                   llvm::function_ref<bool(mlir::OpResult)> once,
                                   llvm::ArrayRef<mlir::Value> arguments = {});

/// Whether the value is never recomputed: matrix products, attention, the loss, exchanges, and
/// every statistic (few bytes that need a pass over many).
bool isExpensive(mlir::OpResult value);

} // namespace zorse::autodiff
