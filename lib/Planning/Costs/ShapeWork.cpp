#include "ShapeWork.h"

#include "zorse/Summary/Summary.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::planning;

namespace {

class Work {
public:
  Work(const ModelShape &shape, bool tensorAttention)
      : shape(shape), tensorAttention(tensorAttention), tokens(shape.sequence), size(static_cast<int64_t>(elementBytes(shape.computeType))) {}

  bundle::TargetWork build(const std::string &arch) {
    bundle::TargetWork work;
    work.set_arch(arch);
    embedding(*work.add_classes());
    attention(*work.add_classes());
    mlp(*work.add_classes());
    head(*work.add_classes());
    return work;
  }

private:
  using OfClass = bundle::TargetWork::OfClass;

  void product(bundle::TaskWork &task, const bundle::Extent &m, const bundle::Extent &n, const bundle::Extent &k, int64_t batchPerRow = 0) {
    auto *product = task.add_products();
    *product->mutable_m() = m;
    *product->mutable_n() = n;
    *product->mutable_k() = k;
    *product->mutable_batch() = batchPerRow ? perRow(batchPerRow) : fixed(1);
    product->set_operands(shape.computeType);
    product->set_result(shape.computeType);
    product->set_count(1);
    task.set_launches(task.launches() + 1);
  }

  static bundle::Extent fixed(int64_t amount) {
    bundle::Extent extent;
    extent.set_fixed(amount);
    return extent;
  }
  static bundle::Extent perRow(int64_t amount) {
    bundle::Extent extent;
    extent.set_per_row(amount);
    return extent;
  }

  /// Kernels that move bytes.
  void kernels(bundle::TaskWork &task, uint32_t launches, int64_t bytes) {
    task.set_launches(task.launches() + launches);
    task.mutable_bytes()->set_per_row(task.bytes().per_row() + bytes);
  }

  /// tokens x in times in x out, and what its backward multiplies.
  void weights(OfClass &work, int64_t in, int64_t out) {
    product(*work.mutable_forward(), perRow(tokens), fixed(out), fixed(in));
    product(*work.mutable_input_gradients(), perRow(tokens), fixed(in), fixed(out));
    product(*work.mutable_weight_gradients(), fixed(in), fixed(out), perRow(tokens));
  }

  /// The whole backward: both parts, but for `again`, which W makes once more from what is saved.
  void join(OfClass &work, uint32_t againLaunches = 0, int64_t againBytes = 0) {
    bundle::TaskWork &whole = *work.mutable_backward();
    whole = work.input_gradients();
    const bundle::TaskWork &weights = work.weight_gradients();
    whole.mutable_products()->MergeFrom(weights.products());
    kernels(whole, weights.launches(), weights.bytes().per_row());
    kernels(*work.mutable_weight_gradients(), againLaunches, againBytes);
  }

  void embedding(OfClass &work) {
    kernels(*work.mutable_forward(), 1, 2 * state());
    kernels(*work.mutable_backward(), 1, 4 * state());
  }

  void attention(OfClass &work) {
    const int64_t kvWidth = shape.hidden / shape.heads * shape.kvHeads;
    for (int64_t width : {shape.hidden, kvWidth, kvWidth, shape.hidden}) // q, k, v, and the result's
      weights(work, shape.hidden, width);
    kernels(*work.mutable_forward(), 4, 8 * state());          // norm, two rotations, the residual
    kernels(*work.mutable_input_gradients(), 5, 16 * state()); // the same, and the norm's parameters
    const double pairs = double(tokens) * double(tokens) * double(shape.hidden);
    // Beyond all devices' memory, but still a number: makeSummary's limits allow 2^72 scores.
    const double all = std::min(double(tokens) * double(tokens) * double(shape.heads), 1e12);
    const int64_t scores = static_cast<int64_t>(all), width = shape.hidden / shape.heads;
    if (tensorAttention) {
      work.mutable_forward()->set_attention_flops_per_row(2 * pairs);
      work.mutable_input_gradients()->set_attention_flops_per_row(5 * pairs);
      kernels(*work.mutable_forward(), 1, 0);
      kernels(*work.mutable_input_gradients(), 3, 2 * state()); // row sums, queries, keys and values
    } else {
      bundle::TaskWork &forward = *work.mutable_forward(), &backward = *work.mutable_input_gradients();
      auto scored = [&](bundle::TaskWork &task) { product(task, fixed(tokens), fixed(tokens), fixed(width), shape.heads); };
      auto weighted = [&](bundle::TaskWork &task) { product(task, fixed(tokens), fixed(width), fixed(tokens), shape.heads); };
      scored(forward);
      weighted(forward);
      kernels(forward, 1, scores * (4 + size)); // scores in f32, probabilities
      for (int twice = 0; twice < 2; ++twice)   // scores again and gradients of probabilities
        scored(backward);
      for (int thrice = 0; thrice < 3; ++thrice) // of queries, keys and values
        weighted(backward);
      kernels(backward, 2, scores * (16 + 3 * size));
    }
    join(work);
  }

  void mlp(OfClass &work) {
    for (auto [in, out] : {std::pair(shape.hidden, shape.ffn), std::pair(shape.hidden, shape.ffn), std::pair(shape.ffn, shape.hidden)})
      weights(work, in, out);
    const int64_t bytes = 6 * state() + 6 * tokens * shape.ffn * size;
    kernels(*work.mutable_forward(), 3, bytes);             // norm, the gate, the residual
    kernels(*work.mutable_input_gradients(), 4, 2 * bytes); // the same, and the norm's parameters
    join(work);
  }

  void head(OfClass &work) {
    weights(work, shape.hidden, shape.vocabulary);
    const int64_t logits = tokens * shape.vocabulary * size;
    kernels(*work.mutable_forward(), 2, 6 * logits);          // norm, the loss
    kernels(*work.mutable_input_gradients(), 3, 12 * logits); // the same, and the norm's parameters
    join(work, 1, 2 * logits);                                // the gradient of the logits
  }

  int64_t state() const { return tokens * shape.hidden * size; }

  const ModelShape &shape;
  const bool tensorAttention;
  const int64_t tokens, size;
};

} // namespace

void zorse::planning::addShapeWork(const ModelShape &shape, bundle::ModelSummary &summary) {
  *summary.add_gpu_work() = Work(shape, isHalf(shape.computeType)).build("");
  if (isHalf(shape.computeType))
    for (const char *older : {"sm_60", "sm_70", "sm_75"})
      *summary.add_gpu_work() = Work(shape, false).build(older);
}
