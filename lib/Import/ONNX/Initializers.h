// Initializers: their roles and the arguments that they become.
#pragma once

#include "OpContext.h"

namespace zorse::onnx_import {

/// Sets the role of every initializer from the flags, the file and its uses. Fails after an error.
mlir::LogicalResult classifyInitializers(ImportState &state, const std::vector<int> &wanted);
/// The role that flags assign to a name. None if they assign none.
std::optional<TrainableChoice> forced(const ImportState &state, const std::string &name);
/// Merges matrices that the exporter wrote twice, one as the transpose of the other. \param own
/// initializers under their own names
void restoreTies(ImportState &state, const std::set<const onnx::Tensor *> &own);
/// Adds notes and warnings about parameters and modes.
void reportParameters(ImportState &state);
/// The argument of an initializer. Adds it at first use.
ImportedValue parameter(ImportState &state, const onnx::Tensor &tensor);
/// Operand `index` as a running statistic: state that each step updates towards its batch
/// statistic.
mlir::FailureOr<mlir::Value> runningStatistic(OpContext &op, size_t index);
/// Operand `index` as a running statistic that is not updated: a frozen parameter, which
/// --load-weights may set.
ImportedValue frozenStatistic(OpContext &op, size_t index);
/// An argument that contains a large constant.
mlir::Value liftedBytes(ImportState &state, mlir::RankedTensorType type,
                        std::shared_ptr<std::vector<uint8_t>> bytes);
/// Rejects a file in which an embedding weight with a padding row is not looked up under its name.
mlir::LogicalResult checkPadding(ImportState &state);

} // namespace zorse::onnx_import
