// The steps of an import in order, and functions that apply an operator.
#pragma once

#include "OpContext.h"

namespace zorse::onnx_import {

/// Reports all unsupported features of the file at once.
mlir::LogicalResult checkSupported(ImportState &state, const std::vector<int> &wanted);
/// Checks that names in the options exist in the file.
mlir::LogicalResult checkNames(ImportState &state);
/// Adds the arguments of the inputs and sets `rows`. Fails after an error.
mlir::LogicalResult bindInputs(ImportState &state);
/// The nodes that the wanted values need, in the order of the graph.
std::vector<const GraphNode *> neededNodes(const GraphBody &body, const std::vector<int> &wanted);
/// Computes the wanted values of a graph and the values that they need. Fails after an error.
mlir::LogicalResult interpret(ImportState &state, const GraphBody &body,
                              const std::vector<int> &wanted);
/// Imports a node. Its operands must have values. Fails after an error.
mlir::LogicalResult applyOperator(OpContext &op);
/// Imports the node with other operands.
mlir::LogicalResult applyWith(OpContext &op, std::vector<ImportedValue> operands);
/// With --group-rows: applies an operator, for a whole group of samples if it combines them. None
/// without the option.
std::optional<mlir::LogicalResult> applyToGroups(OpContext &op);
/// Applies an operator with a Drawn operand. None if the operator's own function handles it.
std::optional<mlir::LogicalResult> applyToDrawn(OpContext &op);
/// Applies an operator to sums over samples that have a shape. None if the operator's own function
/// handles them.
std::optional<mlir::LogicalResult> applyToSums(OpContext &op);
/// Applies an operator with a Known operand. None if the operator's own function handles it.
std::optional<mlir::LogicalResult> applyToKnown(OpContext &op);
/// Applies an operator with an operand that contains sample numbers. None if the operator's own
/// function handles it.
std::optional<mlir::LogicalResult> applyToSampleNumbers(OpContext &op);
/// Builds the function @model. Fails after an error.
mlir::LogicalResult finish(ImportState &state, const Loss &loss, ImportedModel &result);
/// Compares the imported loss with the file's own nodes numerically. \param before  the arguments
/// of @model that handlers used
mlir::LogicalResult checkAgainstFile(ImportState &state, mlir::func::FuncOp function,
                                     llvm::ArrayRef<mlir::BlockArgument> before,
                                     const std::vector<WeightSource> &sources);

} // namespace zorse::onnx_import
