// GPU work of the compiled functions of a model that is described by its dimensions. Internal.
#pragma once

#include "LlamaShape.h"

#include <vector>

namespace zorse::planning {

/// A class of units, whole or as a device of a group has it.
struct ShapeClass {
  enum Kind : uint8_t { Embedding, Attention, Mlp, Head } kind;
  int64_t heads, kvHeads, ffn, vocabulary; ///< of the device
};

/// Adds the work of all classes to the summary. Attention runs on tensor cores in 16 bit from sm_80
/// on, and as products and a softmax on older GPUs and in f32.
///
/// Work per row, with s tokens, h = hidden, f = ffn, kv = width of keys, e = bytes of an element:
/// - products with weights forward, twice that backward;
/// - causal attention: 2·s²·h FLOPs forward and 5·s²·h backward. The variant without tensor cores
///   writes and reads s²·heads scores like Zorse's kernels;
/// - elementwise kernels: the bytes that LlamaShape counts.
///
/// Numbers of launches are those of the kernels that Zorse generates for Llama.
void addLlamaWork(const LlamaShape &shape, const std::vector<ShapeClass> &classes,
                  bundle::ModelSummary &summary);

} // namespace zorse::planning
