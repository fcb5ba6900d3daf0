// Our declarations of NVIDIA's libraries against theirs, where a toolkit is installed: functions have as many parameters, of the same sizes, pointers
// where they have pointers; constants have the same values. Compiling is the test.
#include <cublasLt.h>
#include <cuda.h>

#include "cuda/BlasLt.h"
#include "cuda/BlasLtApi.h"
#include "cuda/CudaApi.h"

#include <gtest/gtest.h>

#include <type_traits>

namespace {

template <typename R1, typename... A1, typename R2, typename... A2> constexpr bool alike(R1 (*)(A1...), R2 (*)(A2...)) {
  if constexpr (sizeof...(A1) != sizeof...(A2))
    return false;
  else
    return sizeof(R1) == sizeof(R2) && ((sizeof(A1) == sizeof(A2) && std::is_pointer_v<A1> == std::is_pointer_v<A2>) && ...);
}
template <typename T> constexpr T *pointerTo() { return nullptr; }

#define ZORSE_ALIKE(name, parameters)                                                                                                                \
  static_assert(alike(pointerTo<std::remove_pointer_t<decltype(API::name)>>(), pointerTo<decltype(::name)>()), #name);
#define API zorse::runtime::cuda::CudaApi
ZORSE_CUDA_FUNCTIONS(ZORSE_ALIKE)
#undef API
#define API zorse::runtime::cuda::BlasLtApi
ZORSE_BLAS_FUNCTIONS(ZORSE_ALIKE)
#undef API

namespace ours = zorse::runtime::cuda;
static_assert(int(CUDA_SUCCESS) == ours::kSuccess && int(CUDA_ERROR_OUT_OF_MEMORY) == ours::kOutOfMemory);
static_assert(CU_STREAM_NON_BLOCKING == ours::kStreamNonBlocking && CU_MEMHOSTALLOC_PORTABLE == ours::kHostAllocPortable);
static_assert(CU_EVENT_BLOCKING_SYNC == ours::kEventBlockingSync);
static_assert(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR == ours::kComputeCapabilityMajor &&
              CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR == ours::kComputeCapabilityMinor);
static_assert(CUBLAS_COMPUTE_32F == ours::kCompute32F && CUBLAS_COMPUTE_64F == ours::kCompute64F);
static_assert(CUBLASLT_MATMUL_DESC_TRANSA == ours::kTransposeA && CUBLASLT_MATMUL_DESC_TRANSB == ours::kTransposeB);
static_assert(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT == ours::kBatchCount && CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET == ours::kBatchOffset);
static_assert(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES == ours::kMaxWorkspace);
static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(ours::Algorithm) && sizeof(cublasLtMatmulHeuristicResult_t) == sizeof(ours::Heuristic));
static_assert(CUDA_R_32F == ours::kF32 && CUDA_R_64F == ours::kF64 && CUDA_R_16F == ours::kF16 && CUDA_R_16BF == ours::kBF16);

} // namespace

TEST(Declarations, AreThoseOfTheToolkit) { SUCCEED(); }
