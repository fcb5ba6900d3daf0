// All operations of the dialect, for its reference.
#ifndef ZORSE_DIALECT_ZORSE_ALL_OPS_TD
#define ZORSE_DIALECT_ZORSE_ALL_OPS_TD

include "zorse/Dialect/Zorse/ZorseOps.td"
include "zorse/Dialect/Zorse/SampleOps.td"

#endif // ZORSE_DIALECT_ZORSE_ALL_OPS_TD
