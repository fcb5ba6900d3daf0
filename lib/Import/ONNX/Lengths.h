// Lengths of axes, and slice and range bounds, that depend on the number of samples B.
#pragma once

#include "OpContext.h"

namespace zorse::onnx_import {

/// Length of an axis as an operand specifies it: a constant, or a multiple of B. In the second case
/// the factors are the samples and the elements per sample.
struct Length {
  int64_t size = 0;
  bool perSample = false;
  FactorList repeats; ///< factors, with stride 0, that repeat one element over the axis
};

Number samplesPerRow(const ImportState &state); ///< B divided by the number of rows
/// Number of elements of an axis, as a function of B.
Number extentOf(const ImportState &state, const FactorList &list);
/// Operand `index` as lengths. Reports an error of the node if they are not known.
mlir::FailureOr<std::vector<Length>> lengthsOf(OpContext &op, size_t index);
/// A constant with one value for all elements, over the axes of a view.
ImportedValue fillOver(ElementKind kind, double value, View view);
/// Reports an error if the size of an axis, without its sample factor, is a multiple of the
/// placeholder for B: the axis may hold samples without being marked so.
mlir::LogicalResult checkExtent(OpContext &op, const FactorList &list);
mlir::LogicalResult rangeOfSamples(OpContext &op); ///< imports a Range with at least one Known
                                                   ///< bound
mlir::LogicalResult sliceByNumbers(OpContext &op); ///< imports a Slice with at least one Known
                                                   ///< bound
/// Reports an error if a slice with constant bounds cuts the sample axis in a file for any batch
/// size.
mlir::LogicalResult checkBounds(OpContext &op, const ImportedValue &x, int64_t axis, int64_t start,
                                int64_t end);
/// Number of sample factors in all axes.
int64_t countSampleFactors(const View &view);
/// Reports an error if the file gives the sample axis a fixed size although its batch size is
/// symbolic.
/// \param isGiven  per dimension: whether its size is specified as a multiple of B, or left open
/// (-1 or 0 in a Reshape)
mlir::LogicalResult checkTold(OpContext &op, const ImportedValue &result,
                              const std::vector<bool> &isGiven);
/// Sets `state.rows`, the placeholder for the number of rows, to a prime that divides no size or
/// bound in the file.
void choosePlaceholder(ImportState &state);

} // namespace zorse::onnx_import
