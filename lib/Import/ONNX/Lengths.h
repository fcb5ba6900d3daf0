// Lengths of axes that are numbers of samples, and bounds that are.
#pragma once

#include "OpContext.h"

namespace zorse::onnx_import {

/// An axis as an operand gives its length: a number, or a multiple of B, whose factors are the samples and what is inside of them.
struct Length {
  int64_t size = 0;
  bool perSample = false;
  FactorList repeats; ///< what repeats an element so often
};

Number samplesPerRow(const ImportState &state); ///< B / the number of rows, as a number
/// How many elements an axis has, samples counted by B.
Number extentOf(const ImportState &state, const FactorList &list);
/// Operand `index` as lengths; an error of the node where they are not known.
mlir::FailureOr<std::vector<Length>> lengthsOf(OpContext &op, size_t index);
/// A constant whose elements are one number, over the axes of a view.
ImportedValue fillOver(ElementKind kind, double value, View view);
/// Refuses an axis that may be one of samples and is not marked so.
mlir::LogicalResult checkExtent(OpContext &op, const FactorList &list);
mlir::LogicalResult rangeOfSamples(OpContext &op); ///< a Range one of whose bounds is Known
mlir::LogicalResult sliceByNumbers(OpContext &op); ///< a Slice one of whose bounds is Known
/// Bounds of a file for any batch must not depend on how many samples there are.
mlir::LogicalResult checkBounds(OpContext &op, const ImportedValue &x, int64_t axis, int64_t start, int64_t end);
/// How often the samples are among the factors of all axes.
int64_t countSampleFactors(const View &view);
/// Refuses a size that is a number of the file where the samples of a batch of any size are. \param told  by dimension: it is told by B
mlir::LogicalResult checkTold(OpContext &op, const ImportedValue &result, const std::vector<bool> &told);
/// Sets `rows` to a size that divides no number of the file.
void choosePlaceholder(ImportState &state);

} // namespace zorse::onnx_import
