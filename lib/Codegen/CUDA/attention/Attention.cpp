// Which attention has kernels of its own, and the list of its launches.
#include "CudaEmitters.h"

#include "AttentionKernels.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

/// Copies go by 16 bytes: 8 elements of two.
static constexpr int64_t kRowMultiple = 8;

LogicalResult cuda::prepareAttention(func::FuncOp function, StringRef chip) {
  return expandAttention(function, [&](Operation *op) {
    if (!whyUnsupported(op, chip).empty())
      return false;
    // Operands whose rows lie elsewhere are copied first (resolveLibraryOps).
    op->setAttr(kRowMultipleAttr, IntegerAttr::get(IntegerType::get(op->getContext(), 64), kRowMultiple));
    return true;
  });
}

int64_t cuda::attentionScratch(Operation *op) { return isa<AttentionGradOp>(op) ? statisticsBytes(op) : 0; }

FailureOr<std::vector<Kernel>> cuda::buildAttention(const KernelContext &context, int cluster, StringRef chip) {
  Operation *op = context.clustering.clusters[size_t(cluster)].ops.front();
  const AttentionProblem problem = problemOf(op, context.claims, chip);
  // Rows lie on multiples of 16 bytes if their tensors do, as slots and workspace make sure.
  for (const HeadTensor *tensor : {&problem.q, &problem.k, &problem.v, &problem.out, &problem.dout, &problem.dq, &problem.dk, &problem.dv}) {
    if (!tensor->root)
      continue;
    const bundle::Pointer &at = context.resolve(tensor->root, tensor->offset).pointer;
    if (at.fixed() % 16 || at.per_row() % 16)
      return op->emitOpError("has rows that do not begin on multiples of 16 bytes; this is a defect of the compiler");
  }
  std::vector<Kernel> kernels;
  if (isa<AttentionOp>(op)) {
    kernels.push_back(buildAttentionForward(context, problem));
    return kernels;
  }
  const KernelBuilder::Place statistics = context.scratch(cluster);
  kernels.push_back(buildAttentionStatistics(context, problem, statistics));
  kernels.push_back(buildKeyGradients(context, problem, statistics));
  kernels.push_back(buildQueryGradients(context, problem, statistics));
  return kernels;
}
