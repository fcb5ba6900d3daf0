#define ZORSE_SIMD simdBaseline
#define ZORSE_SIMD_NAME "baseline"
#include "SimdLoops.inc"

const zorse::runtime::SimdOps &zorse::runtime::simdOps() {
#if defined(__x86_64__)
  static const SimdOps &best = __builtin_cpu_supports("avx512f") &&
                                       __builtin_cpu_supports("avx512vl") &&
                                       __builtin_cpu_supports("avx512dq")
                                   ? simdV4
                               : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
                                   ? simdV3
                                   : simdBaseline;
  return best;
#else
  return simdBaseline;
#endif
}
