// Factors of ops that move elements.
#include "FactorBuilder.h"

using namespace mlir;
using namespace zorse;

/// Factors both shapes, outermost first. The smaller remainder is split off while it divides the
/// larger.
OpFactors ReshapeOp::getFactors() {
  FactorBuilder builder(*this);
  ArrayRef<int64_t> a = shapeOf(getX()), b = shapeOf(getY());
  SmallVector<OpFactors::Segment> x(a.size(), FactorBuilder::nothing(1)),
      y(b.size(), FactorBuilder::nothing(1));
  size_t i = 0, j = 0;
  if (carriesSamples(getX().getType())) {
    x[0] = y[0] = builder.parallel(ShapedType::kDynamic);
    i = j = 1;
  }
  int64_t left = 1, right = 1;
  auto append = [](OpFactors::Segment &segment, const OpFactors::Segment &factor) {
    segment = FactorBuilder::product(segment, factor);
  };
  while (true) {
    while (left == 1 && i < a.size())
      left = a[i++];
    while (right == 1 && j < b.size())
      right = b[j++];
    if (left == 1 || right == 1)
      break;
    int64_t common = std::min(left, right);
    if (std::max(left, right) % common != 0) {
      // 6 x 4 to 8 x 3: there are no common factors in order. The remaining dimensions are
      // indivisible.
      for (size_t k = i - 1; k < a.size(); ++k)
        append(x[k], builder.indivisible(k == i - 1 ? left : a[k]));
      for (size_t k = j - 1; k < b.size(); ++k)
        append(y[k], builder.indivisible(k == j - 1 ? right : b[k]));
      break;
    }
    OpFactors::Segment factor = builder.parallel(common);
    append(x[i - 1], factor);
    append(y[j - 1], factor);
    left /= common;
    right /= common;
  }
  FactorBuilder::set(builder.operand(0), x);
  FactorBuilder::set(builder.result(0), y);
  return builder.take();
}

OpFactors TransposeOp::getFactors() {
  FactorBuilder builder(*this);
  for (auto [i, from] : llvm::enumerate(getPermutation()))
    builder.result(0)[i] = builder.operand(0)[from] = {builder.parallel(shapeOf(getX())[from])};
  return builder.take();
}

/// A contiguous range of a dimension is one of its segments; the points before and after it are
/// unrelated. A dimension with a stride is indivisible.
OpFactors SliceOp::getFactors() {
  FactorBuilder builder(*this);
  for (auto [i, from, to, offset, stride] :
       llvm::enumerate(shapeOf(getX()), shapeOf(getY()), getOffsets(), getStrides())) {
    OpFactors::Dimension &x = builder.operand(0)[i], &y = builder.result(0)[i];
    if (stride != 1 && to != 1) {
      x = {builder.indivisible(from)};
      y = {builder.indivisible(to)};
      continue;
    }
    OpFactors::Segment taken = builder.parallel(to);
    y = {taken};
    x.clear();
    if (offset > 0)
      x.push_back(FactorBuilder::nothing(offset));
    x.push_back(taken);
    if (from != to && offset + to < from)
      x.push_back(FactorBuilder::nothing(from - offset - to));
  }
  return builder.take();
}

OpFactors ConcatOp::getFactors() {
  FactorBuilder builder(*this);
  OpFactors::Value &y = builder.result(0);
  for (size_t i = 0; i < y.size(); ++i) {
    if (i != getDim()) {
      y[i] = {builder.parallel(shapeOf(getY())[i])};
      for (unsigned k = 0; k < getNumOperands(); ++k)
        builder.operand(k)[i] = y[i];
      continue;
    }
    y[i].clear();
    for (auto [k, x] : llvm::enumerate(getXs())) {
      y[i].push_back(builder.parallel(shapeOf(x)[i]));
      builder.operand(k)[i] = {y[i].back()};
    }
  }
  return builder.take();
}

OpFactors BroadcastOp::getFactors() {
  FactorBuilder builder(*this);
  OpFactors::Value &y = builder.result(0);
  for (size_t i = 0; i < y.size(); ++i)
    y[i] = {builder.parallel(shapeOf(getY())[i])};
  for (auto [i, to] : llvm::enumerate(getDims()))
    builder.operand(0)[i] = y[to];
  return builder.take();
}
