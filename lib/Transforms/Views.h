// Strided views: the effect of a chain of reshape, transpose, slice and broadcast on one value.
//
// Exporters write the same view in different ways. K is transposed directly, or reshaped,
// transposed and reshaped; a part of a fused projection is sliced before or after the heads are
// split. A view is their common representation, and `emitView` writes it in one way.
#pragma once

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/SmallVector.h"

#include <optional>

namespace zorse {

/// A part of a dimension: `size` steps of `stride` elements of one sample of the base. Stride 0
/// repeats.
struct ViewFactor {
  int64_t size;
  int64_t stride;
  bool operator==(const ViewFactor &other) const {
    return size == other.size && stride == other.stride;
  }
};
using ViewDimension = llvm::SmallVector<ViewFactor, 2>; ///< outermost first; empty: size 1

/// `base` seen through a chain of view operations. The dimensions exclude the sample axis, which is
/// that of the base, or a repeat if only the view is sampled.
struct View {
  mlir::Value base;
  bool sampled = false; ///< the view carries samples
  int64_t offset = 0;   ///< in elements of one sample of the base
  llvm::SmallVector<ViewDimension, 4> dimensions;

  bool operator==(const View &other) const {
    return base == other.base && sampled == other.sampled && offset == other.offset &&
           dimensions == other.dimensions;
  }
  /// The tensor dimension of `dimensions[0]`.
  int64_t firstDimension() const { return sampled ? 1 : 0; }
  llvm::SmallVector<int64_t> shape() const;
};

/// Returns the view for the longest chain of view operations above `value` that one view can
/// represent. Without such a chain, returns the identity view of `value`.
View analyzeView(mlir::Value value);

/// Returns the view of `value` under the assumption that `at`, in its chain of view operations,
/// shows `start`; nullopt if no view can represent it.
std::optional<View> analyzeViewFrom(mlir::Value value, mlir::Value at, const View &start);

/// Returns the view that shows `base` unchanged.
View identityView(mlir::Value base);

/// Restricts `view` to [offset, offset + size * stride) of a dimension (numbered as in
/// `dimensions`). Returns false if no view can represent it.
bool sliceView(View &view, size_t dimension, int64_t offset, int64_t size, int64_t stride);

/// Writes `view` in normal form: reshape (to separate a slice), slice, reshape, transpose, reshape,
/// broadcast, reshape. Operations without effect are omitted. Returns null if the view cannot be
/// written in this form.
mlir::Value emitView(mlir::OpBuilder &builder, mlir::Location loc, const View &view);

} // namespace zorse
