// Matmuls in bf16 or f16, by our own kernels: no library supports both types, and the libraries'
// bits depend on the number of threads and on the CPU (docs/concepts/precision.md).
#pragma once

#include "zorse/runtime/HalfTypes.h"

namespace zorse::runtime {

/// C (m x n) = op(A) (m x k) * op(B) (k x n), or C += the product; row-major. Leading dimensions
/// are in elements, of the stored (not transposed) matrices.
///
/// Accumulates in f32. Every element of C is one sum over k in blocks of kHalfBlock. Within a
/// block, products are added by fused multiply-adds in the order 1, 0, 3, 2, ... with subnormal
/// numbers as zero, as AVX512-BF16 does with pairs. Blocks are added to C sequentially. The bits
/// therefore depend neither on the number of threads nor, on CPUs with FMA, on the CPU.
struct HalfMatmul {
  HalfType type; ///< type of A and B
  bool transposeA, transposeB;
  int64_t m, n, k;
  const uint16_t *a;
  int64_t lda;
  const uint16_t *b;
  int64_t ldb;
  bool narrowC; ///< C has the type of A and B: it is rounded once and never added to; otherwise C
                ///< is f32
  bool add;
  void *c;
  int64_t ldc;
};
inline constexpr int64_t kHalfBlock = 384;

/// Multiplies in the calling thread.
void multiply(const HalfMatmul &matmul);

/// Name and version, and the instructions that the bits depend on.
const char *halfGemmIdentity();

/// Converts rows of `count` elements between half precision and f32; leading dimensions in
/// elements.
void widenRows(HalfType type, const uint16_t *x, int64_t ldx, int64_t rows, int64_t count, float *y,
               int64_t ldy);
void narrowRows(HalfType type, const float *x, int64_t ldx, int64_t rows, int64_t count,
                uint16_t *y, int64_t ldy);

/// The functions of one instruction set.
struct HalfOps {
  const char *name;
  void (*multiply)(const HalfMatmul &matmul);
  void (*widenRows)(HalfType type, const uint16_t *x, int64_t ldx, int64_t rows, int64_t count,
                    float *y, int64_t ldy);
  void (*narrowRows)(HalfType type, const float *x, int64_t ldx, int64_t rows, int64_t count,
                     uint16_t *y, int64_t ldy);
};
extern const HalfOps halfBaseline;
#if defined(__x86_64__)
extern const HalfOps halfV3;   ///< AVX2 and FMA
extern const HalfOps halfV4;   ///< AVX-512
extern const HalfOps halfBf16; ///< and AVX512-BF16
#endif

} // namespace zorse::runtime
