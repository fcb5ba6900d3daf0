// Kernels of clusters.
#pragma once

#include "Clusters.h"
#include "KernelBuilder.h"

namespace zorse::codegen {

/// What kernel emission asks about results: which of them are stored, and which of their places are added to at run time.
struct KernelContext {
  mlir::MLIRContext *context;
  const Clustering &clustering;
  const Claims &claims;
  KernelBuilder::Resolve resolve;
  std::function<bool(mlir::Value root)> accumulates;
};

Kernel buildRowKernel(const KernelContext &context, int cluster);
Kernel buildColumnKernel(const KernelContext &context, int cluster);
Kernel buildScatterKernel(const KernelContext &context, int cluster);

} // namespace zorse::codegen
