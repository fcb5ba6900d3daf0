// Distribution of groups of neighboring elements over the threads of cheap elementwise kernels.
#pragma once

#include "CudaKernelBuilder.h"

namespace zorse::codegen::cuda {

/// Maximum number of groups per thread in cheap kernels. The cost of finding the first group is
/// then small compared with the rest.
constexpr int kGroups = 8;
constexpr int kGroupThreads = 128; ///< threads per block of these kernels

/// Emits the loop over a thread's groups. They are a block's length apart, so that neighboring
/// threads have neighboring groups.
/// \param count   number of complete groups (i64)
/// \param groups  groups per thread
/// \param whole   emits blocks in which all groups are complete: gets this thread's first group;
/// the others are kGroupThreads apart
/// \param part    emits other blocks: gets each of this thread's groups, which may be partial or
/// not exist
void takeGroups(CudaKernelBuilder &k, mlir::Value count, int groups,
                llvm::function_ref<void(mlir::Value)> whole,
                llvm::function_ref<void(mlir::Value)> part);

} // namespace zorse::codegen::cuda
