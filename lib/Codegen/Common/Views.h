// Where a tensor's elements lie: view ops as strides over the buffer of the value they look at.
#pragma once

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

#include <optional>

namespace zorse::codegen {

/// Marks a reshape that must be a buffer of its own although it changes nothing: "materialise here".
inline constexpr llvm::StringLiteral kCopyAttr = "zorse.copy";
/// Marks ops that belong to one column reduction and are computed nowhere else; the value tells groups apart.
inline constexpr llvm::StringLiteral kGroupAttr = "zorse.group";
/// An integer on attention that becomes kernels: rows of its operands and results, and what lies between them, are multiples of so many elements.
inline constexpr llvm::StringLiteral kRowMultipleAttr = "zorse.row_multiple";

/// Element strides of a tensor's dimensions, and the element offset of its first element, in the buffer of some root value.
struct Layout {
  int64_t offset = 0;
  llvm::SmallVector<int64_t, 4> strides;
};

/// A tensor as a window on the buffer of `root`.
struct View {
  mlir::Value root;
  Layout layout;
};

/// Where a value lies that has no buffer of its own: a concat operand inside the concat, or a value inside the slot of a result.
struct Claim {
  mlir::Value container; ///< an unclaimed concat; null: result `result` of the function.
  unsigned result = 0;
  Layout layout; ///< of the claiming value, in the container's buffer.
};
using Claims = llvm::DenseMap<mlir::Value, Claim>;

/// Elements of one row (of everything, for unsampled tensors).
int64_t elementCount(mlir::RankedTensorType type);
/// Bytes of an element in memory; booleans take one.
int64_t elementBytes(mlir::Type type);

Layout denseLayout(mlir::RankedTensorType type);

/// True for what widens half precision to the type it is computed in: a view, since whoever loads an element widens it anyway.
bool isWidening(mlir::Operation *op);

/// True for reshape, transpose, slice, broadcast and widenings, except copies. The root of a view may thus have narrower elements.
bool isViewOp(mlir::Operation *op);

/// The value at the end of the chain of view ops.
mlir::Value rootOf(mlir::Value value);

/// The layout of `to` over the elements that `from` has in `layout`; none where no strides express it.
std::optional<Layout> reshapeLayout(const Layout &layout, llvm::ArrayRef<int64_t> from, llvm::ArrayRef<int64_t> to);

/// `value` as a window on its root's buffer; none where a reshape on the way needs a copy. Fills `blocking` with that reshape.
std::optional<View> viewOf(mlir::Value value, const Claims &claims, mlir::Operation **blocking = nullptr);

/// The layout of a root value in the buffer that holds it.
Layout storageLayout(mlir::Value root, const Claims &claims);

/// Shape without dimensions of static size 1.
llvm::SmallVector<int64_t, 4> squeezedShape(mlir::Type type);
/// Strides of the dimensions that `squeezedShape` keeps.
llvm::SmallVector<int64_t, 4> squeezedStrides(mlir::Type type, const Layout &layout);

/// How a value relates to its root through unit reshapes, transposes and broadcasts: per squeezed dimension the root's squeezed dimension, or
/// -1 where it repeats. None if a slice or a regrouping lies between.
struct Trace {
  mlir::Value root;
  llvm::SmallVector<int, 4> dims;
};
std::optional<Trace> traceOf(mlir::Value value);

} // namespace zorse::codegen
