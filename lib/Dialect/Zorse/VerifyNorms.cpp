#include "VerifyCommon.h"

#include <cmath>

using namespace mlir;
using namespace zorse;

static LogicalResult verifyLastDimension(Operation *op, Value x, StringRef name) {
  if (!hasStaticLastDimension(tensorTypeOf(x)))
    return op->emitOpError("(C1) expects ")
           << name << " of rank >= 1 whose last dimension is not the sample axis, got "
           << x.getType();
  return success();
}

LogicalResult SoftmaxOp::verify() { return verifyLastDimension(*this, getX(), "x"); }
LogicalResult LogSoftmaxOp::verify() { return verifyLastDimension(*this, getX(), "x"); }
LogicalResult SoftmaxGradOp::verify() { return verifyLastDimension(*this, getY(), "y"); }
LogicalResult LogSoftmaxGradOp::verify() { return verifyLastDimension(*this, getY(), "y"); }

/// Checks that `channels` (a weight, a bias or their gradient; may be null) matches the last
/// dimension of x.
static LogicalResult verifyChannels(Operation *op, const char *constraint, StringRef name,
                                    Value channels, Value x) {
  RankedTensorType expected = channelTypeOf(tensorTypeOf(x));
  if (channels && channels.getType() != expected)
    return op->emitOpError() << "(" << constraint << ") expects " << name << " " << expected
                             << " to match the last dimension of x, got " << channels.getType();
  return success();
}

static LogicalResult verifyStatistic(Operation *op, const char *constraint, StringRef name,
                                     Value statistic, Value x) {
  RankedTensorType expected = statisticType(tensorTypeOf(x));
  if (statistic && statistic.getType() != expected)
    return op->emitOpError() << "(" << constraint << ") expects " << name << " " << expected
                             << ", got " << statistic.getType();
  return success();
}

static LogicalResult verifyEpsilon(Operation *op, double epsilon) {
  if (!(epsilon > 0.0) || !std::isfinite(epsilon))
    return op->emitOpError("(C3) expects a positive, finite epsilon, got ") << epsilon;
  return success();
}

static LogicalResult verifySameType(Operation *op, const char *constraint, StringRef name,
                                    Value value, Value x) {
  if (value.getType() != x.getType())
    return op->emitOpError() << "(" << constraint << ") expects " << name << " " << x.getType()
                             << ", got " << value.getType();
  return success();
}

LogicalResult LayerNormOp::verify() {
  if (failed(verifyLastDimension(*this, getX(), "x")) ||
      failed(verifyChannels(*this, "C2", "weight", getWeight(), getX())) ||
      failed(verifyChannels(*this, "C2", "bias", getBias(), getX())) ||
      failed(verifyEpsilon(*this, getEpsilon().convertToDouble())) ||
      failed(verifySameType(*this, "C4", "y", getY(), getX())))
    return failure();
  if (size_t count = getStatistics().size(); count != 0 && count != 2)
    return emitOpError("(C5) expects no statistics or mean and rstd, got ") << count;
  if (failed(verifyStatistic(*this, "C5", "mean", getMean(), getX())) ||
      failed(verifyStatistic(*this, "C5", "rstd", getRstd(), getX())))
    return failure();
  return success();
}

LogicalResult LayerNormGradInputOp::verify() {
  return failure(failed(verifyLastDimension(*this, getX(), "x")) ||
                 failed(verifySameType(*this, "C1", "dy", getDy(), getX())) ||
                 failed(verifySameType(*this, "C1", "dx", getDx(), getX())) ||
                 failed(verifyChannels(*this, "C2", "weight", getWeight(), getX())) ||
                 failed(verifyStatistic(*this, "C3", "mean", getMean(), getX())) ||
                 failed(verifyStatistic(*this, "C3", "rstd", getRstd(), getX())));
}

LogicalResult LayerNormGradParamsOp::verify() {
  return failure(failed(verifyLastDimension(*this, getX(), "x")) ||
                 failed(verifySameType(*this, "C1", "dy", getDy(), getX())) ||
                 failed(verifyStatistic(*this, "C2", "mean", getMean(), getX())) ||
                 failed(verifyStatistic(*this, "C2", "rstd", getRstd(), getX())) ||
                 failed(verifyChannels(*this, "C3", "dweight", getDweight(), getX())) ||
                 failed(verifyChannels(*this, "C3", "dbias", getDbias(), getX())));
}

LogicalResult RmsNormOp::verify() {
  return failure(failed(verifyLastDimension(*this, getX(), "x")) ||
                 failed(verifyChannels(*this, "C2", "weight", getWeight(), getX())) ||
                 failed(verifyEpsilon(*this, getEpsilon().convertToDouble())) ||
                 failed(verifySameType(*this, "C4", "y", getY(), getX())) ||
                 failed(verifyStatistic(*this, "C5", "rrms", getRrms(), getX())));
}

LogicalResult RmsNormGradInputOp::verify() {
  return failure(failed(verifyLastDimension(*this, getX(), "x")) ||
                 failed(verifySameType(*this, "C1", "dy", getDy(), getX())) ||
                 failed(verifySameType(*this, "C1", "dx", getDx(), getX())) ||
                 failed(verifyChannels(*this, "C2", "weight", getWeight(), getX())) ||
                 failed(verifyStatistic(*this, "C3", "rrms", getRrms(), getX())));
}

LogicalResult RmsNormGradParamsOp::verify() {
  return failure(failed(verifyLastDimension(*this, getX(), "x")) ||
                 failed(verifySameType(*this, "C1", "dy", getDy(), getX())) ||
                 failed(verifyStatistic(*this, "C2", "rrms", getRrms(), getX())) ||
                 failed(verifyChannels(*this, "C3", "dweight", getDweight(), getX())));
}
