// Changing the arguments and results of a unit function.
#pragma once

#include "zorse/Autodiff/Autodiff.h"

#include "mlir/IR/IRMapping.h"

namespace zorse::autodiff {

struct SlotValue {
  mlir::Value value;
  SlotKind kind;
  uint32_t index;
};

/// Appends an argument.
mlir::Value addArgument(mlir::func::FuncOp function, mlir::Type type, SlotKind kind, uint32_t index, mlir::Location loc);
void appendResults(mlir::func::FuncOp function, mlir::ArrayRef<SlotValue> results);

/// A copy behind the function, for another task.
mlir::func::FuncOp cloneAs(mlir::func::FuncOp function, Task task, mlir::IRMapping &mapping);
/// The operations that results of these slots depend on.
llvm::DenseSet<mlir::Operation *> sliceOf(mlir::func::FuncOp function, mlir::function_ref<bool(SlotKind)> wanted);
/// What results of these slots are.
llvm::SmallVector<mlir::Value> resultsOf(mlir::func::FuncOp function, mlir::function_ref<bool(SlotKind)> wanted);

/// Removes results for which `dropped` holds.
void dropResults(mlir::func::FuncOp function, mlir::function_ref<bool(SlotKind)> dropped);
/// Removes arguments that nobody reads, of those for which `droppable` holds.
void dropUnusedArguments(mlir::func::FuncOp function, mlir::function_ref<bool(SlotKind)> droppable = [](SlotKind) { return true; });
/// Replaces every `zorse.gradient_of` by the gradient.
void dropPairs(mlir::func::FuncOp joint);
/// Removes statistics that nobody reads, so that the operation does not write them.
void dropUnusedStatistics(mlir::Block &block);

} // namespace zorse::autodiff
