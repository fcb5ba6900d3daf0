// Compares our declarations of the CUDA driver and of cuBLASLt with their headers: functions,
// types, values and layouts. The test passes if it compiles.
#include "ForeignTypes.h"

#include <cublasLt.h>
#include <cuda.h>

#include "device/cuda/BlasLt.h"
#include "device/cuda/BlasLtApi.h"
#include "device/cuda/CudaApi.h"

#include <gtest/gtest.h>

#include <cstddef>

namespace ours = zorse::runtime::cuda;

namespace zorse::runtime::test {

// Handles: pointers to opaque structs.
template <> struct Plain<CUctx_st> {
  using Type = void;
};
template <> struct Plain<CUstream_st> : Plain<CUctx_st> {};
template <> struct Plain<CUevent_st> : Plain<CUctx_st> {};
template <> struct Plain<CUmod_st> : Plain<CUctx_st> {};
template <> struct Plain<CUfunc_st> : Plain<CUctx_st> {};
template <> struct Plain<cublasLtContext> : Plain<CUctx_st> {};
template <> struct Plain<cublasLtMatmulDescOpaque_t> : Plain<CUctx_st> {};
template <> struct Plain<cublasLtMatrixLayoutOpaque_t> : Plain<CUctx_st> {};
template <> struct Plain<cublasLtMatmulPreferenceOpaque_t> : Plain<CUctx_st> {};
// Structs that we declare ourselves.
template <> struct Plain<cublasLtMatmulAlgo_t> {
  using Type = ours::Algorithm;
};
template <> struct Plain<cublasLtMatmulHeuristicResult_t> {
  using Type = ours::Heuristic;
};
template <> struct Plain<CUuuid> {
  using Type = unsigned char;
};

#define ZORSE_SAME(name, parameters)                                                               \
  static_assert(isDeclarationOf<decltype(&::name), decltype(API::name)>, #name);
#define API ours::CudaApi
ZORSE_CUDA_FUNCTIONS(ZORSE_SAME)
ZORSE_NEWER_CUDA_FUNCTIONS(ZORSE_SAME)
#undef API
#define API ours::BlasLtApi
ZORSE_BLAS_FUNCTIONS(ZORSE_SAME)
ZORSE_SAME(cublasLtGetVersion, )
#undef API

static_assert(int(CUDA_SUCCESS) == ours::kSuccess &&
              int(CUDA_ERROR_OUT_OF_MEMORY) == ours::kOutOfMemory);
static_assert(CU_STREAM_NON_BLOCKING == ours::kStreamNonBlocking &&
              CU_MEMHOSTALLOC_PORTABLE == ours::kHostAllocPortable);
static_assert(CU_EVENT_BLOCKING_SYNC == ours::kEventBlockingSync &&
              CU_EVENT_DISABLE_TIMING == ours::kEventDisableTiming);
static_assert(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR == ours::kComputeCapabilityMajor &&
              CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR == ours::kComputeCapabilityMinor);
static_assert(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES == ours::kMaxDynamicSharedSizeBytes);
static_assert(CU_JIT_ERROR_LOG_BUFFER == ours::kJitErrorLogBuffer &&
              CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES == ours::kJitErrorLogBytes);
static_assert(sizeof(CUuuid) == 16);

static_assert(CUDA_R_32F == ours::kF32 && CUDA_R_64F == ours::kF64 && CUDA_R_16F == ours::kF16 &&
              CUDA_R_16BF == ours::kBF16);
static_assert(CUBLAS_COMPUTE_32F_FAST_TF32 == ours::kComputeTf32 &&
              CUBLAS_COMPUTE_32F == ours::kCompute32F && CUBLAS_COMPUTE_64F == ours::kCompute64F &&
              CUBLAS_COMPUTE_16F == ours::kCompute16F);
static_assert(CUBLASLT_MATMUL_DESC_TRANSA == ours::kTransposeA &&
              CUBLASLT_MATMUL_DESC_TRANSB == ours::kTransposeB);
static_assert(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT == ours::kBatchCount &&
              CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET == ours::kBatchOffset);
static_assert(CUBLASLT_MATMUL_DESC_EPILOGUE == ours::kEpilogue &&
              CUBLASLT_MATMUL_DESC_BIAS_POINTER == ours::kBiasPointer &&
              CUBLASLT_EPILOGUE_BIAS == ours::kEpilogueBias);
static_assert(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES == ours::kMaxWorkspace);
static_assert(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES == ours::kMinAlignmentA &&
              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES == ours::kMinAlignmentB &&
              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES == ours::kMinAlignmentC &&
              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES == ours::kMinAlignmentD);

#define ZORSE_LIES(theirs, member, mine, name)                                                     \
  static_assert(offsetof(theirs, member) == offsetof(mine, name) &&                                \
                    sizeof(theirs::member) == sizeof(mine::name),                                  \
                #member);
ZORSE_LIES(cublasLtMatmulAlgo_t, data, ours::Algorithm, data)
ZORSE_LIES(cublasLtMatmulHeuristicResult_t, algo, ours::Heuristic, algorithm)
ZORSE_LIES(cublasLtMatmulHeuristicResult_t, workspaceSize, ours::Heuristic, workspace)
ZORSE_LIES(cublasLtMatmulHeuristicResult_t, state, ours::Heuristic, state)
ZORSE_LIES(cublasLtMatmulHeuristicResult_t, wavesCount, ours::Heuristic, waves)
ZORSE_LIES(cublasLtMatmulHeuristicResult_t, reserved, ours::Heuristic, reserved)
static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(ours::Algorithm) &&
              sizeof(cublasLtMatmulHeuristicResult_t) == sizeof(ours::Heuristic));

} // namespace zorse::runtime::test

TEST(CudaDeclarations, AreThoseOfTheHeaders) {
  printf("cuda.h %d, cublasLt.h %d.%d.%d\n", CUDA_VERSION, CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR,
         CUBLAS_VER_PATCH);
}
