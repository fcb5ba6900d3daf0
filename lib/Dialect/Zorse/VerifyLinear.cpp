#include "VerifyCommon.h"

using namespace mlir;
using namespace zorse;

LogicalResult ReduceOp::verify() {
  RankedTensorType x = tensorTypeOf(getX());
  ArrayRef<int64_t> dims = getDims();
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] <= (i ? dims[i - 1] : -1) || dims[i] >= x.getRank())
      return emitOpError("(C1) expects strictly increasing dimensions of ")
             << x << ", got [" << dims << "]";
  if (RankedTensorType expected = inferType(x, dims); getY().getType() != expected)
    return emitOpError("(C2) expects y ") << expected << ", got " << getY().getType();
  if (x.getElementType().isInteger(1))
    return emitOpError("(C3) expects integers or floats, got ") << x;
  return success();
}

LogicalResult MatmulOp::verify() {
  RankedTensorType a = tensorTypeOf(getA()), b = tensorTypeOf(getB());
  if (a.getRank() < 2 || (b.getRank() != 2 && b.getRank() != a.getRank()) ||
      a.getElementType() != b.getElementType())
    return emitOpError(
               "(C1) expects a of rank >= 2 and b of rank 2 or the same, of one element type, got ")
           << a << " and " << b;
  if (b.getRank() > 2 && a.getShape().drop_back(2) != b.getShape().drop_back(2))
    return emitOpError("(C2) expects equal batch dimensions, got ") << a << " and " << b;
  int64_t innerA = a.getShape().take_back(getTransposeA() ? 2 : 1).front(),
          innerB = b.getShape().take_back(getTransposeB() ? 1 : 2).front();
  if (innerA != innerB)
    return emitOpError("(C3) expects inner dimensions to agree, got ")
           << innerA << " and " << innerB << " in " << a << " and " << b;
  if (ShapedType::isDynamic(innerA) || (b.getRank() == 2 && carriesSamples(b)))
    return emitOpError("(C4) expects K and N not to be the sample axis, got ") << a << " and " << b;
  if (RankedTensorType expected = inferType(a, b, getTransposeA(), getTransposeB());
      !isSumOf(getY().getType(), expected))
    return emitOpError("(C5) expects y ") << expected << ", got " << getY().getType();
  return success();
}

LogicalResult BiasedMatmulOp::verify() {
  RankedTensorType a = tensorTypeOf(getA()), b = tensorTypeOf(getB()),
                   bias = tensorTypeOf(getBias()), y = tensorTypeOf(getY());
  const bool fits = a.getRank() >= 2 && b.getRank() == 2 &&
                    a.getElementType() == b.getElementType() && !carriesSamples(b) &&
                    a.getShape().back() == b.getDimSize(getTransposeB() ? 1 : 0);
  if (!fits)
    return emitOpError("(C1) expects a [..., K] and a weight [K, N] of one element type, got ")
           << a << " and " << b;
  if (RankedTensorType expected = MatmulOp::inferType(a, b, false, getTransposeB());
      !isSumOf(y, expected))
    return emitOpError("(C2) expects y ") << expected << ", got " << y;
  if (RankedTensorType expected = RankedTensorType::get({y.getShape().back()}, y.getElementType());
      bias != expected)
    return emitOpError("(C3) expects bias ") << expected << ", got " << bias;
  return success();
}

LogicalResult MatmulGradWeightOp::verify() {
  RankedTensorType a = tensorTypeOf(getA()), b = tensorTypeOf(getB());
  if (a.getRank() < 2 || a.getRank() != b.getRank() || a.getElementType() != b.getElementType())
    return emitOpError("(C1) expects operands of equal rank >= 2 and element type, got ")
           << a << " and " << b;
  if (a.getShape().drop_back() != b.getShape().drop_back())
    return emitOpError("(C2) expects all dimensions but the last to agree, got ")
           << a << " and " << b;
  if (RankedTensorType expected = reshaped(a, {a.getShape().back(), b.getShape().back()});
      !isSumOf(getY().getType(), expected))
    return emitOpError("(C3) expects y ") << expected << ", got " << getY().getType();
  return success();
}

/// Checks that `padding`, if given, is a row of `table`.
static LogicalResult verifyPadding(Operation *op, std::optional<uint64_t> padding,
                                   RankedTensorType table) {
  if (padding && *padding >= static_cast<uint64_t>(table.getDimSize(0)))
    return op->emitOpError("(C3) expects padding to be a row of ")
           << table << ", got " << static_cast<int64_t>(*padding);
  return success();
}

LogicalResult GatherOp::verify() {
  RankedTensorType table = tensorTypeOf(getTable()), indices = tensorTypeOf(getIndices());
  if (table.getRank() < 1 || carriesSamples(table))
    return emitOpError("(C1) expects a table of rank >= 1 without samples, got ") << table;
  SmallVector<int64_t> shape(indices.getShape());
  llvm::append_range(shape, table.getShape().drop_front());
  if (RankedTensorType expected = reshaped(table, shape); getY().getType() != expected)
    return emitOpError("(C2) expects y ") << expected << ", got " << getY().getType();
  return verifyPadding(*this, getPadding(), table);
}

LogicalResult ScatterAddOp::verify() {
  RankedTensorType indices = tensorTypeOf(getIndices()), updates = tensorTypeOf(getUpdates()),
                   y = tensorTypeOf(getY());
  SmallVector<int64_t> shape(indices.getShape());
  llvm::append_range(shape, y.getRank() ? y.getShape().drop_front() : ArrayRef<int64_t>());
  if (updates.getShape() != ArrayRef(shape))
    return emitOpError("(C1) expects updates ") << reshaped(updates, shape) << " for indices "
                                                << indices << " and y " << y << ", got " << updates;
  if (y.getRank() < 1 || carriesSamples(y) || y.getElementType() != updates.getElementType())
    return emitOpError("(C2) expects y of rank >= 1 without samples and of element type ")
           << updates.getElementType() << ", got " << y;
  return verifyPadding(*this, getPadding(), y);
}

LogicalResult TakeAlongDimOp::verify() {
  RankedTensorType x = tensorTypeOf(getX()), indices = tensorTypeOf(getIndices());
  if (!hasStaticLastDimension(x) || indices.getShape() != x.getShape().drop_back())
    return emitOpError(
               "(C1) expects indices of the shape of x without its (static) last dimension, got ")
           << indices << " for " << x;
  if (RankedTensorType expected = reshaped(x, indices.getShape()); getY().getType() != expected)
    return emitOpError("(C2) expects y ") << expected << ", got " << getY().getType();
  return success();
}

LogicalResult TakeAlongDimGradOp::verify() {
  RankedTensorType dy = tensorTypeOf(getDy()), indices = tensorTypeOf(getIndices()),
                   dx = tensorTypeOf(getDx());
  if (indices.getShape() != dy.getShape())
    return emitOpError("(C1) expects indices of the shape of dy, got ") << indices << " and " << dy;
  if (!hasStaticLastDimension(dx) || dx.getShape().drop_back() != dy.getShape() ||
      dx.getElementType() != dy.getElementType())
    return emitOpError("(C2) expects dx to be ")
           << dy << " with one static dimension appended, got " << dx;
  return success();
}
