#define ZORSE_HALF halfBaseline
#define ZORSE_HALF_NAME "baseline"
#define ZORSE_LANES 4
#define ZORSE_TILE_ROWS 4
#define ZORSE_TILE_VECTORS 2
#include "HalfGemm.inc"

using namespace zorse::runtime;

static const HalfOps &halfOps() {
#if defined(__x86_64__)
  const bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                  __builtin_cpu_supports("avx512dq");
  static const HalfOps &best = v4 && __builtin_cpu_supports("avx512bf16") ? halfBf16
                               : v4                                       ? halfV4
                               : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
                                   ? halfV3
                                   : halfBaseline;
  return best;
#else
  return halfBaseline;
#endif
}

void zorse::runtime::multiply(const HalfMatmul &matmul) { halfOps().multiply(matmul); }

const char *zorse::runtime::halfGemmIdentity() {
  return &halfOps() == &halfBaseline ? "zorse 1 without FMA" : "zorse 1";
}

void zorse::runtime::widenRows(HalfType type, const uint16_t *x, int64_t ldx, int64_t rows,
                               int64_t count, float *y, int64_t ldy) {
  halfOps().widenRows(type, x, ldx, rows, count, y, ldy);
}

void zorse::runtime::narrowRows(HalfType type, const float *x, int64_t ldx, int64_t rows,
                                int64_t count, uint16_t *y, int64_t ldy) {
  halfOps().narrowRows(type, x, ldx, rows, count, y, ldy);
}
