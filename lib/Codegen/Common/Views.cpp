#include "Views.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

int64_t zorse::codegen::elementCount(RankedTensorType type) {
  int64_t count = 1;
  for (int64_t size : type.getShape())
    if (!ShapedType::isDynamic(size))
      count *= size;
  return count;
}

int64_t zorse::codegen::elementBytes(Type type) {
  unsigned bits = getElementTypeOrSelf(type).getIntOrFloatBitWidth();
  return bits < 8 ? 1 : bits / 8;
}

Layout zorse::codegen::denseLayout(RankedTensorType type) {
  Layout layout;
  layout.strides.resize(type.getRank());
  int64_t stride = 1;
  for (int64_t dim = type.getRank(); dim-- > 0;) {
    layout.strides[dim] = stride;
    stride *= type.isDynamicDim(dim) ? 1 : type.getDimSize(dim);
  }
  return layout;
}

bool zorse::codegen::isWidening(Operation *op) {
  auto widen = dyn_cast_or_null<arith::ExtFOp>(op);
  return widen && getElementTypeOrSelf(widen.getIn()).getIntOrFloatBitWidth() == 16 &&
         isa<RankedTensorType>(widen.getType());
}

bool zorse::codegen::isViewOp(Operation *op) {
  return op && (isView(op) || isWidening(op)) && !op->hasAttr(kCopyAttr);
}

Value zorse::codegen::rootOf(Value value) {
  while (isViewOp(value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  return value;
}

std::optional<Layout> zorse::codegen::reshapeLayout(const Layout &layout, ArrayRef<int64_t> from,
                                                    ArrayRef<int64_t> to) {
  Layout result;
  result.offset = layout.offset;
  result.strides.assign(to.size(), 0);
  size_t i = 0, j = 0;
  if (!from.empty() && ShapedType::isDynamic(from[0])) { // the batch dimension is never merged
    result.strides[0] = layout.strides[0];
    i = j = 1;
  }
  while (i < from.size() || j < to.size()) {
    // The smallest groups of dimensions of both shapes with equal element counts.
    int64_t left = 1, right = 1;
    size_t i0 = i, j0 = j;
    do {
      if ((left <= right && i < from.size()) || j >= to.size())
        left *= from[i++];
      else
        right *= to[j++];
    } while (left != right || (i == i0 && j == j0));
    // The dimensions of `from` in the group must be contiguous.
    int64_t inner = 0;
    bool any = false;
    int64_t expected = 0;
    for (size_t d = i; d-- > i0;) {
      if (from[d] == 1)
        continue;
      if (any && layout.strides[d] != expected)
        return std::nullopt;
      if (!any)
        inner = layout.strides[d];
      any = true;
      expected = layout.strides[d] * from[d];
    }
    int64_t stride = inner;
    for (size_t d = j; d-- > j0;) {
      result.strides[d] = stride;
      stride *= to[d];
    }
  }
  return result;
}

Layout zorse::codegen::storageLayout(Value root, const BufferAliases &aliases) {
  auto alias = aliases.find(root);
  return alias == aliases.end() ? denseLayout(typeOf(root)) : alias->second.layout;
}

std::optional<View> zorse::codegen::viewOf(Value value, const BufferAliases &aliases,
                                           Operation **blocking) {
  Operation *op = value.getDefiningOp();
  if (!isViewOp(op))
    return View{value, storageLayout(value, aliases)};
  std::optional<View> source = viewOf(op->getOperand(0), aliases, blocking);
  if (!source)
    return std::nullopt;
  RankedTensorType from = typeOf(op->getOperand(0)), to = typeOf(value);
  Layout &layout = source->layout;
  if (isWidening(op))
    return source;
  if (isa<ReshapeOp>(op)) {
    std::optional<Layout> reshaped = reshapeLayout(layout, from.getShape(), to.getShape());
    if (!reshaped) {
      if (blocking)
        *blocking = op;
      return std::nullopt;
    }
    layout = *reshaped;
  } else if (auto transpose = dyn_cast<TransposeOp>(op)) {
    SmallVector<int64_t, 4> strides;
    for (int64_t dim : transpose.getPermutation())
      strides.push_back(layout.strides[dim]);
    layout.strides = strides;
  } else if (auto slice = dyn_cast<SliceOp>(op)) {
    for (int64_t dim = 0; dim < from.getRank(); ++dim) {
      if (from.isDynamicDim(dim))
        continue;
      layout.offset += slice.getOffsets()[dim] * layout.strides[dim];
      layout.strides[dim] *= slice.getStrides()[dim];
    }
  } else {
    SmallVector<int64_t, 4> strides(to.getRank(), 0);
    for (auto [dim, target] : llvm::enumerate(cast<BroadcastOp>(op).getDims()))
      strides[target] = layout.strides[dim];
    layout.strides = strides;
  }
  return source;
}

SmallVector<int64_t, 4> zorse::codegen::squeezedShape(Type type) {
  SmallVector<int64_t, 4> shape;
  for (int64_t size : cast<RankedTensorType>(type).getShape())
    if (size != 1)
      shape.push_back(size);
  return shape;
}

SmallVector<int64_t, 4> zorse::codegen::squeezedStrides(Type type, const Layout &layout) {
  SmallVector<int64_t, 4> strides;
  for (auto [size, stride] : llvm::zip(cast<RankedTensorType>(type).getShape(), layout.strides))
    if (size != 1)
      strides.push_back(stride);
  return strides;
}

std::optional<ViewChain> zorse::codegen::viewChainOf(Value value) {
  Operation *op = value.getDefiningOp();
  if (!isViewOp(op)) {
    ViewChain chain{value, {}};
    for (size_t i = 0; i < squeezedShape(value.getType()).size(); ++i)
      chain.dims.push_back(i);
    return chain;
  }
  std::optional<ViewChain> chain = viewChainOf(op->getOperand(0));
  if (!chain || isWidening(op))
    return chain;
  RankedTensorType from = typeOf(op->getOperand(0)), to = typeOf(value);
  if (isa<ReshapeOp>(op) || isa<SliceOp>(op)) {
    if (squeezedShape(from) != squeezedShape(to))
      return std::nullopt;
    return chain;
  }
  // Squeezed position of every dimension of `from`; -1 for unit dimensions.
  SmallVector<int> position;
  int next = 0;
  for (int64_t size : from.getShape())
    position.push_back(size == 1 ? -1 : next++);
  SmallVector<int, 4> dims;
  if (auto transpose = dyn_cast<TransposeOp>(op)) {
    for (int64_t dim : transpose.getPermutation())
      if (position[dim] >= 0)
        dims.push_back(chain->dims[position[dim]]);
  } else {
    SmallVector<int> source(to.getRank(), -1);
    for (auto [dim, target] : llvm::enumerate(cast<BroadcastOp>(op).getDims()))
      source[target] = dim;
    for (int64_t dim = 0; dim < to.getRank(); ++dim)
      if (to.getDimSize(dim) != 1)
        dims.push_back(
            source[dim] < 0 || position[source[dim]] < 0 ? -1 : chain->dims[position[source[dim]]]);
  }
  chain->dims = dims;
  return chain;
}
