// How far library routines reach from the addresses they are given.
#pragma once

#include "../Reach.h"
#include "zorse/runtime/Status.h"

namespace zorse::bundle {
class LibraryCall;
} // namespace zorse::bundle

namespace zorse::runtime {

/// Of a routine whose attributes and number of operands have been found right (makeLibraryRoutine).
Result<std::vector<OperandUse>> operandUses(const bundle::LibraryCall &call);

} // namespace zorse::runtime
