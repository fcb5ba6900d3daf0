// Initializers: which of them are trained, and the arguments that they become.
#pragma once

#include "OpContext.h"

namespace zorse::onnx_import {

/// Sets the role of every initializer, as the flags, the file and the uses say. Fails after an error.
mlir::LogicalResult classifyInitializers(ImportState &state, const std::vector<int> &wanted);
/// What the flags say about a name; none: nothing.
std::optional<TrainableChoice> forced(const ImportState &state, const std::string &name);
/// Makes matrices one parameter again that the exporter wrote twice, one as the transpose of the other. \param own  those under their own names
void restoreTies(ImportState &state, const std::set<const onnx::Tensor *> &own);
/// Notes and warnings about parameters and modes.
void reportParameters(ImportState &state);
/// The argument of an initializer, which is added where it is not there.
ImportedValue parameter(ImportState &state, const onnx::Tensor &tensor);
/// Operand `index` as a running statistic: state that a step moves towards what it observes.
mlir::FailureOr<mlir::Value> runningStatistic(OpContext &op, size_t index);
/// The same where no step moves it: a frozen parameter, which --init may set.
ImportedValue frozenStatistic(OpContext &op, size_t index);
/// The argument that holds a large constant.
mlir::Value liftedBytes(ImportState &state, mlir::RankedTensorType type, std::shared_ptr<std::vector<uint8_t>> bytes);
/// Refuses a file whose tables with padding are not looked up under their names.
mlir::LogicalResult checkPadding(ImportState &state);

} // namespace zorse::onnx_import
