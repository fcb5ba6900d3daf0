// Arithmetic and bytes of every op, unfused. Weights of special functions are what a polynomial evaluation takes, to the nearest few.
#include "zorse/Dialect/Zorse/SampleOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace zorse;

namespace {
constexpr double kSpecialFunction = 10; ///< exp, tanh, erf, ...: one evaluation
} // namespace

static RankedTensorType typeOf(Value value) { return dyn_cast<RankedTensorType>(value.getType()); }

static double elements(Value value) {
  RankedTensorType type = typeOf(value);
  return type ? static_cast<double>(elementsPerRow(type)) : 1.0;
}

static double elementBytes(Type type) { return std::max(1u, getElementTypeOrSelf(type).getIntOrFloatBitWidth() / 8); }

/// Pairs (query, key) that a mask made of `causal` and `window` leaves open.
static double visiblePairs(double queries, double keys, const AttentionOptions &options) {
  if (!options.causal)
    return queries * keys;
  double pairs = 0;
  for (double query = 0; query < queries; ++query) {
    double visible = std::clamp(query + keys - queries + 1, 0.0, keys);
    pairs += options.window ? std::min(visible, static_cast<double>(*options.window)) : visible;
  }
  return pairs;
}

template <typename Op> static double attentionFlops(Op op, double products) {
  ArrayRef<int64_t> q = typeOf(op.getQ()).getShape(), v = typeOf(op.getV()).getShape();
  double pairs = visiblePairs(q[1], v[1], op.getOptions()) * q[2] * (ShapedType::isDynamic(q[0]) ? 1 : q[0]);
  return pairs * (products * (q[3] + v[3]) + kSpecialFunction);
}

/// FLOPs of one row, or of the whole op if it carries no samples.
static double flopsOf(Operation *op) {
  return TypeSwitch<Operation *, double>(op)
      .Case<ReshapeOp, DetachOp, GradientOfOp, TransposeOp, SliceOp, ConcatOp, BroadcastOp, GatherOp, TakeOp, TakeGradOp, KnownOp, SampleNumberOp>(
          [](Operation *) { return 0.0; })
      .Case<ReduceOp>([](auto op) { return elements(op.getX()); })
      .Case<MatmulOp>([](auto op) { return 2 * elements(op.getY()) * typeOf(op.getA()).getShape().take_back(op.getTransposeA() ? 2 : 1).front(); })
      .Case<ContractOp>([](auto op) { return 2 * elements(op.getA()) * typeOf(op.getB()).getShape().back(); })
      .Case<ScatterAddOp>([](auto op) { return elements(op.getUpdates()); })
      .Case<SoftmaxOp, LogSoftmaxOp>([](auto op) { return elements(op.getX()) * (kSpecialFunction + 4); })
      .Case<SoftmaxGradOp>([](auto op) { return elements(op.getY()) * 4; })
      .Case<LogSoftmaxGradOp>([](auto op) { return elements(op.getY()) * (kSpecialFunction + 3); })
      .Case<LayerNormOp>([](auto op) { return elements(op.getX()) * 8; })
      .Case<LayerNormGradInputOp>([](auto op) { return elements(op.getX()) * 11; })
      .Case<LayerNormGradParamsOp>([](auto op) { return elements(op.getX()) * 5; })
      .Case<RmsNormOp>([](auto op) { return elements(op.getX()) * 4; })
      .Case<RmsNormGradInputOp>([](auto op) { return elements(op.getX()) * 8; })
      .Case<RmsNormGradParamsOp>([](auto op) { return elements(op.getX()) * 3; })
      .Case<GeluOp, SiluOp>([](auto op) { return elements(op.getX()) * (kSpecialFunction + 6); })
      .Case<GeluGradOp, SiluGradOp>([](auto op) { return elements(op.getX()) * (kSpecialFunction + 12); })
      .Case<AttentionOp>([](auto op) { return attentionFlops(op, 2); })
      .Case<AttentionGradOp>([](auto op) { return attentionFlops(op, 5); })
      .Case<RopeOp>([](auto op) { return elements(op.getX()) * 3; })
      .Case<CrossEntropyOp, CrossEntropyGradOp>([](auto op) { return elements(op.getLogits()) * (kSpecialFunction + 4); })
      .Case<DropoutOp>([](auto op) { return elements(op.getX()) * kSpecialFunction; })
      .Case<SgdUpdateOp>([](auto op) { return elements(op.getParameter()) * 8; })
      .Case<AdamUpdateOp>([](auto op) { return elements(op.getParameter()) * 20; })
      .Default([](Operation *op) {
        double perElement = isa_and_nonnull<math::MathDialect>(op->getDialect()) ? kSpecialFunction : 1;
        return op->getNumResults() ? elements(op->getResult(0)) * perElement : 0.0;
      });
}

OpCost zorse::detail::computeCost(Operation *op) {
  OpCost cost;
  if (isa<ReshapeOp, DetachOp, GradientOfOp, arith::ConstantOp>(op))
    return cost; // the same bytes under another type
  bool sampled = false;
  auto touch = [&](Value value) {
    double bytes = elements(value) * elementBytes(value.getType());
    if (carriesSamples(value.getType()))
      sampled = true, cost.bytesPerRow += bytes;
    else
      cost.bytes += bytes;
  };
  for (Value operand : op->getOperands()) {
    auto gather = dyn_cast<GatherOp>(op);
    touch(gather && operand == gather.getTable() ? gather.getY() : operand); // a gather reads what it returns, not the table
  }
  for (Value result : op->getResults())
    touch(result);
  (sampled ? cost.flopsPerRow : cost.flops) = flopsOf(op);
  return cost;
}
