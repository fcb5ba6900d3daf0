#define ZORSE_SIMD simdV4
#define ZORSE_SIMD_NAME "x86-64-v4"
#include "SimdLoops.inc"
