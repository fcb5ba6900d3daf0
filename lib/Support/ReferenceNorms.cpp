// Reference semantics of normalizations over the last dimension and of their gradients, as loops.
#include "ReferenceLoops.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "llvm/ADT/TypeSwitch.h"

#include <cmath>

using namespace mlir;
using namespace zorse;
using namespace zorse::reference;

namespace {

std::vector<Tensor> resultsOf(LayerNormOp op, ArrayRef<Tensor> in, const Options &) {
  Tensor y = Tensor::filled(in[0].shape, 0.0);
  std::vector<int64_t> lead(in[0].shape.begin(), in[0].shape.end() - 1);
  Tensor mean = Tensor::filled(lead, 0.0), rstd = Tensor::filled(lead, 0.0);
  const Tensor *weight = op.getWeight() ? &in[1] : nullptr,
               *bias = op.getBias() ? &in.back() : nullptr;
  forEachVector(y, [&](int64_t v, int64_t o, int64_t n) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; ++i)
      sum += in[0].values[o + i];
    mean.values[v] = sum / n;
    for (int64_t i = 0; i < n; ++i)
      squares += std::pow(in[0].values[o + i] - mean.values[v], 2);
    rstd.values[v] = 1.0 / std::sqrt(squares / n + op.getEpsilon().convertToDouble());
    for (int64_t i = 0; i < n; ++i)
      y.values[o + i] = (in[0].values[o + i] - mean.values[v]) * rstd.values[v] *
                            (weight ? weight->values[i] : 1.0) +
                        (bias ? bias->values[i] : 0.0);
  });
  if (op.getStatistics().empty())
    return {y};
  return {y, mean, rstd};
}

std::vector<Tensor> resultsOf(LayerNormGradInputOp op, ArrayRef<Tensor> in,
                              const Options &options) {
  Tensor dx = Tensor::filled(shapeOf(op.getDx().getType(), options), 0.0);
  const Tensor &dy = in[0], &x = in[1], &mean = in[2], &rstd = in[3];
  forEachVector(dx, [&](int64_t v, int64_t o, int64_t n) {
    double sum = 0, product = 0;
    auto scaled = [&](int64_t i) {
      return dy.values[o + i] * (op.getWeight() ? in[4].values[i] : 1.0);
    };
    auto normal = [&](int64_t i) { return (x.values[o + i] - mean.values[v]) * rstd.values[v]; };
    for (int64_t i = 0; i < n; ++i) {
      sum += scaled(i);
      product += scaled(i) * normal(i);
    }
    for (int64_t i = 0; i < n; ++i)
      dx.values[o + i] = rstd.values[v] * (scaled(i) - sum / n - normal(i) * product / n);
  });
  return {dx};
}

std::vector<Tensor> resultsOf(LayerNormGradParamsOp op, ArrayRef<Tensor> in,
                              const Options &options) {
  Tensor dweight = Tensor::filled(shapeOf(op.getDweight().getType(), options), 0.0),
         dbias = dweight;
  forEachVector(in[1], [&](int64_t v, int64_t o, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      dweight.values[i] += in[0].values[o + i] * (in[1].values[o + i] - in[2].values[v]) *
                           in[3].values[v];
      dbias.values[i] += in[0].values[o + i];
    }
  });
  return {dweight, dbias};
}

std::vector<Tensor> resultsOf(RmsNormOp op, ArrayRef<Tensor> in, const Options &) {
  Tensor y = Tensor::filled(in[0].shape, 0.0);
  Tensor rrms =
      Tensor::filled(std::vector<int64_t>(in[0].shape.begin(), in[0].shape.end() - 1), 0.0);
  forEachVector(y, [&](int64_t v, int64_t o, int64_t n) {
    double squares = 0;
    for (int64_t i = 0; i < n; ++i)
      squares += in[0].values[o + i] * in[0].values[o + i];
    rrms.values[v] = 1.0 / std::sqrt(squares / n + op.getEpsilon().convertToDouble());
    for (int64_t i = 0; i < n; ++i)
      y.values[o + i] = in[0].values[o + i] * rrms.values[v] *
                        (op.getWeight() ? in[1].values[i] : 1.0);
  });
  if (!op.getRrms())
    return {y};
  return {y, rrms};
}

std::vector<Tensor> resultsOf(RmsNormGradInputOp op, ArrayRef<Tensor> in, const Options &options) {
  Tensor dx = Tensor::filled(shapeOf(op.getDx().getType(), options), 0.0);
  forEachVector(dx, [&](int64_t v, int64_t o, int64_t n) {
    double product = 0, r = in[2].values[v];
    auto scaled = [&](int64_t i) {
      return in[0].values[o + i] * (op.getWeight() ? in[3].values[i] : 1.0);
    };
    for (int64_t i = 0; i < n; ++i)
      product += scaled(i) * in[1].values[o + i];
    for (int64_t i = 0; i < n; ++i)
      dx.values[o + i] = r * (scaled(i) - in[1].values[o + i] * r * r * product / n);
  });
  return {dx};
}

std::vector<Tensor> resultsOf(RmsNormGradParamsOp op, ArrayRef<Tensor> in, const Options &options) {
  Tensor dweight = Tensor::filled(shapeOf(op.getDweight().getType(), options), 0.0);
  forEachVector(in[1], [&](int64_t v, int64_t o, int64_t n) {
    for (int64_t i = 0; i < n; ++i)
      dweight.values[i] += in[0].values[o + i] * in[1].values[o + i] * in[2].values[v];
  });
  return {dweight};
}

} // namespace

void zorse::reference::evaluateNorm(Operation *op, ArrayRef<Tensor> in, const Options &options,
                                    std::vector<Tensor> &results) {
  TypeSwitch<Operation *>(op)
      .Case<LayerNormOp, LayerNormGradInputOp, LayerNormGradParamsOp, RmsNormOp, RmsNormGradInputOp,
            RmsNormGradParamsOp>([&](auto norm) { results = resultsOf(norm, in, options); });
}
