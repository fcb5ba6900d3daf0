// Differentiation of norms, softmaxes, activations, attention, positions, the loss and dropout.
// Each has a dedicated gradient operation.
#include "VjpBuilder.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::autodiff;

namespace {

/// Statistics are enabled before the backward is built (`withStatistics`). Missing statistics are a
/// bug in the compiler, not a user error.
LogicalResult statisticsMissing(Operation *op) {
  return op->emitOpError("cannot be differentiated without its statistics");
}

LogicalResult refuse(Operation *op, StringRef what) {
  return op->emitOpError("has no gradient with respect to ")
         << what << ", which depends on a trained parameter; freeze that parameter or compute "
         << what << " from inputs and constants alone";
}

LogicalResult softmaxRule(SoftmaxOp op, VjpBuilder &b) {
  b.set(0, b.create<SoftmaxGradOp>(VjpBuilder::asRead(op.getY()), b.gradient()));
  return success();
}

LogicalResult logSoftmaxRule(LogSoftmaxOp op, VjpBuilder &b) {
  b.set(0, b.create<LogSoftmaxGradOp>(VjpBuilder::asRead(op.getY()), b.gradient()));
  return success();
}

LogicalResult layerNormRule(LayerNormOp op, VjpBuilder &b) {
  if (op.getStatistics().empty())
    return statisticsMissing(op);
  Value dy = b.gradient(), mean = op.getMean(), rstd = op.getRstd();
  unsigned weight = 1, bias = op.getWeight() ? 2 : 1;
  bool wantWeight = op.getWeight() && b.needs(weight), wantBias = op.getBias() && b.needs(bias);
  if (wantWeight || wantBias) {
    auto parameters = b.create<LayerNormGradParamsOp>(dy, op.getX(), mean, rstd);
    if (wantWeight)
      b.set(weight, parameters.getDweight());
    if (wantBias)
      b.set(bias, parameters.getDbias());
  }
  if (b.needs(0))
    b.set(0, b.create<LayerNormGradInputOp>(dy, op.getX(), mean, rstd, op.getWeight()));
  return success();
}

LogicalResult rmsNormRule(RmsNormOp op, VjpBuilder &b) {
  if (!op.getRrms())
    return statisticsMissing(op);
  if (op.getWeight() && b.needs(1))
    b.set(1, b.create<RmsNormGradParamsOp>(b.gradient(), op.getX(), op.getRrms()));
  if (b.needs(0))
    b.set(0, b.create<RmsNormGradInputOp>(b.gradient(), op.getX(), op.getRrms(), op.getWeight()));
  return success();
}

LogicalResult geluRule(GeluOp op, VjpBuilder &b) {
  auto grad = b.create<GeluGradOp>(op.getX(), b.gradient());
  grad.setApproximate(op.getApproximate());
  b.set(0, grad);
  return success();
}

LogicalResult siluRule(SiluOp op, VjpBuilder &b) {
  b.set(0, b.create<SiluGradOp>(op.getX(), b.gradient()));
  return success();
}

LogicalResult attentionRule(AttentionOp op, VjpBuilder &b) {
  if (!op.getLse())
    return statisticsMissing(op);
  if (op.getMask() && b.needs(3))
    return refuse(op, "its mask");
  // Use the result as its readers see it: if it is rounded, only the rounded value is saved.
  Value out = op.getOut();
  for (Operation *user : op.getOut().getUsers())
    if (auto round = dyn_cast<RoundOp>(user))
      out = round;
  auto grad = b.create<AttentionGradOp>(b.gradient(), op.getQ(), op.getK(), op.getV(), out,
                                        op.getLse(), op.getMask(), op.getOptions());
  b.set(0, grad.getDq());
  b.set(1, grad.getDk());
  b.set(2, grad.getDv());
  return success();
}

LogicalResult ropeRule(RopeOp op, VjpBuilder &b) {
  if (b.needs(1) || b.needs(2))
    return refuse(op, "its angles");
  b.set(0, b.create<RopeOp>(b.gradient(), op.getCos(), op.getSin(), op.getInterleaved(),
                            !op.getInverse()));
  return success();
}

LogicalResult crossEntropyRule(CrossEntropyOp op, VjpBuilder &b) {
  if (!op.getStatistics())
    return statisticsMissing(op);
  if (op.getWeights() && b.needs(2))
    return refuse(op, "its class weights");
  b.set(0, b.create<CrossEntropyGradOp>(b.gradient(), op.getLogits(), op.getLabels(),
                                        op.getStatistics(), op.getWeights(), op.getIgnoreIndex()));
  return success();
}

// The gradient is rounded once, after all contributions to it have been summed. The gradient of a
// 16-bit operator is narrow already (ReverseMode.cpp), except for contributions of other units.
LogicalResult roundRule(RoundOp op, VjpBuilder &b) {
  b.set(0, op.getStraightThrough() ? b.gradient()
                                   : b.create<RoundOp>(b.gradient(), op.getTo()).getY());
  return success();
}

// Dropout is its own transpose: the same instance drops the same elements.
LogicalResult dropoutRule(DropoutOp op, VjpBuilder &b) {
  IRMapping mapping;
  mapping.map(op.getX(), b.gradient());
  b.set(0, b.builder.clone(*op, mapping)->getResult(0));
  return success();
}

// The value accumulated for the running statistic is not a gradient of the loss: it does not depend
// on dy.
LogicalResult runningStatRule(RunningStatOp op, VjpBuilder &b) {
  if (b.needs(0))
    b.set(0, b.gradient());
  if (!b.needs(1))
    return success();
  Value observed = op.getObserved();
  auto type = cast<RankedTensorType>(observed.getType());
  SmallVector<int64_t> dims;
  for (int64_t dim = 1; dim < type.getRank(); ++dim)
    dims.push_back(dim);
  Value running = b.create<BroadcastOp>(type, op.getRunning(), dims);
  Value step = b.sub(running, b.mul(observed, op.getCorrection().convertToDouble()));
  b.set(1, b.create<ReduceOp>(b.mul(step, op.getMomentum().convertToDouble()), ReduceKind::Sum,
                              ArrayRef<int64_t>{0}));
  return success();
}

} // namespace

void autodiff::registerModelModels(MLIRContext *context) {
  SoftmaxOp::attachInterface<RuleModel<SoftmaxOp, softmaxRule>>(*context);
  LogSoftmaxOp::attachInterface<RuleModel<LogSoftmaxOp, logSoftmaxRule>>(*context);
  LayerNormOp::attachInterface<RuleModel<LayerNormOp, layerNormRule>>(*context);
  RmsNormOp::attachInterface<RuleModel<RmsNormOp, rmsNormRule>>(*context);
  GeluOp::attachInterface<RuleModel<GeluOp, geluRule>>(*context);
  SiluOp::attachInterface<RuleModel<SiluOp, siluRule>>(*context);
  AttentionOp::attachInterface<RuleModel<AttentionOp, attentionRule>>(*context);
  RopeOp::attachInterface<RuleModel<RopeOp, ropeRule>>(*context);
  CrossEntropyOp::attachInterface<RuleModel<CrossEntropyOp, crossEntropyRule>>(*context);
  RoundOp::attachInterface<RuleModel<RoundOp, roundRule>>(*context);
  RunningStatOp::attachInterface<RuleModel<RunningStatOp, runningStatRule>>(*context);
  DetachOp::attachInterface<ZeroModel<DetachOp>>(*context);
  DropoutOp::attachInterface<RuleModel<DropoutOp, dropoutRule>>(*context);
}
