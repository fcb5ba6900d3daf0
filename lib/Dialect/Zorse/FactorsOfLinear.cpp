// Factors of matrix products, reductions and indexed access.
#include "FactorBuilder.h"

using namespace mlir;
using namespace zorse;

OpFactors ReduceOp::getFactors() {
  FactorBuilder builder(*this);
  static constexpr Combiner kCombiners[] = {Combiner::Sum, Combiner::Max, Combiner::Min,
                                            Combiner::Product}; // in the order of ReduceKind
  Combiner combiner = kCombiners[static_cast<size_t>(getKind())];
  unsigned next = 0;
  for (auto [i, size] : llvm::enumerate(shapeOf(getX()))) {
    bool reduced = llvm::is_contained(getDims(), static_cast<int64_t>(i));
    builder.operand(0)[i] = {reduced ? builder.reduced(size, combiner) : builder.parallel(size)};
    if (!reduced)
      builder.result(0)[next++] = builder.operand(0)[i];
  }
  return builder.take();
}

/// a [batch..., m, k] and b [k, n] or [batch..., k, n], each possibly transposed.
static FactorBuilder product(Operation *op, bool transposeA, bool transposeB, FactorKind inner) {
  FactorBuilder builder(op);
  ArrayRef<int64_t> aShape = shapeOf(op->getOperand(0)), bShape = shapeOf(op->getOperand(1));
  OpFactors::Value &a = builder.operand(0), &b = builder.operand(1), &y = builder.result(0);
  size_t rank = a.size();
  for (size_t i = 0; i + 2 < rank; ++i) {
    a[i] = y[i] = {builder.parallel(aShape[i])};
    if (b.size() > 2)
      b[i] = a[i];
  }
  size_t m = transposeA ? rank - 1 : rank - 2, k = transposeA ? rank - 2 : rank - 1;
  size_t n = transposeB ? b.size() - 2 : b.size() - 1,
         kOfB = transposeB ? b.size() - 1 : b.size() - 2;
  a[m] = y[rank - 2] = {builder.parallel(aShape[m])};
  b[n] = y[rank - 1] = {builder.parallel(bShape[n])};
  a[k] = b[kOfB] = {builder.add(inner, aShape[k])};
  return builder;
}

OpFactors MatmulOp::getFactors() {
  return product(*this, getTransposeA(), getTransposeB(), FactorKind::Reduced).take();
}

/// Parts of the sum over k would each add the bias, so k is indivisible.
OpFactors BiasedMatmulOp::getFactors() {
  FactorBuilder builder =
      product(*this, /*transposeA=*/false, getTransposeB(), FactorKind::Indivisible);
  builder.operand(2)[0] = builder.result(0).back();
  return builder.take();
}

OpFactors MatmulGradWeightOp::getFactors() {
  FactorBuilder builder(*this);
  OpFactors::Value &a = builder.operand(0), &b = builder.operand(1), &y = builder.result(0);
  size_t last = a.size() - 1;
  for (size_t i = 0; i < last; ++i)
    a[i] = b[i] = {builder.reduced(shapeOf(getA())[i])};
  y[0] = a[last] = {builder.parallel(shapeOf(getA())[last])};
  y[1] = b[last] = {builder.parallel(shapeOf(getB())[last])};
  return builder.take();
}

/// Relates a table [v, c...] to its rows [l..., c...] selected by indices [l...]. Returns v.
static OpFactors::Segment tableAndRows(FactorBuilder &builder, OpFactors::Value &table,
                                       OpFactors::Value &rows, OpFactors::Value &indices,
                                       Value tableValue, Value indicesValue, FactorKind ofTable,
                                       FactorKind ofLead) {
  FactorBuilder::Segment v = builder.add(ofTable, shapeOf(tableValue)[0]);
  table[0] = {v};
  for (size_t i = 0; i < indices.size(); ++i)
    indices[i] = rows[i] = {builder.add(ofLead, shapeOf(indicesValue)[i])};
  for (size_t i = 1; i < table.size(); ++i)
    table[i] = rows[indices.size() + i - 1] = {builder.parallel(shapeOf(tableValue)[i])};
  return v;
}

OpFactors GatherOp::getFactors() {
  FactorBuilder builder(*this);
  OpFactors::Segment v = tableAndRows(builder, builder.operand(0), builder.result(0),
                                      builder.operand(1), getTable(), getIndices(),
                                      FactorKind::Reduced, FactorKind::Parallel);
  builder.countAlong(v, 1);
  if (getPadding())
    builder.countAlong(v);
  return builder.take();
}

OpFactors ScatterAddOp::getFactors() {
  FactorBuilder builder(*this);
  OpFactors::Segment v = tableAndRows(builder, builder.result(0), builder.operand(1),
                                      builder.operand(0), getY(), getIndices(),
                                      FactorKind::Parallel, FactorKind::Reduced);
  builder.countAlong(v, 0);
  if (getPadding())
    builder.countAlong(v);
  return builder.take();
}

/// Vectors [l..., v] from which indices [l...] select one element each.
static OpFactors elementsByIndex(Operation *op, OpFactors::Value &(FactorBuilder::*wide)(unsigned),
                                 OpFactors::Value &(FactorBuilder::*narrow)(unsigned),
                                 Value wideValue, FactorKind ofVector) {
  FactorBuilder builder(op);
  ArrayRef<int64_t> shape = shapeOf(wideValue);
  SmallVector<OpFactors::Segment> dimensions = builder.parallel(shape.drop_back());
  FactorBuilder::set((builder.*narrow)(0), dimensions);
  FactorBuilder::set(builder.operand(1), dimensions);
  dimensions.push_back(builder.add(ofVector, shape.back()));
  FactorBuilder::set((builder.*wide)(0), dimensions);
  builder.countAlong(dimensions.back(), 1);
  return builder.take();
}

OpFactors TakeAlongDimOp::getFactors() {
  return elementsByIndex(*this, &FactorBuilder::operand, &FactorBuilder::result, getX(),
                         FactorKind::Reduced);
}
OpFactors TakeAlongDimGradOp::getFactors() {
  return elementsByIndex(*this, &FactorBuilder::result, &FactorBuilder::operand, getDx(),
                         FactorKind::Parallel);
}
