// Shorthands for building elementwise graphs on tensors.
#pragma once

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Builders.h"

namespace zorse {

struct TensorBuilder {
  mlir::OpBuilder &b;
  mlir::Location loc;
  using Value = mlir::Value;

  static mlir::RankedTensorType typeOf(Value v) {
    return llvm::cast<mlir::RankedTensorType>(v.getType());
  }
  static mlir::Type elementOf(Value v) { return typeOf(v).getElementType(); }

  template <typename Op, typename... Args> Value make(Args &&...args) {
    return Op::create(b, loc, std::forward<Args>(args)...)->getResult(0);
  }

  Value add(Value x, Value y) { return make<mlir::arith::AddFOp>(x, y); }
  Value sub(Value x, Value y) { return make<mlir::arith::SubFOp>(x, y); }
  Value mul(Value x, Value y) { return make<mlir::arith::MulFOp>(x, y); }
  Value div(Value x, Value y) { return make<mlir::arith::DivFOp>(x, y); }
  Value neg(Value x) { return make<mlir::arith::NegFOp>(x); }
  Value exp(Value x) { return make<mlir::math::ExpOp>(x); }
  /// Approximate operations, for values whose last bits in f32 do not matter in a 16-bit model.
  /// GPUs have instructions for them (useSpecialFunctions).
  Value expNearly(Value x) { return make<mlir::math::ExpOp>(x, mlir::arith::FastMathFlags::afn); }
  Value divNearly(Value x, Value y) {
    return make<mlir::arith::DivFOp>(x, y, mlir::arith::FastMathFlags::afn);
  }
  Value log(Value x) { return make<mlir::math::LogOp>(x); }
  Value sqrt(Value x) { return make<mlir::math::SqrtOp>(x); }
  Value tanh(Value x) { return make<mlir::math::TanhOp>(x); }
  Value erf(Value x) { return make<mlir::math::ErfOp>(x); }
  Value select(Value c, Value x, Value y) { return make<mlir::arith::SelectOp>(c, x, y); }

  /// A number in the type of `like`: a scalar constant that is broadcast.
  Value splat(Value like, double value) { return splat(typeOf(like), value); }
  Value splat(mlir::RankedTensorType type, double value) {
    mlir::Type element = type.getElementType();
    auto scalar = mlir::RankedTensorType::get({}, element);
    mlir::Attribute attribute =
        llvm::isa<mlir::FloatType>(element)
            ? mlir::Attribute(b.getFloatAttr(element, value))
            : mlir::Attribute(b.getIntegerAttr(element, static_cast<int64_t>(value)));
    Value constant = make<mlir::arith::ConstantOp>(mlir::DenseElementsAttr::get(scalar, attribute));
    return type.getRank() == 0 ? constant
                               : make<BroadcastOp>(type, constant, mlir::ArrayRef<int64_t>{});
  }
  Value scale(Value x, double factor) { return mul(x, splat(x, factor)); }
  Value plus(Value x, double term) { return add(x, splat(x, term)); }

  mlir::RankedTensorType withElement(Value like, mlir::Type element) {
    return mlir::RankedTensorType::get(typeOf(like).getShape(), element);
  }
  /// Converts between float types.
  Value cast(Value x, mlir::Type element) {
    unsigned from = elementOf(x).getIntOrFloatBitWidth(), to = element.getIntOrFloatBitWidth();
    if (elementOf(x) == element)
      return x;
    if (from < to)
      return make<mlir::arith::ExtFOp>(withElement(x, element), x);
    return make<mlir::arith::TruncFOp>(withElement(x, element), x);
  }

  /// Repeats one number per vector along the last dimension, to the shape of `like`.
  Value alongLast(Value x, Value like) {
    llvm::SmallVector<int64_t> dims;
    for (int64_t dim = 0; dim < typeOf(x).getRank(); ++dim)
      dims.push_back(dim);
    return make<BroadcastOp>(withElement(like, elementOf(x)), x, dims);
  }
  /// Repeats a vector over the last dimension over all other dimensions.
  Value alongLead(Value x, Value like) {
    return make<BroadcastOp>(withElement(like, elementOf(x)), x,
                             mlir::ArrayRef<int64_t>{typeOf(like).getRank() - 1});
  }
  /// Broadcasts a scalar tensor.
  Value everywhere(Value x, Value like) {
    return make<BroadcastOp>(withElement(like, elementOf(x)), x, mlir::ArrayRef<int64_t>{});
  }

  /// Reduces the last dimension. A dimension of size 1 is dropped without a reduction, because
  /// emitters expect something to reduce.
  Value reduceLast(Value x, ReduceKind kind) {
    if (typeOf(x).getShape().back() == 1)
      return reshape(x, typeOf(x).getShape().drop_back());
    return make<ReduceOp>(x, kind, mlir::ArrayRef<int64_t>{typeOf(x).getRank() - 1});
  }
  Value sumLast(Value x) { return reduceLast(x, ReduceKind::Sum); }
  Value meanLast(Value x) { return scale(sumLast(x), 1.0 / typeOf(x).getShape().back()); }
  Value sumLead(Value x) {
    llvm::SmallVector<int64_t> dims;
    for (int64_t dim = 0; dim + 1 < typeOf(x).getRank(); ++dim)
      dims.push_back(dim);
    return dims.empty() ? x : make<ReduceOp>(x, ReduceKind::Sum, dims);
  }
  /// Stacks two tensors along a new last dimension of size 2.
  Value join(Value x, Value y) {
    llvm::SmallVector<int64_t> shape(typeOf(x).getShape());
    shape.push_back(1);
    return make<ConcatOp>(mlir::ValueRange{reshape(x, shape), reshape(y, shape)},
                          int64_t(shape.size()) - 1);
  }
  /// Returns element `index` along the last dimension.
  Value element(Value x, int64_t index) {
    const int64_t last = typeOf(x).getRank() - 1;
    return reshape(make<SliceOp>(x, last, index, int64_t(1)), typeOf(x).getShape().drop_back());
  }
  Value reshape(Value x, mlir::ArrayRef<int64_t> shape) { return make<ReshapeOp>(x, shape); }
};

} // namespace zorse
