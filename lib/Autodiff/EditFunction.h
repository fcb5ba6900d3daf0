// Edits the arguments and results of a unit function.
#pragma once

#include "zorse/Autodiff/Autodiff.h"

#include "mlir/IR/IRMapping.h"

namespace zorse::autodiff {

struct ResultValue {
  mlir::Value value;
  ArgumentKind kind;
  uint32_t index;
};

/// Appends an argument with an argument attribute.
mlir::Value addArgument(mlir::func::FuncOp function, mlir::Type type, ArgumentKind kind,
                        uint32_t index, mlir::Location loc);
void appendResults(mlir::func::FuncOp function, mlir::ArrayRef<ResultValue> results);

/// Copies the function, inserts the copy after it, and makes it the function of another task.
mlir::func::FuncOp cloneAs(mlir::func::FuncOp function, Task task, mlir::IRMapping &mapping);
/// Returns the operations that results with these argument attributes depend on.
llvm::DenseSet<mlir::Operation *> sliceOf(mlir::func::FuncOp function,
                                          mlir::function_ref<bool(ArgumentKind)> wanted);
/// Returns the values of results with these argument attributes.
llvm::SmallVector<mlir::Value> resultsOf(mlir::func::FuncOp function,
                                         mlir::function_ref<bool(ArgumentKind)> wanted);

/// Removes results for which `dropped` returns true.
void dropResults(mlir::func::FuncOp function, mlir::function_ref<bool(ArgumentKind)> dropped);
/// Removes unused arguments for which `droppable` returns true.
void dropUnusedArguments(
    mlir::func::FuncOp function,
    mlir::function_ref<bool(ArgumentKind)> droppable = [](ArgumentKind) { return true; });
/// Removes statistics without uses, so that the operation does not write them.
void dropUnusedStatistics(mlir::Block &block);

} // namespace zorse::autodiff
