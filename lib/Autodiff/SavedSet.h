// Which values to keep: of the forward for the backward, of B for W.
#pragma once

#include "zorse/Autodiff/Autodiff.h"

#include <vector>

namespace zorse::autodiff {

/// The cheapest cut, in bytes, between values that are there and what is computed from them: values to hand over, ordered as they are made, so that
/// `needed` follows from them and from arguments by computing some of `ops` again (straight line, in order).
///
/// \param offered    which values can be handed over at all; of them, those that carry samples are.
/// \param once       values, among them, that are never computed again.
/// \param arguments  that are not there for `ops` unless they are handed over, too.
std::vector<mlir::Value> chooseCut(llvm::ArrayRef<mlir::Operation *> ops, const llvm::DenseSet<mlir::Value> &needed,
                                   llvm::function_ref<bool(mlir::OpResult)> offered, llvm::function_ref<bool(mlir::OpResult)> once,
                                   llvm::ArrayRef<mlir::Value> arguments = {});

/// Never computed twice: matrix products, attention, the loss, and every statistic (few bytes that cost a pass over many).
bool isExpensive(mlir::OpResult value);

} // namespace zorse::autodiff
