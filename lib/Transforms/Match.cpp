#include "Match.h"

#include "Views.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <cmath>
#include <numeric>

using namespace mlir;
using namespace zorse;

bool zorse::isNear(double a, double b) {
  return a == b || std::fabs(a - b) <= 1e-6 * std::max(std::fabs(a), std::fabs(b));
}

/// Returns the dimensions with a size other than 1.
static SmallVector<int64_t> wideDimensions(ArrayRef<int64_t> shape) {
  SmallVector<int64_t> dimensions;
  for (size_t i = 0; i < shape.size(); ++i)
    if (shape[i] != 1)
      dimensions.push_back(i);
  return dimensions;
}

Value zorse::matchStatistic(Value value) {
  auto broadcast = value.getDefiningOp<BroadcastOp>();
  if (!broadcast || rankedType(value).getRank() == 0)
    return {};
  ArrayRef<int64_t> shape = rankedType(value).getShape();
  // All dimensions with a size other than 1, except the last one, must come from the operand.
  SmallVector<int64_t> expected = wideDimensions(shape.drop_back()), found;
  for (auto [i, to] : llvm::enumerate(broadcast.getDims())) {
    if (to == static_cast<int64_t>(shape.size()) - 1)
      return {};
    if (rankedType(broadcast.getX()).getDimSize(i) != 1)
      found.push_back(to);
  }
  return expected == found ? broadcast.getX() : Value();
}

Value zorse::matchChannels(Value value) {
  auto broadcast = value.getDefiningOp<BroadcastOp>();
  if (!broadcast)
    return {};
  int64_t last = rankedType(value).getRank() - 1;
  return broadcast.getDims() == ArrayRef<int64_t>{last} &&
                 !carriesSamples(broadcast.getX().getType())
             ? broadcast.getX()
             : Value();
}

static void flattenInto(Value value, Product &product, bool root) {
  if (std::optional<double> splat = splatValue(value)) {
    product.scalar *= *splat;
    return;
  }
  if (root || value.hasOneUse()) {
    if (auto mul = value.getDefiningOp<arith::MulFOp>()) {
      flattenInto(mul.getLhs(), product, false);
      flattenInto(mul.getRhs(), product, false);
      return;
    }
    if (auto div = value.getDefiningOp<arith::DivFOp>()) {
      if (std::optional<double> splat = splatValue(div.getRhs()); splat && *splat != 0) {
        product.scalar /= *splat;
        flattenInto(div.getLhs(), product, false);
        return;
      }
    }
  }
  product.factors.push_back(value);
}

Product zorse::flattenProduct(Value value) {
  Product product;
  flattenInto(value, product, true);
  return product;
}

Value zorse::matchMean(Value value) {
  Value sum;
  double number;
  if (auto div = value.getDefiningOp<arith::DivFOp>()) {
    std::optional<double> divisor = splatValue(div.getRhs());
    if (!divisor || *divisor == 0)
      return {};
    sum = div.getLhs();
    number = 1 / *divisor;
  } else {
    sum = matchWithSplat<arith::MulFOp>(value, number);
  }
  // A reshape may have added or removed dimensions of size 1.
  while (sum && isa_and_nonnull<ReshapeOp>(sum.getDefiningOp()))
    sum = sum.getDefiningOp()->getOperand(0);
  auto reduce = sum ? sum.getDefiningOp<ReduceOp>() : ReduceOp();
  if (!reduce || reduce.getKind() != ReduceKind::Sum)
    return {};
  RankedTensorType type = rankedType(reduce.getX());
  if (reduce.getDims() != ArrayRef<int64_t>{type.getRank() - 1} ||
      type.isDynamicDim(type.getRank() - 1))
    return {};
  return isNear(number * type.getShape().back(), 1) ? reduce.getX() : Value();
}

Value zorse::matchReciprocalRoot(Value value) {
  if (auto rsqrt = value.getDefiningOp<math::RsqrtOp>())
    return rsqrt.getOperand();
  if (auto div = value.getDefiningOp<arith::DivFOp>())
    if (auto root = div.getRhs().getDefiningOp<math::SqrtOp>();
        root && splatValue(div.getLhs()) == 1.0)
      return root.getOperand();
  if (auto power = value.getDefiningOp<math::PowFOp>())
    if (splatValue(power.getRhs()) == -0.5)
      return power.getLhs();
  return {};
}

/// Returns y if value = y * y or y ^ 2.
static Value matchSquare(Value value) {
  if (auto mul = value.getDefiningOp<arith::MulFOp>(); mul && mul.getLhs() == mul.getRhs())
    return mul.getLhs();
  if (auto power = value.getDefiningOp<math::PowFOp>(); power && splatValue(power.getRhs()) == 2.0)
    return power.getLhs();
  return {};
}

Value zorse::matchMeanSquarePlus(Value value, double &epsilon) {
  Value mean = matchWithSplat<arith::AddFOp>(value, epsilon);
  if (!mean || !(epsilon > 0) || !std::isfinite(epsilon))
    return {};
  while (isa_and_nonnull<ReshapeOp>(mean.getDefiningOp()))
    mean = mean.getDefiningOp()->getOperand(0);
  Value squares = matchMean(mean);
  return squares ? matchSquare(squares) : Value();
}

SmallVector<Scaled, 2> zorse::matchScaledVectors(Operation *op) {
  SmallVector<Scaled, 2> readings;
  if (auto mul = dyn_cast<arith::MulFOp>(op)) {
    for (int i = 0; i < 2; ++i)
      if (Value statistic = matchStatistic(mul->getOperand(i)))
        readings.push_back({mul->getOperand(1 - i), statistic, {}});
  } else if (auto div = dyn_cast<arith::DivFOp>(op)) {
    if (Value statistic = matchStatistic(div.getRhs()))
      readings.push_back({div.getLhs(), {}, statistic});
  }
  return readings;
}

Value zorse::matchSigmoid(Value value) {
  auto div = value.getDefiningOp<arith::DivFOp>();
  if (!div || splatValue(div.getLhs()) != 1.0)
    return {};
  double one = 0;
  Value exponential = matchWithSplat<arith::AddFOp>(div.getRhs(), one);
  auto exp = exponential ? exponential.getDefiningOp<math::ExpOp>() : math::ExpOp();
  auto negation = exp ? exp.getOperand().getDefiningOp<arith::NegFOp>() : arith::NegFOp();
  return negation && one == 1.0 ? negation.getOperand() : Value();
}

bool zorse::dependsOnTrained(Value value) {
  SmallVector<Value> pending{value};
  llvm::DenseSet<Value> seen;
  while (!pending.empty()) {
    Value next = pending.pop_back_val();
    if (!seen.insert(next).second)
      continue;
    if (Operation *op = next.getDefiningOp()) {
      pending.append(op->operand_begin(), op->operand_end());
      continue;
    }
    auto argument = cast<BlockArgument>(next);
    auto function = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
    auto trainable = function ? function.getArgAttrOfType<BoolAttr>(argument.getArgNumber(),
                                                                    attributes::kTrainable)
                              : BoolAttr();
    if (trainable && trainable.getValue())
      return true;
  }
  return false;
}
