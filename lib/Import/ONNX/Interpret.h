// The steps of an import, one after the other, and the ways to apply an operator.
#pragma once

#include "OpContext.h"

namespace zorse::onnx_import {

/// Refuses what the file asks for and the importer does not have, all of it at once.
mlir::LogicalResult checkSupported(ImportState &state, const std::vector<int> &wanted);
/// Names in the options must be names in the file.
mlir::LogicalResult checkNames(ImportState &state);
/// Adds the arguments of the inputs, and sets `rows`. Fails after an error.
mlir::LogicalResult bindInputs(ImportState &state);
/// The nodes of a graph that these values need, in its order.
std::vector<const GraphNode *> neededNodes(const GraphBody &body, const std::vector<int> &wanted);
/// Gives values to what these values need of a graph. Fails after an error.
mlir::LogicalResult interpret(ImportState &state, const GraphBody &body, const std::vector<int> &wanted);
/// Imports a node whose operands have values. Fails after an error.
mlir::LogicalResult applyOperator(OpContext &op);
/// Imports the node with other operands.
mlir::LogicalResult applyWith(OpContext &op, std::vector<ImportedValue> operands);
/// Applies an operator one of whose operands is Drawn; none: its own function deals with them.
std::optional<mlir::LogicalResult> applyToDrawn(OpContext &op);
/// Applies an operator to sums over samples that have a shape; none: its own function does.
std::optional<mlir::LogicalResult> applyToSums(OpContext &op);
/// Applies an operator one of whose operands is Known; none: its own function deals with them.
std::optional<mlir::LogicalResult> applyToKnown(OpContext &op);
/// Applies an operator one of whose operands holds the numbers of samples; none: its own function deals with them.
std::optional<mlir::LogicalResult> applyToSampleNumbers(OpContext &op);
/// Makes the function @model. Fails after an error.
mlir::LogicalResult finish(ImportState &state, const Loss &loss, ImportedModel &result);
/// Compares what was imported with the file's own nodes by numbers. \param before  the arguments of @model as handlers have met them
mlir::LogicalResult checkAgainstFile(ImportState &state, mlir::func::FuncOp function, llvm::ArrayRef<mlir::BlockArgument> before,
                                     const std::vector<WeightSource> &sources);

} // namespace zorse::onnx_import
