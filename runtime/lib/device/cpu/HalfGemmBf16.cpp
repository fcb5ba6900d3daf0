#define ZORSE_HALF halfBf16
#define ZORSE_HALF_NAME "x86-64-v4 with AVX512-BF16"
#define ZORSE_LANES 16
#define ZORSE_TILE_ROWS 8
#define ZORSE_TILE_VECTORS 3
#define ZORSE_BF16_PAIRS
#include "HalfGemm.inc"
