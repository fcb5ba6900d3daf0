#include "DivideByIds.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <limits>

using namespace mlir;
using namespace zorse;
using namespace zorse::sharding;

bool sharding::combines(Operation *op) { return isa<CrossEntropyOp>(op); }

std::string sharding::whyNotByIds(Operation *op) {
  if (auto gather = dyn_cast<GatherOp>(op))
    return gather.getPadding() ? "has a padding row" : "";
  if (auto scatter = dyn_cast<ScatterAddOp>(op))
    return scatter.getPadding() ? "has a padding row" : "";
  if (auto loss = dyn_cast<CrossEntropyOp>(op))
    return loss.getWeights() ? "has class weights" : "";
  if (auto gradient = dyn_cast<CrossEntropyGradOp>(op))
    return gradient.getWeights() ? "has class weights" : "";
  return isa<TakeAlongDimOp, TakeAlongDimGradOp>(op) ? "" : "counts its points";
}

namespace {

class PartBuilder {
public:
  PartBuilder(OpBuilder &builder, Operation *op, const PartByIds &part)
      : builder(builder), op(op), loc(op->getLoc()), part(part) {}

  SmallVector<Value> build() {
    if (auto loss = dyn_cast<CrossEntropyOp>(op))
      return crossEntropy(loss);
    if (auto gradient = dyn_cast<CrossEntropyGradOp>(op))
      return {crossEntropyGrad(gradient)};
    if (isa<GatherOp>(op)) {
      findOwn(part.operands[1]);
      return {zeroUnlessOwn(GatherOp::create(builder, loc, part.operands[0], index, std::nullopt))};
    }
    if (isa<ScatterAddOp>(op)) {
      findOwn(part.operands[0]);
      return {ScatterAddOp::create(builder, loc, index, zeroUnlessOwn(part.operands[1]), part.size,
                                   std::nullopt)};
    }
    findOwn(part.operands[1]);
    if (isa<TakeAlongDimOp>(op))
      return {zeroUnlessOwn(TakeAlongDimOp::create(builder, loc, part.operands[0], index))};
    return {TakeAlongDimGradOp::create(builder, loc, zeroUnlessOwn(part.operands[0]), index,
                                       part.size)};
  }

private:
  static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }
  Value splat(RankedTensorType type, double value) {
    return createSplat(builder, loc, type, value);
  }
  Value integer(RankedTensorType type, int64_t value) {
    auto scalar = RankedTensorType::get({}, type.getElementType());
    Value constant = arith::ConstantOp::create(
        builder, loc,
        DenseElementsAttr::get(scalar, builder.getIntegerAttr(type.getElementType(), value)));
    return type == scalar
               ? constant
               : BroadcastOp::create(builder, loc, type, constant, ArrayRef<int64_t>{}).getResult();
  }
  /// Repeats a value along trailing dimensions.
  Value repeat(Value value, RankedTensorType like) {
    auto type = RankedTensorType::get(like.getShape(), typeOf(value).getElementType());
    if (type == value.getType())
      return value;
    return BroadcastOp::create(builder, loc, type, value,
                               llvm::to_vector(llvm::seq<int64_t>(typeOf(value).getRank())));
  }

  /// Finds the ids of the device's range: `own`, and `index`, relative to the range and 0 for other
  /// ids.
  void findOwn(Value ids) {
    RankedTensorType type = typeOf(ids);
    Value local = arith::SubIOp::create(builder, loc, ids, integer(type, part.begin));
    Value zero = integer(type, 0);
    own = arith::AndIOp::create(
        builder, loc, arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::sge, local, zero),
        arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::slt, local,
                              integer(type, part.size)));
    index = arith::SelectOp::create(builder, loc, own, local, zero);
  }
  Value zeroUnlessOwn(Value value) {
    return arith::SelectOp::create(builder, loc, repeat(own, typeOf(value)), value,
                                   splat(typeOf(value), 0));
  }

  Value widened(Value value, Type element) {
    if (typeOf(value).getElementType() == element)
      return value;
    return arith::ExtFOp::create(builder, loc,
                                 RankedTensorType::get(typeOf(value).getShape(), element), value);
  }

  /// Returns zero for ignored labels.
  Value zeroIfIgnored(Value value, Value labels, std::optional<uint64_t> ignored) {
    if (!ignored)
      return value;
    Value is = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, labels,
                                     integer(typeOf(labels), static_cast<int64_t>(*ignored)));
    return arith::SelectOp::create(builder, loc, is, splat(typeOf(value), 0), value);
  }

  SmallVector<Value> crossEntropy(CrossEntropyOp loss);
  Value crossEntropyGrad(CrossEntropyGradOp gradient);
  Value localNumbers(CrossEntropyOp loss);

  OpBuilder &builder;
  Operation *op;
  Location loc;
  const PartByIds &part;
  Value own, index;
};

/// Returns three numbers per label: the device's maximum, its sum of exponentials relative to it,
/// and the label's logit.
Value PartBuilder::localNumbers(CrossEntropyOp loss) {
  Value labels = loss.getLabels() ? part.operands[1] : Value();
  RankedTensorType type = typeOf(loss.getLoss());
  SmallVector<int64_t> one(type.getShape()), two(type.getShape());
  one.push_back(1), two.push_back(2);
  auto single = RankedTensorType::get(one, type.getElementType());
  const double lowest = type.getElementType().isF64()
                            ? std::numeric_limits<double>::lowest()
                            : double(std::numeric_limits<float>::lowest());
  if (part.size == 0) // no classes
    return ConcatOp::create(builder, loc,
                            ValueRange{splat(single, lowest), splat(single, 0), splat(single, 0)},
                            type.getRank());
  findOwn(labels);
  Value label =
      widened(zeroUnlessOwn(TakeAlongDimOp::create(builder, loc, part.operands[0], index)),
              type.getElementType());
  auto statistics = CrossEntropyOp::create(builder, loc, part.operands[0], index, Value(),
                                           std::nullopt, /*withStatistics=*/true)
                        .getStatistics();
  Value maximum = SliceOp::create(builder, loc, statistics, type.getRank(), 0, 1),
        sum = SliceOp::create(builder, loc, statistics, type.getRank(), 1, 1);
  // Classes with logits of minus infinity contribute nothing.
  Value nothing = arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OEQ, maximum,
                                        splat(single, -std::numeric_limits<double>::infinity()));
  maximum = arith::SelectOp::create(builder, loc, nothing, splat(single, lowest), maximum);
  sum = arith::SelectOp::create(builder, loc, nothing, splat(single, 0), sum);
  return ConcatOp::create(builder, loc,
                          ValueRange{maximum, sum, ReshapeOp::create(builder, loc, label, one)},
                          type.getRank());
}

/// One exchange of three numbers per label. They are combined in the order of the devices.
SmallVector<Value> PartBuilder::crossEntropy(CrossEntropyOp loss) {
  RankedTensorType type = typeOf(loss.getLoss());
  const int64_t last = type.getRank(), devices = static_cast<int64_t>(part.devices);
  SmallVector<int64_t> each(type.getShape()), one(type.getShape());
  each.push_back(devices), one.push_back(1);
  Value mine = localNumbers(loss);
  auto gather = AllGatherOp::create(builder, loc, SmallVector<Type>(part.devices, mine.getType()),
                                    part.exchange, mine, part.device);
  auto column = [&](int64_t i) -> Value {
    SmallVector<Value> numbers;
    for (Value of : gather.getParts())
      numbers.push_back(SliceOp::create(builder, loc, of, last, i, 1));
    return ConcatOp::create(builder, loc, RankedTensorType::get(each, type.getElementType()),
                            numbers, last);
  };
  auto total = [&](Value x, ReduceKind kind) {
    return ReduceOp::create(builder, loc, x, kind, ArrayRef<int64_t>{last}).getResult();
  };
  Value maximum = total(column(0), ReduceKind::Max);
  Value scale = math::ExpOp::create(
      builder, loc,
      arith::SubFOp::create(builder, loc, column(0), repeat(maximum, typeOf(column(0)))));
  Value sum = total(arith::MulFOp::create(builder, loc, column(1), scale), ReduceKind::Sum),
        label = total(column(2), ReduceKind::Sum);
  Value result = arith::AddFOp::create(builder, loc,
                                       arith::SubFOp::create(builder, loc, maximum, label),
                                       math::LogOp::create(builder, loc, sum));
  SmallVector<Value> results{zeroIfIgnored(result, part.operands[1], loss.getIgnoreIndex())};
  if (loss.getStatistics())
    results.push_back(ConcatOp::create(builder, loc,
                                       ValueRange{ReshapeOp::create(builder, loc, maximum, one),
                                                  ReshapeOp::create(builder, loc, sum, one)},
                                       last));
  return results;
}

/// dloss * exp(x - m) / s for all classes of the device, minus dloss at the label if it is one of
/// them.
Value PartBuilder::crossEntropyGrad(CrossEntropyGradOp gradient) {
  Value dloss = zeroIfIgnored(part.operands[0], part.operands[2], gradient.getIgnoreIndex());
  Type element = typeOf(dloss).getElementType();
  Value x = widened(part.operands[1], element);
  const int64_t last = typeOf(dloss).getRank();
  SmallVector<int64_t> lead(typeOf(dloss).getShape());
  auto statistic = [&](int64_t i) {
    Value value = ReshapeOp::create(
        builder, loc, SliceOp::create(builder, loc, part.operands[3], last, i, 1), lead);
    return repeat(value, typeOf(x));
  };
  findOwn(part.operands[2]);
  Value p = arith::DivFOp::create(
      builder, loc,
      math::ExpOp::create(builder, loc, arith::SubFOp::create(builder, loc, x, statistic(0))),
      statistic(1));
  Value d = arith::SubFOp::create(
      builder, loc, arith::MulFOp::create(builder, loc, repeat(dloss, typeOf(x)), p),
      TakeAlongDimGradOp::create(builder, loc, zeroUnlessOwn(dloss), index, part.size));
  auto type =
      RankedTensorType::get(typeOf(x).getShape(), typeOf(gradient.getDlogits()).getElementType());
  return d.getType() == type ? d : arith::TruncFOp::create(builder, loc, type, d).getResult();
}

} // namespace

SmallVector<Value> sharding::buildByIds(OpBuilder &builder, Operation *op, const PartByIds &part) {
  return PartBuilder(builder, op, part).build();
}
