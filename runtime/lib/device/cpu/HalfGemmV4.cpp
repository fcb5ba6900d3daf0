#define ZORSE_HALF halfV4
#define ZORSE_HALF_NAME "x86-64-v4"
#define ZORSE_LANES 16
#define ZORSE_TILE_ROWS 8
#define ZORSE_TILE_VECTORS 3
#include "HalfGemm.inc"
