// Decides which attention ops are lowered to kernels, and lists their launches.
#include "CudaEmitters.h"

#include "AttentionKernels.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

/// Kernels copy 16 bytes at a time: 8 elements of two bytes.
static constexpr int64_t kRowMultiple = 8;

LogicalResult cuda::prepareAttention(func::FuncOp function, StringRef chip) {
  return decomposeAttention(function, [&](Operation *op) {
    if (!whyUnsupported(op, chip).empty())
      return false;
    // resolveLibraryOps copies operands with other row strides.
    op->setAttr(kRowMultipleAttr,
                IntegerAttr::get(IntegerType::get(op->getContext(), 64), kRowMultiple));
    return true;
  });
}

int64_t cuda::attentionScratch(Operation *op) {
  return isa<AttentionGradOp>(op) ? statisticsBytes(op) : 0;
}

FailureOr<std::vector<Kernel>> cuda::buildAttention(const KernelContext &context, int cluster,
                                                    StringRef chip) {
  Operation *op = context.plan.fusionGroups[size_t(cluster)].ops.front();
  const AttentionProblem problem = problemOf(op, context.aliases, chip);
  // Rows are aligned to 16 bytes if their tensors are. The layouts of arguments and workspace
  // guarantee this.
  for (const HeadTensor *tensor : {&problem.q, &problem.k, &problem.v, &problem.out, &problem.dout,
                                   &problem.dq, &problem.dk, &problem.dv}) {
    if (!tensor->root)
      continue;
    const bundle::Pointer &at = context.resolve(tensor->root, tensor->offset).pointer;
    if (at.fixed() % 16 || at.per_row() % 16)
      return op->emitOpError("has rows that are not aligned to 16 bytes; this is a compiler bug");
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
