// A model by its dimensions: what planning needs before anybody has exported one ("which cluster for a 33B Llama?").
#pragma once

#include "zorse/Base/Status.h"

#include "bundle.pb.h"

#include <cstdint>
#include <optional>
#include <string>

namespace zorse::planning {

/// A decoder of equal blocks with gated MLPs and untied embedding and head (Llama). Dimensions are of one sample.
struct ModelShape {
  std::string name;
  int64_t layers = 0, hidden = 0, ffn = 0, heads = 0, kvHeads = 0, vocabulary = 0, sequence = 0;
  bundle::ElementType computeType = bundle::BF16; ///< parameters have masters, gradients and moments in f32
};

/// llama-7b, -13b, -33b, -65b and, with grouped heads, -70b; nullopt for other names. `sequence` is left 0.
std::optional<ModelShape> findModelShape(const std::string &name);
std::string knownModelShapes();

/// Every block is two units, attention and MLP, between embedding and head with loss; Adam. Per token and block, with h = hidden, f = ffn:
///
///     FLOPs     attention (4 + 4·kv/h)·h² + 4·h·seq forward, kv = hidden·kvHeads/heads;  MLP 6·h·f;  head 2·h·V
///               backward twice that; split in halves, except scores and their use, which belong to B
///     saved     what fused kernels keep, in the compute type: attention 7 h-vectors (input, norm, q, k, v, output, and statistics),
///               MLP 2 h-vectors and 3 f-vectors (15 h together at f = 2.69 h); head the logits
///     deferred  attention 3 h (dq, dk, dv), MLP 2 f
///
/// \returns nullopt and a message for dimensions that are missing, not positive or too large, or heads that do not divide.
Result<bundle::ModelSummary> makeSummary(const ModelShape &shape);

} // namespace zorse::planning
