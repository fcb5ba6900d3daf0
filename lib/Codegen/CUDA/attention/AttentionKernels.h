// Attention and its gradients on tensor cores: FlashAttention-2 (T. Dao, 2023, arXiv:2307.08691). No tensor of S x S' elements exists, nothing is
// added by atomics, and a block's numbers depend on its own rows alone: bits do not change with the number of samples or the grid.
#pragma once

#include "Problem.h"

namespace zorse::codegen::cuda {

/// out, and lse where somebody wants it.
Kernel buildAttentionForward(const KernelContext &context, const AttentionProblem &problem);

/// What both gradients need of every query, [rows, heads, queries, 2] in f32 at `statistics`: the logarithm of the sum of exponentials as exponents
/// take it, and minus scale times the sum of out * dout. Where a mask is added, [.., 4]: the greatest score, the second, minus the logarithm to base
/// 2 of the sum of exponentials relative to the greatest, and 0.
Kernel buildAttentionStatistics(const KernelContext &context, const AttentionProblem &problem, const KernelBuilder::Place &statistics);
/// dk and dv.
Kernel buildKeyGradients(const KernelContext &context, const AttentionProblem &problem, const KernelBuilder::Place &statistics);
/// dq.
Kernel buildQueryGradients(const KernelContext &context, const AttentionProblem &problem, const KernelBuilder::Place &statistics);

/// Bytes of the statistics of a gradient of one sample.
int64_t statisticsBytes(mlir::Operation *attentionGradient);

} // namespace zorse::codegen::cuda
