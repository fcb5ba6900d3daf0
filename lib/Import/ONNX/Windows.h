// Windows that slide over the positions of samples x channels x positions, as convolutions and poolings have them.
#pragma once

#include "Composition.h"

namespace zorse::onnx_import {

/// One entry per dimension of positions.
struct Windows {
  std::vector<int64_t> extents; ///< of the operand
  std::vector<int64_t> kernel, strides, dilations;
  std::vector<int64_t> before, after; ///< pads that the file asks for
  std::vector<int64_t> counts;        ///< windows

  size_t rank() const { return kernel.size(); }
  /// From the first to behind the last element of a window.
  int64_t span(size_t i) const { return (kernel[i] - 1) * dilations[i] + 1; }
  /// Pads behind that make the last window whole; below what the file asks for where elements are left over.
  int64_t neededAfter(size_t i) const { return (counts[i] - 1) * strides[i] + span(i) - extents[i] - before[i]; }
  bool tile() const;
};

/// Reads the attributes of a convolution or pooling over x; `kernel`: extents of its windows. Fails after an error.
mlir::LogicalResult readWindows(OpContext &op, const ImportedValue &x, std::vector<int64_t> kernel, Windows &windows);

/// x with `value` around its positions, so that all windows are whole.
ImportedValue paddedPositions(Composition &make, const ImportedValue &x, const Windows &windows, double value);

/// Element `at` of every window along dimension of positions `i`, which is dimension `axis` of x.
ImportedValue atWindow(Composition &make, const ImportedValue &x, int64_t axis, const Windows &windows, size_t i, int64_t at);

} // namespace zorse::onnx_import
