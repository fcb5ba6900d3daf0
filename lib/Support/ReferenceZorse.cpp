// Reference semantics of zorse dialect operations, as loops.
#include "ReferenceLoops.h"

#include "zorse/Dialect/Zorse/SampleOps.h"
#include "zorse/runtime/Expression.h"
#include "zorse/runtime/abi/Random.h"

#include "llvm/ADT/TypeSwitch.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace zorse;
using namespace zorse::reference;

namespace {

class ZorseEvaluator {
public:
  ZorseEvaluator(ArrayRef<Tensor> in, const Options &options, std::vector<Tensor> &results)
      : in(in), options(options), results(results) {}

  LogicalResult run(Operation *op) {
    return TypeSwitch<Operation *, LogicalResult>(op)
        .Case<ReshapeOp, TransposeOp, SliceOp, ConcatOp, BroadcastOp, ReduceOp, MatmulOp,
              BiasedMatmulOp, MatmulGradWeightOp, GatherOp, ScatterAddOp, TakeAlongDimOp,
              TakeAlongDimGradOp, SoftmaxOp, SoftmaxGradOp, LogSoftmaxOp, LogSoftmaxGradOp, GeluOp,
              GeluGradOp, SiluOp, SiluGradOp, CausalMaskOp, RopeOp, CrossEntropyOp,
              CrossEntropyGradOp, KnownOp, SampleNumberOp, DropoutOp, RunningStatOp, RoundOp,
              DetachOp, GradientOfOp>([&](auto known) { return visit(known); })
        .Default([](Operation *) { return success(); });
  }

private:
  std::vector<int64_t> shape(Value value) const { return shapeOf(value.getType(), options); }
  Tensor &zeros(Value result) {
    results.push_back(Tensor::filled(shape(result), 0.0));
    return results.back();
  }

  LogicalResult visit(ReshapeOp op) {
    results.push_back({shape(op.getY()), in[0].values});
    return success();
  }

  LogicalResult visit(TransposeOp op) {
    Tensor &y = zeros(op.getY());
    std::vector<int64_t> strides = stridesOf(in[0].shape);
    int64_t i = 0;
    forEachIndex(y.shape, [&](ArrayRef<int64_t> index) {
      int64_t from = 0;
      for (auto [d, p] : llvm::enumerate(op.getPermutation()))
        from += index[d] * strides[p];
      y.values[i++] = in[0].values[from];
    });
    return success();
  }

  LogicalResult visit(SliceOp op) {
    Tensor &y = zeros(op.getY());
    std::vector<int64_t> strides = stridesOf(in[0].shape);
    int64_t i = 0;
    forEachIndex(y.shape, [&](ArrayRef<int64_t> index) {
      int64_t from = 0;
      for (size_t d = 0; d < index.size(); ++d)
        from += (op.getOffsets()[d] + index[d] * op.getStrides()[d]) * strides[d];
      y.values[i++] = in[0].values[from];
    });
    return success();
  }

  LogicalResult visit(ConcatOp op) {
    Tensor &y = zeros(op.getY());
    std::vector<int64_t> strides = stridesOf(y.shape);
    int64_t offset = 0;
    for (const Tensor &x : in) {
      int64_t i = 0;
      forEachIndex(x.shape, [&](ArrayRef<int64_t> index) {
        y.values[dot(index, strides) + offset * strides[op.getDim()]] = x.values[i++];
      });
      offset += x.shape[op.getDim()];
    }
    return success();
  }

  LogicalResult visit(BroadcastOp op) {
    Tensor &y = zeros(op.getY());
    std::vector<int64_t> strides = stridesOf(in[0].shape);
    int64_t i = 0;
    forEachIndex(y.shape, [&](ArrayRef<int64_t> index) {
      int64_t from = 0;
      for (auto [d, dim] : llvm::enumerate(op.getDims()))
        from += index[dim] * strides[d];
      y.values[i++] = in[0].values[from];
    });
    return success();
  }

  LogicalResult visit(ReduceOp op) {
    Tensor &y = zeros(op.getY());
    double inf = std::numeric_limits<double>::infinity();
    double start = op.getKind() == ReduceKind::Sum    ? 0.0
                   : op.getKind() == ReduceKind::Prod ? 1.0
                   : op.getKind() == ReduceKind::Max  ? -inf
                                                      : inf;
    y.values.assign(y.size(), start);
    std::vector<int64_t> strides = stridesOf(y.shape);
    int64_t i = 0;
    forEachIndex(in[0].shape, [&](ArrayRef<int64_t> index) {
      int64_t to = 0, kept = 0;
      for (size_t d = 0; d < index.size(); ++d)
        if (!llvm::is_contained(op.getDims(), int64_t(d)))
          to += index[d] * strides[kept++];
      double v = in[0].values[i++], &sum = y.values[to];
      switch (op.getKind()) {
      case ReduceKind::Sum:
        sum += v;
        break;
      case ReduceKind::Prod:
        sum *= v;
        break;
      case ReduceKind::Max:
        sum = std::max(sum, v);
        break;
      case ReduceKind::Min:
        sum = std::min(sum, v);
        break;
      }
    });
    return success();
  }

  LogicalResult visit(MatmulOp op) {
    return multiply(zeros(op.getY()), op.getTransposeA(), op.getTransposeB());
  }
  LogicalResult visit(BiasedMatmulOp op) {
    Tensor &y = zeros(op.getY());
    for (auto [i, value] : llvm::enumerate(y.values))
      value = in[2].values[i % in[2].size()];
    return multiply(y, /*transposeA=*/false, op.getTransposeB());
  }

  /// Adds the product of the first two operands to y.
  LogicalResult multiply(Tensor &y, bool transposeA, bool transposeB) {
    int rank = y.shape.size(), aRank = in[0].shape.size();
    int64_t m = y.shape[rank - 2], n = y.shape[rank - 1], batch = product(y.shape, 0, rank - 2);
    int64_t k = transposeA ? in[0].shape[aRank - 2] : in[0].shape[aRank - 1];
    int64_t bStep = in[1].shape.size() == 2 && rank > 2 ? 0 : k * n;
    for (int64_t s = 0; s < batch; ++s)
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (int64_t l = 0; l < k; ++l)
            sum += in[0].values[s * m * k + (transposeA ? l * m + i : i * k + l)] *
                   in[1].values[s * bStep + (transposeB ? j * k + l : l * n + j)];
          y.values[(s * m + i) * n + j] += sum;
        }
    return success();
  }

  LogicalResult visit(MatmulGradWeightOp op) {
    Tensor &y = zeros(op.getY());
    int64_t k = y.shape[0], n = y.shape[1], lead = in[0].size() / std::max<int64_t>(1, k);
    for (int64_t s = 0; s < lead; ++s)
      for (int64_t i = 0; i < k; ++i)
        for (int64_t j = 0; j < n; ++j)
          y.values[i * n + j] += in[0].values[s * k + i] * in[1].values[s * n + j];
    return success();
  }

  /// Returns an index after a range check. Reports an error at the operation if it is out of range.
  FailureOr<int64_t> checked(Operation *op, double id, int64_t bound) {
    if (id < 0 || id >= bound)
      return op->emitOpError() << "index " << int64_t(id) << " is outside [0, " << bound << ")";
    return int64_t(id);
  }

  LogicalResult visit(GatherOp op) {
    Tensor &y = zeros(op.getY());
    int64_t width = product(in[0].shape, 1);
    for (int64_t i = 0; i < in[1].size(); ++i) {
      FailureOr<int64_t> id = checked(op, in[1].values[i], in[0].shape[0]);
      if (failed(id))
        return failure();
      for (int64_t c = 0; c < width; ++c)
        y.values[i * width + c] = in[0].values[*id * width + c];
    }
    return success();
  }

  LogicalResult visit(ScatterAddOp op) {
    Tensor &y = zeros(op.getY());
    int64_t width = product(y.shape, 1),
            padding = op.getPadding() ? static_cast<int64_t>(*op.getPadding()) : -1;
    for (int64_t i = 0; i < in[0].size(); ++i) {
      FailureOr<int64_t> id = checked(op, in[0].values[i], y.shape[0]);
      if (failed(id))
        return failure();
      for (int64_t c = 0; c < width && *id != padding; ++c)
        y.values[*id * width + c] += in[1].values[i * width + c];
    }
    return success();
  }

  LogicalResult visit(TakeAlongDimOp op) {
    Tensor &y = zeros(op.getY());
    int64_t width = in[0].shape.back();
    for (int64_t i = 0; i < y.size(); ++i) {
      FailureOr<int64_t> id = checked(op, in[1].values[i], width);
      if (failed(id))
        return failure();
      y.values[i] = in[0].values[i * width + *id];
    }
    return success();
  }

  LogicalResult visit(TakeAlongDimGradOp op) {
    Tensor &dx = zeros(op.getDx());
    int64_t width = dx.shape.back();
    for (int64_t i = 0; i < in[0].size(); ++i) {
      FailureOr<int64_t> id = checked(op, in[1].values[i], width);
      if (failed(id))
        return failure();
      dx.values[i * width + *id] = in[0].values[i];
    }
    return success();
  }

  /// Stored separately: if a whole row is masked by -3.4e38, adding the logarithm of the sum to the
  /// maximum would lose it.
  struct Exponentials {
    double greatest, sum;
  };
  static Exponentials exponentials(const double *x, int64_t n) {
    Exponentials found{*std::max_element(x, x + n), 0};
    for (int64_t i = 0; i < n; ++i)
      found.sum += std::exp(x[i] - found.greatest);
    return found;
  }

  LogicalResult visit(SoftmaxOp op) {
    Tensor &y = zeros(op.getY());
    forEachVector(y, [&](int64_t, int64_t o, int64_t n) {
      const Exponentials e = exponentials(&in[0].values[o], n);
      for (int64_t i = o; i < o + n; ++i)
        y.values[i] = std::exp(in[0].values[i] - e.greatest) / e.sum;
    });
    return success();
  }
  LogicalResult visit(LogSoftmaxOp op) {
    Tensor &y = zeros(op.getY());
    forEachVector(y, [&](int64_t, int64_t o, int64_t n) {
      const Exponentials e = exponentials(&in[0].values[o], n);
      for (int64_t i = o; i < o + n; ++i)
        y.values[i] = in[0].values[i] - e.greatest - std::log(e.sum);
    });
    return success();
  }
  LogicalResult visit(SoftmaxGradOp op) {
    Tensor &dx = zeros(op.getDx());
    forEachVector(dx, [&](int64_t, int64_t o, int64_t n) {
      double sum = 0;
      for (int64_t i = o; i < o + n; ++i)
        sum += in[0].values[i] * in[1].values[i];
      for (int64_t i = o; i < o + n; ++i)
        dx.values[i] = in[0].values[i] * (in[1].values[i] - sum);
    });
    return success();
  }
  LogicalResult visit(LogSoftmaxGradOp op) {
    Tensor &dx = zeros(op.getDx());
    forEachVector(dx, [&](int64_t, int64_t o, int64_t n) {
      double sum = 0;
      for (int64_t i = o; i < o + n; ++i)
        sum += in[1].values[i];
      for (int64_t i = o; i < o + n; ++i)
        dx.values[i] = in[1].values[i] - std::exp(in[0].values[i]) * sum;
    });
    return success();
  }

  template <typename F> LogicalResult elementwise(Value result, F f) {
    Tensor &y = zeros(result);
    for (int64_t i = 0; i < y.size(); ++i)
      y.values[i] = f(in[0].values[i], in.size() > 1 ? in[1].values[i] : 0.0);
    return success();
  }
  static constexpr double kTanhScale = 0.797884560802865355879892119869; // sqrt(2 / pi)
  /// (1 + tanh(u)) / 2 as a sigmoid: the sum would cancel if x is far below 0.
  static double tanhGate(double x) {
    return 1 / (1 + std::exp(-2 * kTanhScale * (x + 0.044715 * x * x * x)));
  }
  LogicalResult visit(GeluOp op) {
    bool approximate = op.getApproximate();
    return elementwise(op.getY(), [&](double x, double) {
      return approximate ? x * tanhGate(x) : 0.5 * x * std::erfc(-x * std::sqrt(0.5));
    });
  }
  LogicalResult visit(GeluGradOp op) {
    bool approximate = op.getApproximate();
    return elementwise(op.getDx(), [&](double x, double dy) {
      if (approximate) {
        const double gate = tanhGate(x);
        return dy * (gate + x * gate * (1 - gate) * 2 * kTanhScale * (1 + 3 * 0.044715 * x * x));
      }
      return dy *
             (0.5 * std::erfc(-x * std::sqrt(0.5)) + x * std::exp(-0.5 * x * x) * kTanhScale * 0.5);
    });
  }
  LogicalResult visit(SiluOp op) {
    return elementwise(op.getY(), [](double x, double) { return x / (1 + std::exp(-x)); });
  }
  LogicalResult visit(SiluGradOp op) {
    return elementwise(op.getDx(), [](double x, double dy) {
      double s = 1 / (1 + std::exp(-x));
      return dy * s * (1 + x * (1 - s));
    });
  }

  LogicalResult visit(CausalMaskOp op) {
    Tensor &y = zeros(op.getY());
    bool boolean = getElementTypeOrSelf(op.getY().getType()).isInteger(1);
    int64_t queries = y.shape[0], keys = y.shape[1], last = keys - queries;
    for (int64_t i = 0; i < queries; ++i)
      for (int64_t j = 0; j < keys; ++j) {
        bool visible = j <= i + last &&
                       (!op.getWindow() || j > i + last - static_cast<int64_t>(*op.getWindow()));
        y.values[i * keys + j] = boolean ? visible : visible ? 0.0 : op.getHidden();
      }
    return success();
  }

  LogicalResult visit(RopeOp op) {
    Tensor &y = zeros(op.getY());
    int64_t seq = y.shape[1], heads = y.shape[2], size = y.shape[3], half = size / 2;
    for (int64_t r = 0; r < y.shape[0]; ++r)
      for (int64_t s = 0; s < seq; ++s)
        for (int64_t h = 0; h < heads; ++h)
          for (int64_t p = 0; p < half; ++p) {
            int64_t base = ((r * seq + s) * heads + h) * size,
                    angle = ((in[1].shape.size() == 3 ? r * seq : 0) + s) * half + p;
            int64_t first = base + (op.getInterleaved() ? 2 * p : p),
                    second = base + (op.getInterleaved() ? 2 * p + 1 : p + half);
            double a = in[0].values[first], b = in[0].values[second], c = in[1].values[angle],
                   d = in[2].values[angle] * (op.getInverse() ? -1 : 1);
            y.values[first] = a * c - b * d;
            y.values[second] = a * d + b * c;
          }
    return success();
  }

  LogicalResult visit(CrossEntropyOp op) {
    Tensor loss = Tensor::filled(in[1].shape, 0.0);
    std::vector<int64_t> pairs(in[1].shape);
    pairs.push_back(2);
    Tensor statistics = Tensor::filled(pairs, 0.0);
    int64_t width = in[0].shape.back();
    for (int64_t i = 0; i < loss.size(); ++i) {
      const Exponentials e = exponentials(&in[0].values[i * width], width);
      statistics.values[2 * i] = e.greatest, statistics.values[2 * i + 1] = e.sum;
      if (op.getIgnoreIndex() && in[1].values[i] == double(int64_t(*op.getIgnoreIndex())))
        continue;
      FailureOr<int64_t> id = checked(op, in[1].values[i], width);
      if (failed(id))
        return failure();
      loss.values[i] = (e.greatest - in[0].values[i * width + *id] + std::log(e.sum)) *
                       (op.getWeights() ? in[2].values[*id] : 1.0);
    }
    results = {loss};
    if (op.getStatistics())
      results = {loss, statistics};
    return success();
  }
  LogicalResult visit(CrossEntropyGradOp op) {
    Tensor &d = zeros(op.getDlogits());
    int64_t width = d.shape.back();
    for (int64_t i = 0; i < in[0].size(); ++i) {
      if (op.getIgnoreIndex() && in[2].values[i] == double(int64_t(*op.getIgnoreIndex())))
        continue;
      FailureOr<int64_t> id = checked(op, in[2].values[i], width);
      if (failed(id))
        return failure();
      double scale = in[0].values[i] * (op.getWeights() ? in[4].values[*id] : 1.0);
      for (int64_t v = 0; v < width; ++v)
        d.values[i * width + v] =
            scale *
            (std::exp(in[1].values[i * width + v] - in[3].values[2 * i]) / in[3].values[2 * i + 1] -
             (v == *id));
    }
    return success();
  }

  LogicalResult visit(RoundOp op) {
    results.push_back(in[0]);
    for (double &value : results.back().values)
      value = rounded(value, cast<FloatType>(op.getTo()).getFloatSemantics());
    return success();
  }

  LogicalResult visit(RunningStatOp) {
    results.push_back(in[0]);
    for (int64_t i = 0; !options.training && i < in[0].size(); ++i)
      results.back().values[i] = in[1].values[i % in[1].size()];
    return success();
  }

  LogicalResult visit(DetachOp) {
    results.push_back(in[0]);
    return success();
  }

  LogicalResult visit(GradientOfOp) {
    results.push_back(in[1]);
    return success();
  }

  LogicalResult visit(KnownOp op) {
    auto expression = Expression::parse(op.getExpression());
    if (expression.failed())
      return op.emitOpError("cannot be evaluated: ") << expression.message();
    if (llvm::any_of(expression->counts(),
                     [&](uint32_t count) { return count >= options.counts.size(); }))
      return op.emitOpError("cannot be evaluated: it reads a missing count");
    const int64_t samples = options.samples ? options.samples : options.rows;
    results.push_back({{}, {expression->evaluate(static_cast<double>(samples), options.counts)}});
    return success();
  }

  LogicalResult visit(SampleNumberOp op) {
    Tensor &y = zeros(op.getY());
    for (int64_t i = 0; i < y.size(); ++i)
      y.values[i] = static_cast<double>(options.sampleBase + i);
    return success();
  }

  LogicalResult visit(DropoutOp op) {
    results.push_back(in[0]);
    double probability = op.getProbability().convertToDouble();
    if (!options.training || probability == 0.0)
      return success();
    Tensor &y = results.back();
    bool sampled = carriesSamples(op.getY().getType());
    int64_t perRow = sampled ? product(y.shape, 1) : y.size();
    auto elementOf = [&](int64_t inSample) { // in the undivided sample
      std::optional<ArrayRef<int64_t>> element = op.getElement();
      if (!element)
        return inSample;
      int64_t number = element->front();
      for (size_t d = y.shape.size(); d-- > (sampled ? 1u : 0u); inSample /= y.shape[d])
        number += inSample % y.shape[d] * (*element)[d + 1];
      return number;
    };
    for (int64_t i = 0; i < y.size(); ++i) {
      uint64_t stream = abi::randomStream(options.seed, options.step,
                                          options.rngIdBase + op.getRngId(),
                                          sampled ? options.sampleBase + i / perRow : 0);
      bool keep = abi::randomBits(stream, elementOf(i % perRow)) >= abi::dropThreshold(probability);
      y.values[i] = keep ? y.values[i] / (1 - probability) : 0.0;
    }
    return success();
  }

  ArrayRef<Tensor> in;
  const Options &options;
  std::vector<Tensor> &results;
};

} // namespace

LogicalResult zorse::reference::evaluateZorse(Operation *op, ArrayRef<Tensor> in,
                                              const Options &options,
                                              std::vector<Tensor> &results) {
  return ZorseEvaluator(in, options, results).run(op);
}
