// Strided views: what a chain of reshape, transpose, slice and broadcast does to one value.
//
// Exporters write the same view in many ways: K is transposed at once, or reshaped, transposed and reshaped; a part of a fused projection is split
// off before or after the heads are. A view says what all of them mean, and `emitView` writes it in one way.
#pragma once

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/SmallVector.h"

#include <optional>

namespace zorse {

/// A part of a dimension: `size` steps of `stride` elements of one sample of the base. Stride 0 repeats.
struct ViewFactor {
  int64_t size;
  int64_t stride;
  bool operator==(const ViewFactor &other) const { return size == other.size && stride == other.stride; }
};
using ViewDimension = llvm::SmallVector<ViewFactor, 2>; ///< outermost first; empty: size 1

/// `base` seen through a chain of view ops. The sample axis is not among the dimensions: it is that of the base, or repeats it if only the view is
/// sampled.
struct View {
  mlir::Value base;
  bool sampled = false; ///< the view carries samples
  int64_t offset = 0;   ///< in elements of one sample of the base
  llvm::SmallVector<ViewDimension, 4> dimensions;

  bool operator==(const View &other) const {
    return base == other.base && sampled == other.sampled && offset == other.offset && dimensions == other.dimensions;
  }
  /// Dimension of the tensor that `dimensions[0]` is.
  int64_t firstDimension() const { return sampled ? 1 : 0; }
  llvm::SmallVector<int64_t> shape() const;
};

/// The longest chain of view ops above `value` that one view can say; `value` itself seen as it is if there is none.
View analyzeView(mlir::Value value);

/// The view of `value` if `at`, somewhere above it in its chain of view ops, showed `start`; none if no view can say that.
std::optional<View> analyzeViewFrom(mlir::Value value, mlir::Value at, const View &start);

/// `base` as it is.
View identityView(mlir::Value base);

/// `view` restricted to [offset, offset + size * stride) of a dimension (numbered as in `dimensions`); false if no view can say it.
bool sliceView(View &view, size_t dimension, int64_t offset, int64_t size, int64_t stride);

/// Writes `view` in normal form: reshape (to tell a slice apart), slice, reshape, transpose, reshape, broadcast, reshape, each only where it does
/// something. Null if the view cannot be written so.
mlir::Value emitView(mlir::OpBuilder &builder, mlir::Location loc, const View &view);

} // namespace zorse
