// How the threads of cheap elementwise kernels take several groups of neighbouring elements each.
#pragma once

#include "CudaKernelBuilder.h"

namespace zorse::codegen::cuda {

/// Groups that a thread takes, at most, where little is computed: what it takes to find the first of them is then small beside the rest.
constexpr int kGroups = 8;
constexpr int kGroupThreads = 128; ///< of their blocks

/// The groups of a thread are a block's length apart, so that neighbouring threads have neighbouring groups.
/// \param count   groups that are whole (i64)
/// \param groups  of a thread
/// \param whole   for blocks whose groups are all whole: gets this thread's first group; the others are kGroupThreads apart
/// \param part    for others: gets each of this thread's groups, whole or not, there or not
void takeGroups(CudaKernelBuilder &k, mlir::Value count, int groups, llvm::function_ref<void(mlir::Value)> whole,
                llvm::function_ref<void(mlir::Value)> part);

} // namespace zorse::codegen::cuda
