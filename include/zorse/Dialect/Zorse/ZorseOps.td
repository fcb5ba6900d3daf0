// All operations of the dialect, for the generators.
#ifndef ZORSE_DIALECT_ZORSE_OPS_TD
#define ZORSE_DIALECT_ZORSE_OPS_TD

include "zorse/Dialect/Zorse/ViewOps.td"
include "zorse/Dialect/Zorse/LinearOps.td"
include "zorse/Dialect/Zorse/NormOps.td"
include "zorse/Dialect/Zorse/ModelOps.td"
include "zorse/Dialect/Zorse/ExchangeOps.td"
include "zorse/Dialect/Zorse/UnitOps.td"

#endif // ZORSE_DIALECT_ZORSE_OPS_TD
