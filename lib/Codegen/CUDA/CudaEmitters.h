// Kernels of clusters for GPUs. Bits depend on nothing but the code: every sum has one order, whatever the grid.
#pragma once

#include "RowProgram.h"

namespace zorse::codegen::cuda {

Kernel buildRowKernel(const KernelContext &context, int cluster);
Kernel buildColumnKernel(const KernelContext &context, int cluster);
Kernel buildScatterKernel(const KernelContext &context, int cluster);

/// What the runtime's routine `call` does, as a kernel; none for routines that drivers have themselves.
std::optional<Kernel> buildRoutine(mlir::MLIRContext *context, const bundle::Body &body, const bundle::LibraryCall &call);

/// Replaces attention and its gradient by products of matrices, a softmax and copies between them.
mlir::LogicalResult expandAttention(mlir::func::FuncOp function);

} // namespace zorse::codegen::cuda
