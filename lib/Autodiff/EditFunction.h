// Changing the arguments and results of a unit function.
#pragma once

#include "zorse/Autodiff/Autodiff.h"

#include "mlir/IR/IRMapping.h"

namespace zorse::autodiff {

struct SlotValue {
  mlir::Value value;
  mlir::StringRef slot;
  int64_t index;
};

mlir::StringRef slotOfArgument(mlir::func::FuncOp function, unsigned argument);
mlir::StringRef slotOfResult(mlir::func::FuncOp function, unsigned result);
void setSlot(mlir::func::FuncOp function, bool isArgument, unsigned position, mlir::StringRef slot, int64_t index);

/// Appends an argument.
mlir::Value addArgument(mlir::func::FuncOp function, mlir::Type type, mlir::StringRef slot, int64_t index, mlir::Location loc);
void appendResults(mlir::func::FuncOp function, mlir::ArrayRef<SlotValue> results);

/// A copy behind the function, under another name.
mlir::func::FuncOp cloneAs(mlir::func::FuncOp function, mlir::StringRef name, mlir::IRMapping &mapping);
/// The operations that results of these slots depend on.
llvm::DenseSet<mlir::Operation *> sliceOf(mlir::func::FuncOp function, mlir::function_ref<bool(mlir::StringRef slot)> wanted);
/// What results of these slots are.
llvm::SmallVector<mlir::Value> resultsOf(mlir::func::FuncOp function, mlir::function_ref<bool(mlir::StringRef slot)> wanted);

/// Removes results for which `dropped` holds.
void dropResults(mlir::func::FuncOp function, mlir::function_ref<bool(mlir::StringRef slot)> dropped);
/// Removes arguments that nobody reads, of those for which `droppable` holds.
void dropUnusedArguments(
    mlir::func::FuncOp function, mlir::function_ref<bool(mlir::StringRef slot)> droppable = [](mlir::StringRef) { return true; });
/// Replaces every `zorse.gradient_of` by the gradient.
void dropPairs(mlir::func::FuncOp joint);
/// Removes statistics that nobody reads, so that the operation does not write them.
void dropUnusedStatistics(mlir::Block &block);

} // namespace zorse::autodiff
