// Builders of the CPU kernels of clusters.
#pragma once

#include "CpuKernelBuilder.h"
#include "RowProgram.h"

namespace zorse::codegen {

Kernel buildRowKernel(const KernelContext &context, int cluster);
Kernel buildColumnKernel(const KernelContext &context, int cluster);
Kernel buildScatterKernel(const KernelContext &context, int cluster);

} // namespace zorse::codegen
