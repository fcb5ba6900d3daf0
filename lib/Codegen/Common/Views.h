// Memory layout of tensors: view ops as strides over the buffer of their root value.
#pragma once

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

#include <optional>

namespace zorse::codegen {

/// Marks a reshape that must have its own buffer although it changes nothing: it forces a copy.
inline constexpr llvm::StringLiteral kCopyAttr = "zorse.copy";
/// Marks ops that belong to one column reduction and are computed only there. The value identifies
/// the group.
inline constexpr llvm::StringLiteral kGroupAttr = "zorse.group";
/// Integer attribute of an attention that is lowered to kernels. Rows of its operands and results,
/// and the distances between rows, are multiples of this number of elements.
inline constexpr llvm::StringLiteral kRowMultipleAttr = "zorse.row_multiple";

/// Element strides of a tensor's dimensions and the element offset of its first element, in the
/// buffer of a root value.
struct Layout {
  int64_t offset = 0;
  llvm::SmallVector<int64_t, 4> strides;
};

/// A tensor as a view of the buffer of `root`.
struct View {
  mlir::Value root;
  Layout layout;
};

/// The location of a value without its own buffer: a concat operand inside the concat, a value
/// inside the argument of a result, or what devices exchange.
struct BufferAlias {
  mlir::Value container; ///< an unclaimed concat; null: ArgumentLayout::results[result].
  unsigned result = 0;
  Layout layout; ///< layout of the claiming value in the container's buffer.
};
using BufferAliases = llvm::DenseMap<mlir::Value, BufferAlias>;

/// Number of elements of one row, or of the whole tensor if it has no batch dimension.
int64_t elementCount(mlir::RankedTensorType type);
/// Bytes of an element in memory. Booleans have one byte.
int64_t elementBytes(mlir::Type type);

Layout denseLayout(mlir::RankedTensorType type);

/// Whether the op widens half precision to its compute type. Such an op is a view, because every
/// load widens the element anyway.
bool isWidening(mlir::Operation *op);

/// Whether the op is a reshape, transpose, slice, broadcast or widening, and not a copy. The root
/// of a view may therefore have narrower elements.
bool isViewOp(mlir::Operation *op);

/// Returns the value at the end of the chain of view ops.
mlir::Value rootOf(mlir::Value value);

/// Returns the layout of `to` over the elements that `from` has in `layout`; nullopt if strides
/// cannot express it.
std::optional<Layout> reshapeLayout(const Layout &layout, llvm::ArrayRef<int64_t> from,
                                    llvm::ArrayRef<int64_t> to);

/// Returns `value` as a view of its root's buffer; nullopt if a reshape in the chain needs a copy.
/// `blocking` is then set to that reshape.
std::optional<View> viewOf(mlir::Value value, const BufferAliases &aliases,
                           mlir::Operation **blocking = nullptr);

/// Returns the layout of a root value in the buffer that holds it.
Layout storageLayout(mlir::Value root, const BufferAliases &aliases);

/// Returns the shape without dimensions of static size 1.
llvm::SmallVector<int64_t, 4> squeezedShape(mlir::Type type);
/// Returns the strides of the dimensions that `squeezedShape` keeps.
llvm::SmallVector<int64_t, 4> squeezedStrides(mlir::Type type, const Layout &layout);

/// Relation of a value to its root through unit reshapes, transposes and broadcasts: for each
/// squeezed dimension the root's squeezed dimension, or -1 if the dimension is repeated. None if
/// the chain contains a slice or another reshape.
struct ViewChain {
  mlir::Value root;
  llvm::SmallVector<int, 4> dims;
};
std::optional<ViewChain> viewChainOf(mlir::Value value);

} // namespace zorse::codegen
