// Numbers known before the step (Known values), and operators on them.
#pragma once

#include "OpContext.h"

namespace zorse::onnx_import {

/// A Known scalar.
ImportedValue knownScalar(ElementKind kind, const Number &number);
/// Converts a constant or Known value to Known. Reports an error of the node if it has too many
/// different elements.
mlir::FailureOr<ImportedValue> asKnown(OpContext &op, const ImportedValue &value);
/// The number that all elements of a constant or Known value share.
std::optional<Number> uniformNumber(const ImportState &state, const ImportedValue &value);
/// The numbers in the order of the axes. Repeats over samples are listed once.
std::vector<Number> numbersOf(const ImportedValue &known);
/// The count that reduces `numerator`.
Number countOf(ImportState &state, mlir::Value numerator, ReduceKind reduce);
/// Casts to another type. The result is a constant if all numbers are constant.
ImportedValue castKnown(ImportedValue known, ElementKind type);
ImportedValue simplified(ImportedValue known); ///< a constant if all numbers are constant
/// Row-major numbers over the axes of `like`. Its repeats over samples are kept.
ImportedValue knownOver(ElementKind kind, std::vector<Number> numbers, const View &like);
/// Emits a Known value into the graph.
mlir::FailureOr<ImportedValue> asTensor(OpContext &op, const ImportedValue &known);
/// Emits a number as a scalar into the graph.
mlir::Value knownValue(ImportState &state, const Number &number);
/// Sets the result to a reduction of a Known value. Fails after an error.
mlir::LogicalResult reduceKnown(OpContext &op, const ImportedValue &x,
                                const std::vector<bool> &reduced, bool keep);
/// Concatenates constants and Known values along an axis. Fails after an error.
mlir::FailureOr<ImportedValue> joinedKnown(OpContext &op, const std::vector<ImportedValue> &parts,
                                           int64_t axis, const std::vector<int64_t> &shape);
/// The elements at positions `picked` of one axis. Fails after an error.
mlir::FailureOr<ImportedValue> pickedFromKnown(OpContext &op, const ImportedValue &x, int64_t axis,
                                               const std::vector<int64_t> &picked);

} // namespace zorse::onnx_import
