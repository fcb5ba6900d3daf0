// Sliding windows of convolutions and poolings over the positions of samples x channels x
// positions.
#pragma once

#include "Decomposition.h"

namespace zorse::onnx_import {

/// Geometry of windows. All vectors have one element per dimension of positions.
struct Windows {
  std::vector<int64_t> extents; ///< sizes of the operand
  std::vector<int64_t> kernel, strides, dilations;
  std::vector<int64_t> before, after; ///< pads specified by the file
  std::vector<int64_t> counts;        ///< number of windows

  size_t rank() const { return kernel.size(); }
  /// Distance from the first element of a window to the end of its last element.
  int64_t span(size_t i) const { return (kernel[i] - 1) * dilations[i] + 1; }
  /// Pads at the end that complete the last window; less than `after` if elements are left over.
  int64_t neededAfter(size_t i) const {
    return (counts[i] - 1) * strides[i] + span(i) - extents[i] - before[i];
  }
  bool tile() const;
};

/// Reads the attributes of a convolution or pooling over x. `kernel` contains the sizes of its
/// windows. Fails after an error.
mlir::LogicalResult readWindows(OpContext &op, const ImportedValue &x, std::vector<int64_t> kernel,
                                Windows &windows);

/// x padded with `value` so that all windows are complete.
ImportedValue paddedPositions(Decomposition &make, const ImportedValue &x, const Windows &windows,
                              double value);

/// Element `at` of every window along dimension `i` of the positions, which is dimension `axis` of
/// x.
ImportedValue atWindow(Decomposition &make, const ImportedValue &x, int64_t axis,
                       const Windows &windows, size_t i, int64_t at);

} // namespace zorse::onnx_import
