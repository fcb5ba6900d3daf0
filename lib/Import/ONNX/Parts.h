// Parts of tensors: slices, picked elements, and joins.
#pragma once

#include "OpContext.h"

namespace zorse::onnx_import {

/// (start, step) if ids are start, start + step, ... with a step above 0.
std::optional<std::pair<int64_t, int64_t>> evenSteps(llvm::ArrayRef<int64_t> ids);

/// Whether a sample of a value is known before the step: the value is computed from inputs alone,
/// and `place` is 0 (first sample) or -1 (last sample).
bool isKnownOfSample(const ImportState &state, const ImportedValue &value, int64_t axis,
                     int64_t place);
/// Replaces the value by this sample of it: one Known number per element, and an axis of samples of
/// size 1.
mlir::LogicalResult takeSample(OpContext &op, ImportedValue &value, int64_t axis, int64_t place);
/// Takes elements start, start + step, ... of one axis, as a view if possible. Fails after an
/// error.
mlir::LogicalResult take(OpContext &op, ImportedValue &value, int64_t axis, int64_t start,
                         int64_t step, int64_t count);
/// Elements `picked` of one axis of a value of the IR.
mlir::FailureOr<ImportedValue> pickedFromGraph(OpContext &op, const ImportedValue &x, int64_t axis,
                                               const std::vector<int64_t> &picked,
                                               std::optional<int64_t> padding);
/// Converts negative ids, which count from the end of `size` entries. Constant ids are checked.
mlir::FailureOr<ImportedValue> countedFromFront(OpContext &op, const ImportedValue &ids,
                                                int64_t size);
/// Row-major index of every id [..., components] in an array with these sizes.
mlir::FailureOr<ImportedValue> placeNumbers(OpContext &op, const ImportedValue &ids,
                                            const std::vector<int64_t> &sizes);
/// Sets the result to the concatenation of the parts along an axis. Fails after an error.
mlir::LogicalResult concatenate(OpContext &op, const std::vector<ImportedValue> &parts,
                                int64_t axis);
/// Stacks the parts along a new axis.
mlir::FailureOr<ImportedValue> stacked(OpContext &op, std::vector<ImportedValue> parts,
                                       int64_t axis);

} // namespace zorse::onnx_import
