// Products of matrices in bf16 or f16, by kernels of our own: no library has both, and libraries' bits depend on the number of threads and on the
// processor (docs/precision.md).
#pragma once

#include "zorse/runtime/HalfTypes.h"

namespace zorse::runtime {

/// C (m x n) = op(A) (m x k) * op(B) (k x n), or C += it; row-major. Leading dimensions in elements, of the stored (not transposed) matrices.
///
/// Sums are f32. Every element of C is one sum over k in blocks of kHalfBlock; in a block, products are added by fused multiply-adds in the order
/// 1, 0, 3, 2, ... with subnormal numbers as zero, which is what AVX512-BF16 does with pairs; blocks are added to C one after the other. So bits
/// depend neither on the number of threads nor, where there is FMA, on the processor.
struct HalfProduct {
  HalfType type; ///< of A and B
  bool transposeA, transposeB;
  int64_t m, n, k;
  const uint16_t *a;
  int64_t lda;
  const uint16_t *b;
  int64_t ldb;
  bool narrowC; ///< C has the type of A and B: it is rounded once, and never added to; otherwise C is f32.
  bool add;
  void *c;
  int64_t ldc;
};
inline constexpr int64_t kHalfBlock = 384;

/// In the calling thread.
void multiply(const HalfProduct &product);

/// Name and version, and on which instructions its bits depend.
const char *halfGemmIdentity();

/// Rows of `count` elements between half precision and f32; leading dimensions in elements.
void widenRows(HalfType type, const uint16_t *x, int64_t ldx, int64_t rows, int64_t count, float *y, int64_t ldy);
void narrowRows(HalfType type, const float *x, int64_t ldx, int64_t rows, int64_t count, uint16_t *y, int64_t ldy);

/// One instruction set's versions.
struct HalfOps {
  const char *name;
  void (*multiply)(const HalfProduct &product);
  void (*widenRows)(HalfType type, const uint16_t *x, int64_t ldx, int64_t rows, int64_t count, float *y, int64_t ldy);
  void (*narrowRows)(HalfType type, const float *x, int64_t ldx, int64_t rows, int64_t count, uint16_t *y, int64_t ldy);
};
extern const HalfOps halfBaseline;
#if defined(__x86_64__)
extern const HalfOps halfV3;   ///< AVX2 and FMA
extern const HalfOps halfV4;   ///< AVX-512
extern const HalfOps halfBf16; ///< and AVX512-BF16
#endif

} // namespace zorse::runtime
