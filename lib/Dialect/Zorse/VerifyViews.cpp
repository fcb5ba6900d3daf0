#include "VerifyCommon.h"

using namespace mlir;
using namespace zorse;

LogicalResult ReshapeOp::verify() {
  RankedTensorType x = tensorTypeOf(getX()), y = tensorTypeOf(getY());
  if (x.getElementType() != y.getElementType())
    return emitOpError("(C1) expects equal element types, got ")
           << x.getElementType() << " and " << y.getElementType();
  if (carriesSamples(x) != carriesSamples(y))
    return emitOpError("(C2) expects both or neither to carry samples, got ") << x << " and " << y;
  if (elementsPerRow(x) != elementsPerRow(y))
    return emitOpError("(C3) expects equal numbers of elements, got ")
           << elementsPerRow(x) << " and " << elementsPerRow(y);
  return success();
}

LogicalResult TransposeOp::verify() {
  RankedTensorType x = tensorTypeOf(getX());
  ArrayRef<int64_t> permutation = getPermutation();
  SmallVector<bool> seen(x.getRank(), false);
  bool valid = static_cast<int64_t>(permutation.size()) == x.getRank();
  for (int64_t dimension : permutation) {
    valid = valid && dimension >= 0 && dimension < x.getRank() && !seen[dimension];
    if (!valid)
      break;
    seen[dimension] = true;
  }
  if (!valid)
    return emitOpError("(C1) expects a permutation of the ")
           << x.getRank() << " dimensions of x, got [" << permutation << "]";
  if (carriesSamples(x) && permutation[0] != 0)
    return emitOpError("(C2) expects the sample axis to stay dimension 0, got [")
           << permutation << "]";
  if (RankedTensorType expected = inferType(x, permutation); getY().getType() != expected)
    return emitOpError("(C3) expects y ") << expected << ", got " << getY().getType();
  return success();
}

LogicalResult SliceOp::verify() {
  RankedTensorType x = tensorTypeOf(getX());
  ArrayRef<int64_t> offsets = getOffsets(), sizes = getSizes(), strides = getStrides();
  auto rank = static_cast<size_t>(x.getRank());
  if (offsets.size() != rank || sizes.size() != rank || strides.size() != rank)
    return emitOpError("(C1) expects ")
           << rank << " offsets, sizes and strides, got " << offsets.size() << ", " << sizes.size()
           << " and " << strides.size();
  bool sampled = carriesSamples(x);
  if (sampled && (offsets[0] != 0 || !ShapedType::isDynamic(sizes[0]) || strides[0] != 1))
    return emitOpError(
        "(C2) expects the sample axis to be taken whole (offset 0, size ?, stride 1)");
  for (size_t i = sampled ? 1 : 0; i < rank; ++i) {
    // Written so that no product overflows: (size - 1) * stride <= last - offset.
    int64_t last = x.getDimSize(i) - 1;
    if (offsets[i] < 0 || sizes[i] < 1 || strides[i] < 1 || offsets[i] > last ||
        sizes[i] - 1 > (last - offsets[i]) / strides[i])
      return emitOpError("(C3) expects a slice inside dimension ")
             << i << " of size " << x.getDimSize(i) << ", got offset " << offsets[i] << ", size "
             << sizes[i] << ", stride " << strides[i];
  }
  if (RankedTensorType expected = reshaped(x, sizes); getY().getType() != expected)
    return emitOpError("(C4) expects y ") << expected << ", got " << getY().getType();
  return success();
}

LogicalResult ConcatOp::verify() {
  if (getXs().empty())
    return emitOpError("(C1) expects at least one operand");
  RankedTensorType first = tensorTypeOf(getXs().front());
  for (Value x : getXs())
    if (tensorTypeOf(x).getElementType() != first.getElementType() ||
        tensorTypeOf(x).getRank() != first.getRank())
      return emitOpError("(C1) expects operands of one element type and rank, got ")
             << first << " and " << x.getType();
  auto dim = static_cast<int64_t>(getDim());
  if (dim < 0 || dim >= first.getRank() || first.isDynamicDim(dim))
    return emitOpError("(C2) expects dim to be a static dimension of ") << first << ", got " << dim;
  SmallVector<int64_t> shape(first.getShape());
  shape[dim] = 0;
  for (Value x : getXs()) {
    RankedTensorType type = tensorTypeOf(x);
    for (int64_t i = 0; i < type.getRank(); ++i)
      if (i != dim && type.getDimSize(i) != first.getDimSize(i))
        return emitOpError("(C3) expects operands to agree outside dimension ")
               << dim << ", got " << first << " and " << type;
    shape[dim] += type.getDimSize(dim);
  }
  if (RankedTensorType expected = reshaped(first, shape); getY().getType() != expected)
    return emitOpError("(C4) expects y ") << expected << ", got " << getY().getType();
  return success();
}

LogicalResult BroadcastOp::verify() {
  RankedTensorType x = tensorTypeOf(getX()), y = tensorTypeOf(getY());
  ArrayRef<int64_t> dims = getDims();
  if (x.getElementType() != y.getElementType())
    return emitOpError("(C1) expects equal element types, got ")
           << x.getElementType() << " and " << y.getElementType();
  bool valid = static_cast<int64_t>(dims.size()) == x.getRank();
  for (size_t i = 0; valid && i < dims.size(); ++i)
    valid = dims[i] > (i ? dims[i - 1] : -1) && dims[i] < y.getRank();
  if (!valid)
    return emitOpError("(C2) expects ")
           << x.getRank() << " strictly increasing dimensions of " << y << ", got [" << dims << "]";
  for (size_t i = 0; i < dims.size(); ++i)
    if (x.getDimSize(i) != y.getDimSize(dims[i]))
      return emitOpError("(C3) expects dimension ")
             << i << " of " << x << " to have the size of dimension " << dims[i] << " of " << y;
  return success();
}

LogicalResult AllGatherOp::verify() {
  const uint64_t device = getDevice();
  if (device >= getParts().size() || getParts()[device].getType() != getX().getType())
    return emitOpError("(C1) expects a result for every device, and that of device ")
           << device << " to be " << getX().getType();
  for (Value part : getParts())
    if (tensorTypeOf(part).getElementType() != tensorTypeOf(getX()).getElementType())
      return emitOpError("(C2) expects elements of ")
             << tensorTypeOf(getX()).getElementType() << ", got " << part.getType();
  return success();
}
