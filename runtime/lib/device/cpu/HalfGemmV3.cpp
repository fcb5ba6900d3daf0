#define ZORSE_HALF halfV3
#define ZORSE_HALF_NAME "x86-64-v3"
#define ZORSE_LANES 8
#define ZORSE_TILE_ROWS 6
#define ZORSE_TILE_VECTORS 2
#include "HalfGemm.inc"
