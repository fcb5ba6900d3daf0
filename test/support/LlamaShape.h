// LLaMA models by formulas: summaries without import, for benchmarks and tests of the planner, and
// a second source of what zorse-plan --model-shape imports.
#pragma once

#include "zorse/Base/Status.h"
#include "zorse/Planning/DividedModel.h"

#include "bundle.pb.h"

#include <cstdint>
#include <optional>
#include <string>

namespace zorse::planning {

/// A decoder of equal blocks with gated MLPs and untied embedding and head (Llama). Dimensions are
/// per sample.
struct LlamaShape {
  std::string name;
  int64_t layers = 0, hidden = 0, ffn = 0, heads = 0, kvHeads = 0, vocabulary = 0, sequence = 0;
  bundle::ElementType computeType = bundle::BF16; ///< compute type; master parameters, gradients
                                                  ///< and optimizer states are f32
  bundle::TrainingOptions training = {};          ///< decides about optimizer states; Adam
                                                  ///< if it names no optimizer
};

/// Finds llama-7b, -13b, -33b, -65b or, with grouped heads, -70b. Returns nullopt for other names.
/// `sequence` is 0.
std::optional<LlamaShape> findLlamaShape(const std::string &name);
std::string knownLlamaShapes();

/// Makes the summary of a model. Every block has two units, attention and MLP; embedding and head
/// with loss are units too. Per token and block, with h = hidden, f = ffn,
/// kv = hidden·kvHeads/heads:
///
/// - FLOPs forward: attention (4 + 4·kv/h)·h² + 4·h·seq, MLP 6·h·f, head 2·h·V
/// - FLOPs backward: twice that, split equally between B and W, except scores and their use, which
///   belong to B
/// - saved: activations that fused kernels keep, in the compute type. Attention saves 7 h-vectors
///   (input, norm, q, k, v, output, and statistics), MLP 2 h-vectors and 3 f-vectors (15 h together
///   at f = 2.69 h), head the logits
/// - deferred: attention 3 h (dq, dk, dv), MLP 2 f
///
/// Groups of devices divide the heads of keys, the columns of MLPs and the vocabulary of the head,
/// as zorse-divide-units divides Llama. Embeddings, norms and residuals are whole. Exchanges per
/// row: the hidden state, summed, once forward and once backward of every unit; three numbers per
/// token for the loss.
///
/// \returns nullopt and a message if dimensions are missing, not positive or too large, if heads
///   do not divide, if groups divide a parameter that the optimizer updates as a whole, or as
///   DivisibleModel::divide
Result<bundle::ModelSummary> makeSummary(const LlamaShape &shape,
                                         const std::vector<UnitGroup> &groups = {});

/// Divides the model of a shape.
class DivisibleLlama final : public DivisibleModel {
public:
  explicit DivisibleLlama(LlamaShape shape) : shape(std::move(shape)) {}
  Result<DividedModel> divide(const std::vector<UnitGroup> &groups) override;

private:
  LlamaShape shape;
};

} // namespace zorse::planning
