// Kernels of clusters for GPUs. Bits depend on nothing but the code: every sum has one order, whatever the grid.
#pragma once

#include "CudaKernelBuilder.h"
#include "RowProgram.h"

namespace zorse::codegen::cuda {

/// The GPU that an architecture of code generation is for: "sm_80" of "emu", "sm_90" of "emu:sm_90" and of "sm_90".
llvm::StringRef chipOf(llvm::StringRef arch);
/// 80 of "sm_80" and of "emu"; none of others.
std::optional<int> capabilityOf(llvm::StringRef chip);

Kernel buildRowKernel(const KernelContext &context, int cluster, HalfConversions conversions);
Kernel buildColumnKernel(const KernelContext &context, int cluster, HalfConversions conversions);
Kernel buildScatterKernel(const KernelContext &context, int cluster, HalfConversions conversions);

/// What the runtime's routine `call` does, as a kernel; none for routines that drivers have themselves.
std::optional<Kernel> buildRoutine(mlir::MLIRContext *context, const bundle::Body &body, const bundle::LibraryCall &call,
                                   HalfConversions conversions);

/// Replaces attention and its gradient by products of matrices, a softmax and copies between them: what any GPU can do.
/// \param stays  which of these operations are left as they are; null: none
mlir::LogicalResult expandAttention(mlir::func::FuncOp function, llvm::function_ref<bool(mlir::Operation *)> stays = {});

/// Leaves attention that tensor cores of `chip` can do whole, marked by kRowMultipleAttr, and expands the rest.
mlir::LogicalResult prepareAttention(mlir::func::FuncOp function, llvm::StringRef chip);

/// The launches of an attention cluster, in their order. Fails after a diagnostic.
mlir::FailureOr<std::vector<Kernel>> buildAttention(const KernelContext &context, int cluster, llvm::StringRef chip);

/// Bytes of one sample that these launches leave for each other.
int64_t attentionScratch(mlir::Operation *attention);

} // namespace zorse::codegen::cuda
