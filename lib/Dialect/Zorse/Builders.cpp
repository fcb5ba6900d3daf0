// Builders that infer result types, and helpers for building graph IR.
#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace zorse;

static RankedTensorType tensorType(Value value) { return cast<RankedTensorType>(value.getType()); }

static RankedTensorType withShape(RankedTensorType type, ArrayRef<int64_t> shape) {
  return RankedTensorType::get(shape, type.getElementType());
}

//===----------------------------------------------------------------------===//
// Views
//===----------------------------------------------------------------------===//

void ReshapeOp::build(OpBuilder &builder, OperationState &state, Value x, ArrayRef<int64_t> shape) {
  build(builder, state, withShape(tensorType(x), shape), x);
}

RankedTensorType TransposeOp::inferType(RankedTensorType x, ArrayRef<int64_t> permutation) {
  SmallVector<int64_t> shape;
  for (int64_t dimension : permutation)
    shape.push_back(x.getDimSize(dimension));
  return withShape(x, shape);
}

void TransposeOp::build(OpBuilder &builder, OperationState &state, Value x,
                        ArrayRef<int64_t> permutation) {
  build(builder, state, inferType(tensorType(x), permutation), x, permutation);
}

void SliceOp::build(OpBuilder &builder, OperationState &state, Value x, ArrayRef<int64_t> offsets,
                    ArrayRef<int64_t> sizes, ArrayRef<int64_t> strides) {
  build(builder, state, withShape(tensorType(x), sizes), x, offsets, sizes, strides);
}

void SliceOp::build(OpBuilder &builder, OperationState &state, Value x, int64_t dim, int64_t offset,
                    int64_t size) {
  RankedTensorType type = tensorType(x);
  SmallVector<int64_t> offsets(type.getRank(), 0), sizes(type.getShape()),
      strides(type.getRank(), 1);
  offsets[dim] = offset;
  sizes[dim] = size;
  build(builder, state, x, offsets, sizes, strides);
}

void ConcatOp::build(OpBuilder &builder, OperationState &state, ValueRange xs, int64_t dim) {
  SmallVector<int64_t> shape(tensorType(xs.front()).getShape());
  shape[dim] = 0;
  for (Value x : xs)
    shape[dim] += tensorType(x).getDimSize(dim);
  build(builder, state, withShape(tensorType(xs.front()), shape), xs, dim);
}

//===----------------------------------------------------------------------===//
// Products, reductions, indexed access
//===----------------------------------------------------------------------===//

RankedTensorType ReduceOp::inferType(RankedTensorType x, ArrayRef<int64_t> dims) {
  SmallVector<int64_t> shape;
  for (int64_t i = 0; i < x.getRank(); ++i)
    if (!llvm::is_contained(dims, i))
      shape.push_back(x.getDimSize(i));
  return withShape(x, shape);
}

void ReduceOp::build(OpBuilder &builder, OperationState &state, Value x, ReduceKind kind,
                     ArrayRef<int64_t> dims) {
  build(builder, state, inferType(tensorType(x), dims), x, kind, dims);
}

RankedTensorType MatmulOp::inferType(RankedTensorType a, RankedTensorType b, bool transposeA,
                                     bool transposeB) {
  SmallVector<int64_t> shape(a.getShape().drop_back(2));
  shape.push_back(a.getShape().take_back(transposeA ? 1 : 2).front());
  shape.push_back(b.getShape().take_back(transposeB ? 2 : 1).front());
  return withShape(a, shape);
}

void RoundOp::build(OpBuilder &builder, OperationState &state, Value x, Type to,
                    bool straightThrough, bool perOperator) {
  build(builder, state, x.getType(), x, TypeAttr::get(to),
        straightThrough ? builder.getUnitAttr() : UnitAttr(),
        perOperator ? builder.getUnitAttr() : UnitAttr());
}

void MatmulOp::build(OpBuilder &builder, OperationState &state, Value a, Value b, bool transposeA,
                     bool transposeB) {
  build(builder, state, inferType(tensorType(a), tensorType(b), transposeA, transposeB), a, b,
        transposeA, transposeB);
}

void MatmulGradWeightOp::build(OpBuilder &builder, OperationState &state, Value a, Value b) {
  build(
      builder, state,
      withShape(tensorType(a), {tensorType(a).getShape().back(), tensorType(b).getShape().back()}),
      a, b);
}

/// Returns the attribute of a row without gradient; null if there is none.
static IntegerAttr paddingAttr(OpBuilder &builder, std::optional<int64_t> padding) {
  return padding ? builder.getI64IntegerAttr(*padding) : IntegerAttr();
}

void GatherOp::build(OpBuilder &builder, OperationState &state, Value table, Value indices,
                     std::optional<int64_t> padding) {
  SmallVector<int64_t> shape(tensorType(indices).getShape());
  llvm::append_range(shape, tensorType(table).getShape().drop_front());
  build(builder, state, withShape(tensorType(table), shape), table, indices,
        paddingAttr(builder, padding));
}

void ScatterAddOp::build(OpBuilder &builder, OperationState &state, Value indices, Value updates,
                         int64_t tableRows, std::optional<int64_t> padding) {
  SmallVector<int64_t> shape{tableRows};
  llvm::append_range(shape,
                     tensorType(updates).getShape().drop_front(tensorType(indices).getRank()));
  build(builder, state, withShape(tensorType(updates), shape), indices, updates,
        paddingAttr(builder, padding));
}

void TakeAlongDimOp::build(OpBuilder &builder, OperationState &state, Value x, Value indices) {
  build(builder, state, withShape(tensorType(x), tensorType(indices).getShape()), x, indices);
}

void TakeAlongDimGradOp::build(OpBuilder &builder, OperationState &state, Value dy, Value indices,
                               int64_t size) {
  SmallVector<int64_t> shape(tensorType(dy).getShape());
  shape.push_back(size);
  build(builder, state, withShape(tensorType(dy), shape), dy, indices);
}

//===----------------------------------------------------------------------===//
// Norms
//===----------------------------------------------------------------------===//

static RankedTensorType channelType(RankedTensorType x) {
  return withShape(x, x.getShape().take_back());
}

void LayerNormOp::build(OpBuilder &builder, OperationState &state, Value x, Value weight,
                        Value bias, double epsilon, bool withStatistics) {
  RankedTensorType type = tensorType(x);
  SmallVector<Type> statistics(withStatistics ? 2 : 0, statisticType(type));
  build(builder, state, type, statistics, x, weight, bias, builder.getF64FloatAttr(epsilon));
}

void LayerNormGradInputOp::build(OpBuilder &builder, OperationState &state, Value dy, Value x,
                                 Value mean, Value rstd, Value weight) {
  build(builder, state, x.getType(), dy, x, mean, rstd, weight);
}

void LayerNormGradParamsOp::build(OpBuilder &builder, OperationState &state, Value dy, Value x,
                                  Value mean, Value rstd) {
  RankedTensorType type = channelType(tensorType(x));
  build(builder, state, type, type, dy, x, mean, rstd);
}

void RmsNormOp::build(OpBuilder &builder, OperationState &state, Value x, Value weight,
                      double epsilon, bool withStatistics) {
  RankedTensorType type = tensorType(x);
  build(builder, state, type, withStatistics ? statisticType(type) : Type(), x, weight,
        builder.getF64FloatAttr(epsilon));
}

void RmsNormGradInputOp::build(OpBuilder &builder, OperationState &state, Value dy, Value x,
                               Value rrms, Value weight) {
  build(builder, state, x.getType(), dy, x, rrms, weight);
}

void RmsNormGradParamsOp::build(OpBuilder &builder, OperationState &state, Value dy, Value x,
                                Value rrms) {
  build(builder, state, channelType(tensorType(x)), dy, x, rrms);
}

//===----------------------------------------------------------------------===//
// Attention, rope, loss
//===----------------------------------------------------------------------===//

static IntegerAttr firstHeadAttr(OpBuilder &builder, const AttentionOptions &options) {
  return options.firstHead ? builder.getI64IntegerAttr(options.firstHead) : IntegerAttr();
}

template <typename Op> static AttentionOptions optionsOf(Op op) {
  AttentionOptions options;
  options.scale = op.getScale().convertToDouble();
  options.causal = op.getCausal();
  if (std::optional<uint64_t> window = op.getWindow())
    options.window = static_cast<int64_t>(*window);
  if (std::optional<APFloat> softcap = op.getSoftcap())
    options.softcap = softcap->convertToDouble();
  options.dropout = op.getDropout().convertToDouble();
  options.rngId = static_cast<int64_t>(op.getRngId());
  options.firstHead = static_cast<int64_t>(op.getFirstHead().value_or(0));
  return options;
}

AttentionOptions AttentionOp::getOptions() { return optionsOf(*this); }
AttentionOptions AttentionGradOp::getOptions() { return optionsOf(*this); }

static IntegerAttr windowAttr(OpBuilder &builder, const AttentionOptions &options) {
  return options.window ? builder.getI64IntegerAttr(*options.window) : IntegerAttr();
}

static FloatAttr softcapAttr(OpBuilder &builder, const AttentionOptions &options) {
  return options.softcap ? builder.getF64FloatAttr(*options.softcap) : FloatAttr();
}

static UnitAttr flag(OpBuilder &builder, bool value) {
  return value ? builder.getUnitAttr() : UnitAttr();
}

void AttentionOp::build(OpBuilder &builder, OperationState &state, Value q, Value k, Value v,
                        Value mask, const AttentionOptions &options, bool withStatistics) {
  RankedTensorType type = tensorType(q);
  ArrayRef<int64_t> shape = type.getShape();
  RankedTensorType out =
      withShape(type, {shape[0], shape[1], shape[2], tensorType(v).getShape().back()});
  Type lse;
  if (withStatistics)
    lse = attentionStatisticType(type, mask);
  build(builder, state, out, lse, q, k, v, mask, builder.getF64FloatAttr(options.scale),
        flag(builder, options.causal), windowAttr(builder, options), softcapAttr(builder, options),
        builder.getF64FloatAttr(options.dropout), builder.getI64IntegerAttr(options.rngId),
        firstHeadAttr(builder, options));
}

void AttentionGradOp::build(OpBuilder &builder, OperationState &state, Value dout, Value q, Value k,
                            Value v, Value out, Value lse, Value mask,
                            const AttentionOptions &options) {
  build(builder, state, q.getType(), k.getType(), v.getType(), dout, q, k, v, out, lse, mask,
        builder.getF64FloatAttr(options.scale), flag(builder, options.causal),
        windowAttr(builder, options), softcapAttr(builder, options),
        builder.getF64FloatAttr(options.dropout), builder.getI64IntegerAttr(options.rngId),
        firstHeadAttr(builder, options));
}

void DropoutOp::build(OpBuilder &builder, OperationState &state, Value x, double probability,
                      int64_t rngId, ArrayRef<int64_t> element) {
  build(builder, state, x.getType(), x, builder.getF64FloatAttr(probability),
        builder.getI64IntegerAttr(rngId),
        element.empty() ? DenseI64ArrayAttr() : builder.getDenseI64ArrayAttr(element));
}

void RopeOp::build(OpBuilder &builder, OperationState &state, Value x, Value cos, Value sin,
                   bool interleaved, bool inverse) {
  build(builder, state, x.getType(), x, cos, sin, interleaved, inverse);
}

void CrossEntropyOp::build(OpBuilder &builder, OperationState &state, Value logits, Value labels,
                           Value weights, std::optional<int64_t> ignoreIndex, bool withStatistics) {
  auto type = RankedTensorType::get(tensorType(labels).getShape(),
                                    statisticElementType(tensorType(logits).getElementType()));
  build(builder, state, type, withStatistics ? statisticsOfEach(type) : Type(), logits, labels,
        weights, ignoreIndex ? builder.getI64IntegerAttr(*ignoreIndex) : IntegerAttr());
}

void CrossEntropyGradOp::build(OpBuilder &builder, OperationState &state, Value dloss, Value logits,
                               Value labels, Value statistics, Value weights,
                               std::optional<int64_t> ignoreIndex) {
  build(builder, state, logits.getType(), dloss, logits, labels, statistics, weights,
        ignoreIndex ? builder.getI64IntegerAttr(*ignoreIndex) : IntegerAttr());
}

//===----------------------------------------------------------------------===//
// Statistics
//===----------------------------------------------------------------------===//

bool zorse::hasOptionalStatistics(Operation *op) {
  return isa<LayerNormOp, RmsNormOp, AttentionOp, CrossEntropyOp>(op);
}

Operation *zorse::withStatistics(OpBuilder &builder, Operation *op) {
  if (!hasOptionalStatistics(op) || op->getNumResults() > 1)
    return op;
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(op);
  Operation *full = nullptr;
  Location loc = op->getLoc();
  if (auto norm = dyn_cast<LayerNormOp>(op)) {
    full = LayerNormOp::create(builder, loc, norm.getX(), norm.getWeight(), norm.getBias(),
                               norm.getEpsilon().convertToDouble(), true);
  } else if (auto norm = dyn_cast<RmsNormOp>(op)) {
    full = RmsNormOp::create(builder, loc, norm.getX(), norm.getWeight(),
                             norm.getEpsilon().convertToDouble(), true);
  } else if (auto attention = dyn_cast<AttentionOp>(op)) {
    full = AttentionOp::create(builder, loc, attention.getQ(), attention.getK(), attention.getV(),
                               attention.getMask(), attention.getOptions(), true);
  } else {
    auto loss = cast<CrossEntropyOp>(op);
    std::optional<int64_t> ignoreIndex;
    if (loss.getIgnoreIndexAttr())
      ignoreIndex = loss.getIgnoreIndexAttr().getInt();
    full = CrossEntropyOp::create(builder, loc, loss.getLogits(), loss.getLabels(),
                                  loss.getWeights(), ignoreIndex, true);
  }
  full->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  op->getResult(0).replaceAllUsesWith(full->getResult(0));
  op->erase();
  return full;
}

//===----------------------------------------------------------------------===//
// Splats
//===----------------------------------------------------------------------===//

Value zorse::createSplat(OpBuilder &builder, Location loc, RankedTensorType type, double value) {
  Type element = type.getElementType();
  RankedTensorType scalar = RankedTensorType::get({}, element);
  Attribute number = isa<FloatType>(element)
                         ? Attribute(builder.getFloatAttr(element, value))
                         : Attribute(builder.getIntegerAttr(element, static_cast<int64_t>(value)));
  Value constant = arith::ConstantOp::create(builder, loc, DenseElementsAttr::get(scalar, number));
  return type == scalar
             ? constant
             : BroadcastOp::create(builder, loc, type, constant, ArrayRef<int64_t>{}).getResult();
}

bool zorse::isView(Operation *op) {
  return isa_and_nonnull<ReshapeOp, TransposeOp, SliceOp, BroadcastOp>(op);
}

bool zorse::movesElements(Operation *op) {
  return isView(op) || isa_and_nonnull<ConcatOp, DetachOp>(op);
}

std::optional<double> zorse::splatValue(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (isView(op)) {
      value = op->getOperand(0);
      continue;
    }
    DenseElementsAttr elements;
    if (!matchPattern(op, m_Constant(&elements)) || !elements.isSplat())
      return std::nullopt;
    if (isa<FloatType>(elements.getElementType()))
      return elements.getSplatValue<APFloat>().convertToDouble();
    return elements.getElementType().isInteger(1)
               ? double(elements.getSplatValue<APInt>().getZExtValue())
               : double(elements.getSplatValue<APInt>().getSExtValue());
  }
  return std::nullopt;
}
