// Attention and its gradients on tensor cores: FlashAttention-2 (T. Dao, 2023, arXiv:2307.08691).
// No tensor of S x S' elements is created, nothing is summed with atomics, and a block's results
// depend only on its own rows. The bits do not depend on the number of samples or on the grid.
#pragma once

#include "Problem.h"

namespace zorse::codegen::cuda {

/// Computes out, and lse if it has a use.
Kernel buildAttentionForward(const KernelContext &context, const AttentionProblem &problem);

/// Computes statistics of every query that both gradients need, [rows, heads, queries, 2] in f32 at
/// `statistics`: the log-sum-exp in the form that exponents use, and minus scale times the sum of
/// out * dout. With an additive mask, they are [.., 4]: the maximum score, the second value above,
/// minus the base-2 logarithm of the sum of exponentials relative to the maximum, and 0.
Kernel buildAttentionStatistics(const KernelContext &context, const AttentionProblem &problem,
                                const KernelBuilder::Place &statistics);
/// Computes dk and dv.
Kernel buildKeyGradients(const KernelContext &context, const AttentionProblem &problem,
                         const KernelBuilder::Place &statistics);
/// Computes dq.
Kernel buildQueryGradients(const KernelContext &context, const AttentionProblem &problem,
                           const KernelBuilder::Place &statistics);

/// Bytes per sample of the statistics of an attention gradient.
int64_t statisticsBytes(mlir::Operation *attentionGradient);

} // namespace zorse::codegen::cuda
