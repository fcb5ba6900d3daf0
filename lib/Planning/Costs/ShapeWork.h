// What the bodies of a model that is given by its dimensions would launch on GPUs. Internal.
#pragma once

#include "zorse/Planning/ModelShape.h"

namespace zorse::planning {

/// Adds the work of the classes embedding, attention, MLP and head (0 to 3, as makeSummary numbers them) to the summary: with attention on tensor
/// cores in 16 bit from sm_80 on, and as products and a softmax on older GPUs and in f32.
///
/// Per row, with s tokens, h = hidden, f = ffn, kv = width of keys, e = bytes of an element: products with weights forward, the same twice backward;
/// causal attention 2·s²·h FLOPs forward and 5·s²·h backward; elsewhere s²·heads scores that are written and read as our kernels do; elementwise
/// kernels the bytes that ModelShape counts. Launches are those of the kernels that Zorse makes for Llama.
void addShapeWork(const ModelShape &shape, bundle::ModelSummary &summary);

} // namespace zorse::planning
