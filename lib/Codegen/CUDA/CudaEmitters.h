// Kernels of clusters for GPUs. Results are deterministic: every sum has one order, independent of
// the grid.
#pragma once

#include "CudaKernelBuilder.h"
#include "RowProgram.h"

namespace zorse::codegen::cuda {

/// Returns the GPU of a code generation architecture: "sm_80" for "emu", "sm_90" for "emu:sm_90"
/// and "sm_90".
llvm::StringRef chipOf(llvm::StringRef arch);
/// Returns the compute capability: 80 for "sm_80" and "emu"; nullopt for other names.
std::optional<int> capabilityOf(llvm::StringRef chip);

Kernel buildRowKernel(const KernelContext &context, int cluster, HalfConversions conversions);
Kernel buildColumnKernel(const KernelContext &context, int cluster, HalfConversions conversions);
Kernel buildScatterKernel(const KernelContext &context, int cluster, HalfConversions conversions);

/// Returns a kernel that replaces the runtime's routine `call`; none for routines that drivers
/// provide.
std::optional<Kernel> buildRoutine(mlir::MLIRContext *context,
                                   const bundle::CompiledFunction &compiled,
                                   const bundle::LibraryCall &call, HalfConversions conversions);

/// Replaces attention and its gradient by matrix products, a softmax and copies between them. This
/// works on every GPU.
/// \param stays  returns true for operations that are left unchanged; null: none
mlir::LogicalResult decomposeAttention(mlir::func::FuncOp function,
                                       llvm::function_ref<bool(mlir::Operation *)> stays = {});

/// Marks attention that the tensor cores of `chip` can compute as a whole with kRowMultipleAttr,
/// and expands all other attention.
mlir::LogicalResult prepareAttention(mlir::func::FuncOp function, llvm::StringRef chip);

/// Builds the launches of an attention cluster, in order. Fails after a diagnostic.
mlir::FailureOr<std::vector<Kernel>> buildAttention(const KernelContext &context, int cluster,
                                                    llvm::StringRef chip);

/// Bytes per sample of the scratch buffer that these launches share.
int64_t attentionScratch(mlir::Operation *attention);

} // namespace zorse::codegen::cuda
