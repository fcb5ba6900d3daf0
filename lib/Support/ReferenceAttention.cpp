// Reference attention and its gradient, with all probabilities in memory.
#include "ReferenceLoops.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/runtime/abi/Random.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace zorse;
using namespace zorse::reference;

namespace {

struct Attention {
  const Tensor &q, &k, &v;
  const Tensor *mask;
  bool booleanMask;
  AttentionOptions attention;
  const Options &options;
  bool sampled;

  int64_t rows() const { return q.shape[0]; }
  int64_t queries() const { return q.shape[1]; }
  int64_t heads() const { return q.shape[2]; }
  int64_t size() const { return q.shape[3]; }
  int64_t keys() const { return k.shape[1]; }
  int64_t keyHeads() const { return k.shape[2]; }
  int64_t valueSize() const { return v.shape[3]; }
  int64_t keyHead(int64_t h) const { return h / (heads() / keyHeads()); }
  int64_t atQ(int64_t r, int64_t i, int64_t h) const {
    return ((r * queries() + i) * heads() + h) * size();
  }
  int64_t atK(int64_t r, int64_t j, int64_t h) const {
    return ((r * keys() + j) * keyHeads() + keyHead(h)) * size();
  }
  int64_t atV(int64_t r, int64_t j, int64_t h) const {
    return ((r * keys() + j) * keyHeads() + keyHead(h)) * valueSize();
  }
  int64_t atOut(int64_t r, int64_t i, int64_t h) const {
    return ((r * queries() + i) * heads() + h) * valueSize();
  }

  /// Scores of one query before the softmax, and the derivative of the softcap.
  std::vector<double> scores(int64_t r, int64_t h, int64_t i,
                             std::vector<double> *slope = nullptr) const {
    double hidden = -std::numeric_limits<double>::infinity();
    std::vector<double> s(keys(), hidden);
    if (slope)
      slope->assign(keys(), 1.0);
    int64_t last = i + keys() - queries();
    for (int64_t j = 0; j < keys(); ++j) {
      if (attention.causal && (j > last || (attention.window && j <= last - *attention.window)))
        continue;
      double m = 0.0;
      if (mask) {
        int64_t index =
            (((mask->shape[0] == 1 ? 0 : r) * mask->shape[1] + (mask->shape[1] == 1 ? 0 : h)) *
                 queries() +
             i) *
                keys() +
            j;
        m = mask->values[index];
        if (booleanMask) {
          if (m == 0.0)
            continue;
          m = 0.0;
        }
      }
      double sum = 0;
      for (int64_t c = 0; c < size(); ++c)
        sum += q.values[atQ(r, i, h) + c] * k.values[atK(r, j, h) + c];
      sum *= attention.scale;
      if (attention.softcap) {
        double t = std::tanh(sum / *attention.softcap);
        if (slope)
          (*slope)[j] = 1 - t * t;
        sum = *attention.softcap * t;
      }
      s[j] = sum + m;
    }
    return s;
  }

  /// Maximum score and the sum of exponentials relative to it, stored separately: adding the
  /// logarithm of the sum to a large mask value would lose it.
  struct Statistics {
    double greatest, sum;
    double probability(double score) const { return std::exp(score - greatest) / sum; }
  };
  static Statistics statisticsOf(const std::vector<double> &s) {
    Statistics found{*std::max_element(s.begin(), s.end()), 0};
    if (!std::isinf(found.greatest))
      for (double v : s)
        found.sum += std::exp(v - found.greatest);
    return found;
  }

  int64_t numbersOfQuery() const { return mask && !booleanMask ? 2 : 1; }
  int64_t atStatistics(int64_t r, int64_t h, int64_t i) const {
    return ((r * heads() + h) * queries() + i) * numbersOfQuery();
  }
  std::vector<int64_t> statisticsShape() const {
    std::vector<int64_t> shape{rows(), heads(), queries()};
    if (numbersOfQuery() == 2)
      shape.push_back(2);
    return shape;
  }
  void store(const Statistics &found, double *to) const {
    if (numbersOfQuery() == 2)
      to[0] = found.greatest, to[1] = found.sum;
    else
      to[0] = found.sum == 0 ? found.greatest : found.greatest + std::log(found.sum);
  }
  Statistics read(const double *from) const {
    return numbersOfQuery() == 2 ? Statistics{from[0], from[1]} : Statistics{from[0], 1};
  }

  /// Dropout factor of a probability.
  double keep(int64_t r, int64_t h, int64_t i, int64_t j) const {
    if (attention.dropout == 0.0 || !options.training)
      return 1.0;
    uint64_t stream = abi::randomStream(options.seed, options.step,
                                        options.rngIdBase + attention.rngId,
                                        sampled ? options.sampleBase + r : 0);
    bool kept = abi::randomBits(stream, ((attention.firstHead + h) * queries() + i) * keys() + j) >=
                abi::dropThreshold(attention.dropout);
    return kept ? 1 / (1 - attention.dropout) : 0.0;
  }
};

template <typename OpT>
Attention attentionOf(OpT op, const Tensor &q, const Tensor &k, const Tensor &v, const Tensor *mask,
                      const Options &options) {
  bool boolean = op.getMask() && getElementTypeOrSelf(op.getMask().getType()).isInteger(1);
  return {q, k, v, mask, boolean, op.getOptions(), options, carriesSamples(op.getQ().getType())};
}

} // namespace

LogicalResult zorse::reference::evaluateAttention(Operation *op, ArrayRef<Tensor> in,
                                                  const Options &options,
                                                  std::vector<Tensor> &results) {
  if (auto forward = dyn_cast<AttentionOp>(op)) {
    Attention a =
        attentionOf(forward, in[0], in[1], in[2], forward.getMask() ? &in[3] : nullptr, options);
    Tensor out = Tensor::filled({a.rows(), a.queries(), a.heads(), a.valueSize()}, 0.0),
           lse = Tensor::filled(a.statisticsShape(), 0.0);
    forEachIndex({a.rows(), a.heads(), a.queries()}, [&](ArrayRef<int64_t> index) {
      int64_t r = index[0], h = index[1], i = index[2];
      std::vector<double> s = a.scores(r, h, i);
      const Attention::Statistics found = Attention::statisticsOf(s);
      a.store(found, &lse.values[a.atStatistics(r, h, i)]);
      if (std::isinf(found.greatest))
        return;
      for (int64_t j = 0; j < a.keys(); ++j)
        for (int64_t c = 0; c < a.valueSize(); ++c)
          out.values[a.atOut(r, i, h) + c] += found.probability(s[j]) * a.keep(r, h, i, j) *
                                              a.v.values[a.atV(r, j, h) + c];
    });
    results = {out};
    if (forward.getLse())
      results = {out, lse};
    return success();
  }
  auto backward = dyn_cast<AttentionGradOp>(op);
  if (!backward)
    return success();
  const Tensor &dout = in[0], &out = in[4], &lse = in[5];
  Attention a =
      attentionOf(backward, in[1], in[2], in[3], backward.getMask() ? &in[6] : nullptr, options);
  Tensor dq = Tensor::filled(a.q.shape, 0.0), dk = Tensor::filled(a.k.shape, 0.0),
         dv = Tensor::filled(a.v.shape, 0.0);
  forEachIndex({a.rows(), a.heads(), a.queries()}, [&](ArrayRef<int64_t> index) {
    int64_t r = index[0], h = index[1], i = index[2];
    std::vector<double> slope, s = a.scores(r, h, i, &slope);
    const Attention::Statistics found = a.read(&lse.values[a.atStatistics(r, h, i)]);
    double delta = 0;
    if (std::isinf(found.greatest))
      return;
    for (int64_t c = 0; c < a.valueSize(); ++c)
      delta += dout.values[a.atOut(r, i, h) + c] * out.values[a.atOut(r, i, h) + c];
    for (int64_t j = 0; j < a.keys(); ++j) {
      double p = found.probability(s[j]), kept = a.keep(r, h, i, j), dp = 0;
      for (int64_t c = 0; c < a.valueSize(); ++c) {
        dp += dout.values[a.atOut(r, i, h) + c] * a.v.values[a.atV(r, j, h) + c];
        dv.values[a.atV(r, j, h) + c] += p * kept * dout.values[a.atOut(r, i, h) + c];
      }
      double ds = p * (dp * kept - delta) * slope[j] * a.attention.scale;
      for (int64_t c = 0; c < a.size(); ++c) {
        dq.values[a.atQ(r, i, h) + c] += ds * a.k.values[a.atK(r, j, h) + c];
        dk.values[a.atK(r, j, h) + c] += ds * a.q.values[a.atQ(r, i, h) + c];
      }
    }
  });
  results = {dq, dk, dv};
  return success();
}
