// The part of cuBLASLt (11 to 13) that this runtime uses, declared here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zorse::runtime::cuda {

// Values of cublasLt.h and library_types.h.
inline constexpr int kCompute16F = 64, kCompute32F = 68, kCompute64F = 70, kComputeTf32 = 77;
inline constexpr int kTransposeA = 3, kTransposeB = 4, kEpilogue = 7,
                     kBiasPointer = 8;                  // cublasLtMatmulDescAttributes_t
inline constexpr int kEpilogueBias = 4;                 // cublasLtEpilogue_t
inline constexpr int kBatchCount = 5, kBatchOffset = 6; // cublasLtMatrixLayoutAttribute_t
// cublasLtMatmulPreferenceAttributes_t
inline constexpr int kMaxWorkspace = 1, kMinAlignmentA = 5, kMinAlignmentB = 6, kMinAlignmentC = 7,
                     kMinAlignmentD = 8;
/// Opaque. Equal bytes mean the same algorithm within one version of the library.
struct Algorithm {
  uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

#define ZORSE_BLAS_FUNCTIONS(F)                                                                    \
  F(cublasLtCreate, (void **handle))                                                               \
  F(cublasLtDestroy, (void *handle))                                                               \
  F(cublasLtMatmulDescCreate, (void **description, int compute, int scale))                        \
  F(cublasLtMatmulDescDestroy, (void *description))                                                \
  F(cublasLtMatmulDescSetAttribute,                                                                \
    (void *description, int attribute, const void *value, size_t bytes))                           \
  F(cublasLtMatrixLayoutCreate,                                                                    \
    (void **layout, int type, uint64_t rows, uint64_t columns, int64_t ld))                        \
  F(cublasLtMatrixLayoutDestroy, (void *layout))                                                   \
  F(cublasLtMatrixLayoutSetAttribute,                                                              \
    (void *layout, int attribute, const void *value, size_t bytes))                                \
  F(cublasLtMatmulPreferenceCreate, (void **preference))                                           \
  F(cublasLtMatmulPreferenceDestroy, (void *preference))                                           \
  F(cublasLtMatmulPreferenceSetAttribute,                                                          \
    (void *preference, int attribute, const void *value, size_t bytes))                            \
  F(cublasLtMatmulAlgoGetHeuristic,                                                                \
    (void *handle, void *description, void *a, void *b, void *c, void *d, void *preference,        \
     int wanted, Heuristic *results, int *found))                                                  \
  F(cublasLtMatmul, (void *handle, void *description, const void *alpha, const void *a,            \
                     void *layoutA, const void *b, void *layoutB, const void *beta, const void *c, \
                     void *layoutC, void *d, void *layoutD, const Algorithm *algorithm,            \
                     void *workspace, size_t workspaceBytes, void *stream))

struct BlasLtApi {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration
#define ZORSE_MEMBER(name, parameters) int(*name) parameters = nullptr;
  ZORSE_BLAS_FUNCTIONS(ZORSE_MEMBER)
#undef ZORSE_MEMBER
  size_t (*cublasLtGetVersion)() = nullptr;
};

} // namespace zorse::runtime::cuda
