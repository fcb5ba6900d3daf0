// SoftmaxCrossEntropyLoss and NegativeLogLikelihoodLoss: logits or log-probabilities [N, C, d...],
// labels [N, d...].
#include "Call.h"
#include "Evaluator.h"

#include <algorithm>
#include <cmath>

using namespace zorse::onnx_reference;

namespace {

/// Converts the logits of a position to log-probabilities. The max and the logarithm are subtracted
/// separately, because a large mask value would absorb the logarithm.
struct Normalizer {
  double greatest = 0, logarithm = 0;

  double logProbability(double logit) const { return logit - greatest - logarithm; }
};

/// Normalizer of the classes at a position, which are `inner` elements apart.
Normalizer normalizerOf(const Array &logits, int64_t first, int64_t classes, int64_t inner) {
  double top = logits.reals[first], sum = 0;
  for (int64_t c = 1; c < classes; ++c)
    top = std::max(top, logits.reals[first + c * inner]);
  for (int64_t c = 0; c < classes; ++c)
    sum += std::exp(logits.reals[first + c * inner] - top);
  return {top, std::log(sum)};
}

struct Positions {
  std::vector<double> losses, weights;
};

/// Computes the weighted losses and the weights of all positions; both are 0 if the label is
/// ignored.
bool readPositions(Call &call, const Array &labels, bool softmax, Positions &positions) {
  const Array *logits = call.in(0), *weights = call.in(2);
  const bool ignores = call.has("ignore_index");
  const int64_t ignored = call.integer("ignore_index", 0);
  int64_t classes = 0, inner = 1;
  if (logits && logits->rank() >= 2 && logits->shape[1] > 0) {
    classes = logits->shape[1];
    inner = product(logits->shape, 2);
  }
  if (!call.lossOfLabel && (classes == 0 || product(logits->shape) != labels.size() * classes))
    return call.fail("its labels have another shape");
  for (int64_t i = 0; i < labels.size(); ++i) {
    const int64_t label = labels.integers[i];
    if (ignores && label == ignored) {
      positions.losses.push_back(0);
      positions.weights.push_back(0);
      continue;
    }
    if (label < 0 || (classes > 0 && label >= classes) || (weights && label >= weights->size()))
      return call.fail("label " + std::to_string(label) + " of " + std::to_string(classes));
    double loss = lossOfLabel(label);
    if (!call.lossOfLabel) {
      const int64_t first = i / inner * classes * inner + i % inner;
      const Normalizer normalizer = softmax ? normalizerOf(*logits, first, classes, inner)
                                            : Normalizer();
      loss = -normalizer.logProbability(logits->reals[first + label * inner]);
    }
    const double weight = weights ? weights->reals[label] : 1;
    positions.losses.push_back(loss * weight);
    positions.weights.push_back(weight);
  }
  return true;
}

template <bool softmax> bool onCrossEntropy(Call &call) {
  const Array *labels = call.in(1);
  if (!call.integral({1}) || (!call.lossOfLabel && !call.floats({0})) ||
      (call.in(2) && !call.floats({2})))
    return false;
  if (call.outputs.size() > 1 && call.lossOfLabel)
    return call.fail("its probabilities are read");
  Positions positions;
  if (!readPositions(call, *labels, softmax, positions))
    return false;
  if (call.outputs.size() > 1) {
    Array all = *call.in(0);
    const int64_t classes = all.shape[1], inner = product(all.shape, 2);
    for (int64_t i = 0; i < labels->size(); ++i) {
      const int64_t first = i / inner * classes * inner + i % inner;
      const Normalizer normalizer = normalizerOf(*call.in(0), first, classes, inner);
      for (int64_t c = 0; c < classes; ++c)
        all.reals[first + c * inner] = normalizer.logProbability(all.reals[first + c * inner]);
    }
    call.outputs[1] = std::move(all);
  }
  const std::string reduction = call.string("reduction", "mean");
  Array y = Array::of(call.in(0) ? call.in(0)->type : ElementKind::F64,
                      reduction == "none" ? labels->shape : Shape{});
  if (reduction == "none") {
    y.reals = positions.losses;
    return call.out(std::move(y));
  }
  double sum = 0, weight = 0;
  for (size_t i = 0; i < positions.losses.size(); ++i) {
    sum += positions.losses[i];
    weight += positions.weights[i];
  }
  y.reals[0] = reduction == "sum" ? sum : sum / weight;
  return call.out(std::move(y));
}

} // namespace

double zorse::onnx_reference::lossOfLabel(int64_t label) {
  uint64_t bits = static_cast<uint64_t>(label) * 0x9E3779B97F4A7C15u;
  bits ^= bits >> 29;
  bits *= 0xBF58476D1CE4E5B9u;
  return 0.5 + static_cast<double>(bits >> 40) / 0x1p24;
}

void zorse::onnx_reference::addLosses(OperatorMap &map) {
  map["SoftmaxCrossEntropyLoss"] = onCrossEntropy<true>;
  map["NegativeLogLikelihoodLoss"] = onCrossEntropy<false>;
}
