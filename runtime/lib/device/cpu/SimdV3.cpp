#define ZORSE_SIMD simdV3
#define ZORSE_SIMD_NAME "x86-64-v3"
#include "SimdLoops.inc"
