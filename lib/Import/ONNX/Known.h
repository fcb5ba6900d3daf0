// Numbers that are known before the step: values of them, and operators on them.
#pragma once

#include "OpContext.h"

namespace zorse::onnx_import {

/// A scalar.
ImportedValue knownScalar(ElementKind kind, const Number &number);
/// A constant or Known value as Known; an error of the node where it has too many different elements.
mlir::FailureOr<ImportedValue> asKnown(OpContext &op, const ImportedValue &value);
/// The one number of all elements of a constant or Known value.
std::optional<Number> uniformNumber(const ImportState &state, const ImportedValue &value);
/// Numbers in the order of the axes, repeats of samples counted once.
std::vector<Number> numbersOf(const ImportedValue &known);
/// The count that reduces `numerator`.
Number countOf(ImportState &state, mlir::Value numerator, ReduceKind reduce);
/// As another type; a constant, where all numbers are.
ImportedValue castKnown(ImportedValue known, ElementKind type);
ImportedValue simplified(ImportedValue known); ///< a constant, where all numbers are
/// Numbers row-major over the axes of `like`, whose repeats over samples stay.
ImportedValue knownOver(ElementKind kind, std::vector<Number> numbers, const View &like);
/// A Known value as a value of the graph.
mlir::FailureOr<ImportedValue> asTensor(OpContext &op, const ImportedValue &known);
/// A number as a scalar of the graph.
mlir::Value knownValue(ImportState &state, const Number &number);
/// Sets the result to a reduction of a Known value. Fails after an error.
mlir::LogicalResult reduceKnown(OpContext &op, const ImportedValue &x, const std::vector<bool> &reduced, bool keep);
/// Constants and Known values one after the other along an axis. Fails after an error.
mlir::FailureOr<ImportedValue> joinedKnown(OpContext &op, const std::vector<ImportedValue> &parts, int64_t axis, const std::vector<int64_t> &shape);
/// Elements `picked` of one axis. Fails after an error.
mlir::FailureOr<ImportedValue> pickedFromKnown(OpContext &op, const ImportedValue &x, int64_t axis, const std::vector<int64_t> &picked);

} // namespace zorse::onnx_import
