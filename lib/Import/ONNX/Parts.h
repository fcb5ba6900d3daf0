// Parts of tensors: slices, picked elements, and joins.
#pragma once

#include "OpContext.h"

namespace zorse::onnx_import {

/// start and step, where ids are start, start + step, ... with a step above 0.
std::optional<std::pair<int64_t, int64_t>> evenSteps(llvm::ArrayRef<int64_t> ids);

/// Whether a sample of a value is known before the step: it follows from inputs, and `place` is 0, the first, or -1, the last.
bool isKnownOfSample(const ImportState &state, const ImportedValue &value, int64_t axis, int64_t place);
/// That sample of the value, whose axis of samples is of size 1 then: a number of the step for each element.
mlir::LogicalResult takeSample(OpContext &op, ImportedValue &value, int64_t axis, int64_t place);
/// Elements start, start + step, ... of one axis, by view where possible. Fails after an error.
mlir::LogicalResult take(OpContext &op, ImportedValue &value, int64_t axis, int64_t start, int64_t step, int64_t count);
/// Elements `picked` of one axis of a value of the IR.
mlir::FailureOr<ImportedValue> pickedFromGraph(OpContext &op, const ImportedValue &x, int64_t axis, const std::vector<int64_t> &picked,
                                               std::optional<int64_t> padding);
/// Ids of which those below 0 count from the end of `size` entries. A constant is checked.
mlir::FailureOr<ImportedValue> countedFromFront(OpContext &op, const ImportedValue &ids, int64_t size);
/// The row-major number of every id [..., components] among places of these sizes.
mlir::FailureOr<ImportedValue> placeNumbers(OpContext &op, const ImportedValue &ids, const std::vector<int64_t> &sizes);
/// Sets the result to the parts one after the other along an axis. Fails after an error.
mlir::LogicalResult concatenate(OpContext &op, const std::vector<ImportedValue> &parts, int64_t axis);
/// The parts along a new axis.
mlir::FailureOr<ImportedValue> stacked(OpContext &op, std::vector<ImportedValue> parts, int64_t axis);

} // namespace zorse::onnx_import
