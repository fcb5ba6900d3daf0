// Differentiation of operations that move elements. Their transposes move gradients back.
#include "VjpBuilder.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::autodiff;

namespace {

RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

RankedTensorType withDim(RankedTensorType type, int64_t dim, int64_t size) {
  SmallVector<int64_t> shape(type.getShape());
  shape[dim] = size;
  return RankedTensorType::get(shape, type.getElementType());
}

LogicalResult reshapeRule(ReshapeOp op, VjpBuilder &b) {
  b.set(0, b.create<ReshapeOp>(op.getX().getType(), b.gradient()));
  return success();
}

LogicalResult transposeRule(TransposeOp op, VjpBuilder &b) {
  SmallVector<int64_t> inverse(op.getPermutation().size());
  for (auto [i, from] : llvm::enumerate(op.getPermutation()))
    inverse[from] = i;
  b.set(0, b.create<TransposeOp>(op.getX().getType(), b.gradient(), inverse));
  return success();
}

LogicalResult sliceRule(SliceOp op, VjpBuilder &b) {
  b.set(0, padSlice(b.builder, op, b.gradient()));
  return success();
}

LogicalResult concatRule(ConcatOp op, VjpBuilder &b) {
  int64_t dim = op.getDim(), offset = 0;
  for (auto [i, x] : llvm::enumerate(op.getXs())) {
    int64_t size = typeOf(x).getDimSize(dim);
    if (b.needs(i))
      b.set(i, b.create<SliceOp>(b.gradient(), dim, offset, size));
    offset += size;
  }
  return success();
}

// Sums over the dimensions that the broadcast added, including the batch dimension if the operand
// had none.
LogicalResult broadcastRule(BroadcastOp op, VjpBuilder &b) {
  SmallVector<int64_t> dims;
  for (int64_t dim = 0, rank = typeOf(op.getY()).getRank(); dim < rank; ++dim)
    if (!llvm::is_contained(op.getDims(), dim))
      dims.push_back(dim);
  b.set(0, dims.empty() ? b.gradient()
                        : b.create<ReduceOp>(b.gradient(), ReduceKind::Sum, dims).getResult());
  return success();
}

} // namespace

Value autodiff::padWithZeros(OpBuilder &builder, Location loc, Value value, int64_t dim,
                             int64_t before, int64_t after) {
  SmallVector<Value> parts;
  if (before > 0)
    parts.push_back(createSplat(builder, loc, withDim(typeOf(value), dim, before), 0.0));
  parts.push_back(value);
  if (after > 0)
    parts.push_back(createSplat(builder, loc, withDim(typeOf(value), dim, after), 0.0));
  return parts.size() == 1 ? value : ConcatOp::create(builder, loc, parts, dim).getResult();
}

Value autodiff::padSlice(OpBuilder &builder, SliceOp slice, Value dy) {
  Location loc = slice.getLoc();
  RankedTensorType x = typeOf(slice.getX());
  for (int64_t dim = 0; dim < x.getRank(); ++dim) {
    if (x.isDynamicDim(dim))
      continue;
    int64_t offset = slice.getOffsets()[dim], size = slice.getSizes()[dim],
            stride = slice.getStrides()[dim], extent = x.getDimSize(dim);
    if (stride > 1) {
      // Dilation: every element is followed by stride - 1 zeros in a new dimension, which is then
      // merged.
      SmallVector<int64_t> split(typeOf(dy).getShape());
      split.insert(split.begin() + dim + 1, 1);
      Value spread = ReshapeOp::create(builder, loc, dy, split);
      spread = padWithZeros(builder, loc, spread, dim + 1, 0, stride - 1);
      SmallVector<int64_t> merged(typeOf(dy).getShape());
      merged[dim] = size * stride;
      dy = ReshapeOp::create(builder, loc, spread, merged);
      if (int64_t room = extent - offset; room < size * stride)
        dy = SliceOp::create(builder, loc, dy, dim, 0, room);
    }
    dy = padWithZeros(builder, loc, dy, dim, offset, extent - offset - typeOf(dy).getDimSize(dim));
  }
  return dy;
}

void autodiff::registerViewModels(MLIRContext *context) {
  ReshapeOp::attachInterface<RuleModel<ReshapeOp, reshapeRule>>(*context);
  TransposeOp::attachInterface<RuleModel<TransposeOp, transposeRule>>(*context);
  SliceOp::attachInterface<RuleModel<SliceOp, sliceRule>>(*context);
  ConcatOp::attachInterface<RuleModel<ConcatOp, concatRule>>(*context);
  BroadcastOp::attachInterface<RuleModel<BroadcastOp, broadcastRule>>(*context);
}
