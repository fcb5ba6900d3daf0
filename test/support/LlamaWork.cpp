#include "LlamaWork.h"

#include "zorse/Summary/Summary.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::planning;

namespace {

class Work {
public:
  Work(const LlamaShape &shape, const ShapeClass &part, bool tensorAttention)
      : shape(shape), part(part), tensorAttention(tensorAttention), tokens(shape.sequence),
        size(static_cast<int64_t>(elementBytes(shape.computeType))) {}

  /// Work of one class by task.
  struct ClassWork {
    bundle::FunctionCost forward, backward, inputGradients, weightGradients;
  };

  ClassWork build() {
    ClassWork work;
    switch (part.kind) {
    case ShapeClass::Embedding:
      embedding(work);
      break;
    case ShapeClass::Attention:
      attention(work);
      break;
    case ShapeClass::Mlp:
      mlp(work);
      break;
    case ShapeClass::Head:
      head(work);
      break;
    }
    return work;
  }

private:
  void product(bundle::FunctionCost &task, const bundle::AffineSize &m, const bundle::AffineSize &n,
               const bundle::AffineSize &k, int64_t batchPerRow = 0) {
    auto *product = task.add_matmuls();
    *product->mutable_m() = m;
    *product->mutable_n() = n;
    *product->mutable_k() = k;
    *product->mutable_batch() = batchPerRow ? perRow(batchPerRow) : fixed(1);
    product->set_operands(shape.computeType);
    product->set_result(shape.computeType);
    product->set_count(1);
    task.set_launches(task.launches() + 1);
  }

  static bundle::AffineSize fixed(int64_t amount) {
    bundle::AffineSize extent;
    extent.set_fixed(amount);
    return extent;
  }
  static bundle::AffineSize perRow(int64_t amount) {
    bundle::AffineSize extent;
    extent.set_per_row(amount);
    return extent;
  }

  /// Adds kernels that move bytes.
  void kernels(bundle::FunctionCost &task, uint32_t launches, int64_t bytes) {
    task.set_launches(task.launches() + launches);
    task.mutable_bytes()->set_per_row(task.bytes().per_row() + bytes);
  }

  /// Adds a product tokens x in times in x out, and the products of its backward.
  void weights(ClassWork &work, int64_t in, int64_t out) {
    product(work.forward, perRow(tokens), fixed(out), fixed(in));
    product(work.inputGradients, perRow(tokens), fixed(in), fixed(out));
    product(work.weightGradients, fixed(in), fixed(out), perRow(tokens));
  }

  /// Sets the whole backward: both parts, without the work `again` that W recomputes from saved
  /// activations.
  void join(ClassWork &work, uint32_t againLaunches = 0, int64_t againBytes = 0) {
    bundle::FunctionCost &whole = work.backward;
    whole = work.inputGradients;
    const bundle::FunctionCost &weights = work.weightGradients;
    whole.mutable_matmuls()->MergeFrom(weights.matmuls());
    kernels(whole, weights.launches(), weights.bytes().per_row());
    kernels(work.weightGradients, againLaunches, againBytes);
  }

  void embedding(ClassWork &work) {
    kernels(work.forward, 1, 2 * state());
    kernels(work.backward, 1, 4 * state());
  }

  void attention(ClassWork &work) {
    const int64_t width = shape.hidden / shape.heads, local = width * part.heads,
                  kvWidth = width * part.kvHeads;
    for (int64_t out : {local, kvWidth, kvWidth}) // q, k, v
      weights(work, shape.hidden, out);
    weights(work, local, shape.hidden); // the result
    // Norm and residual are whole, two rotations have the device's heads.
    const int64_t bytes = 4 * state() + 4 * tokens * local * size;
    kernels(work.forward, 4, bytes);
    kernels(work.inputGradients, 5, 2 * bytes); // the same, and the norm's parameters
    const double pairs = double(tokens) * double(tokens) * double(local);
    // Exceeds the memory of all devices, but is still representable: makeSummary's limits allow
    // 2^72 scores.
    const double all = std::min(double(tokens) * double(tokens) * double(part.heads), 1e12);
    const int64_t scores = static_cast<int64_t>(all);
    if (tensorAttention) {
      work.forward.set_attention_flops_per_row(2 * pairs);
      work.inputGradients.set_attention_flops_per_row(5 * pairs);
      kernels(work.forward, 1, 0);
      kernels(work.inputGradients, 3, 2 * state()); // row sums, queries, keys and values
    } else {
      bundle::FunctionCost &forward = work.forward, &backward = work.inputGradients;
      auto scored = [&](bundle::FunctionCost &task) {
        product(task, fixed(tokens), fixed(tokens), fixed(width), part.heads);
      };
      auto weighted = [&](bundle::FunctionCost &task) {
        product(task, fixed(tokens), fixed(width), fixed(tokens), part.heads);
      };
      scored(forward);
      weighted(forward);
      kernels(forward, 1, scores * (4 + size)); // scores in f32, probabilities
      for (int twice = 0; twice < 2; ++twice)   // scores again, and gradients of probabilities
        scored(backward);
      for (int thrice = 0; thrice < 3; ++thrice) // gradients of queries, keys and values
        weighted(backward);
      kernels(backward, 2, scores * (16 + 3 * size));
    }
    join(work);
  }

  void mlp(ClassWork &work) {
    for (auto [in, out] : {std::pair(shape.hidden, part.ffn), std::pair(shape.hidden, part.ffn),
                           std::pair(part.ffn, shape.hidden)})
      weights(work, in, out);
    const int64_t bytes = 6 * state() + 6 * tokens * part.ffn * size;
    kernels(work.forward, 3, bytes);            // norm, the gate, the residual
    kernels(work.inputGradients, 4, 2 * bytes); // the same, and the norm's parameters
    join(work);
  }

  void head(ClassWork &work) {
    weights(work, shape.hidden, part.vocabulary);
    const int64_t logits = tokens * part.vocabulary * size;
    kernels(work.forward, 2, 6 * logits);         // norm, the loss
    kernels(work.inputGradients, 3, 12 * logits); // the same, and the norm's parameters
    join(work, 1, 2 * logits);                    // the gradient of the logits
  }

  int64_t state() const { return tokens * shape.hidden * size; }

  const LlamaShape &shape;
  const ShapeClass &part;
  const bool tensorAttention;
  const int64_t tokens, size;
};

} // namespace

void zorse::planning::addLlamaWork(const LlamaShape &shape, const std::vector<ShapeClass> &classes,
                                   bundle::ModelSummary &summary) {
  auto add = [&](const std::string &arch, bool tensorAttention) {
    summary.add_gpu_targets(arch);
    for (int c = 0; c < summary.classes_size(); ++c) {
      const Work::ClassWork of =
          Work(shape, classes[static_cast<size_t>(c)], tensorAttention).build();
      for (bundle::UnitFunction &function : *summary.mutable_classes(c)->mutable_functions())
        if (function.task() != bundle::UnitFunction::RECOMPUTE) // dimensions do not determine the
                                                                // kernels of a recomputation
          *function.add_costs() = function.task() == bundle::UnitFunction::FORWARD    ? of.forward
                                  : function.task() == bundle::UnitFunction::BACKWARD ? of.backward
                                  : function.task() == bundle::UnitFunction::INPUT_GRADIENTS
                                      ? of.inputGradients
                                      : of.weightGradients;
    }
  };
  add("", isHalf(shape.computeType));
  if (isHalf(shape.computeType))
    for (const char *older : {"sm_60", "sm_70", "sm_75"})
      add(older, false);
}
