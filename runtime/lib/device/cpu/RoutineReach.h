// Bounds of the bytes that library routines access.
#pragma once

#include "../Reach.h"
#include "zorse/runtime/Status.h"

namespace zorse::bundle {
class LibraryCall;
} // namespace zorse::bundle

namespace zorse::runtime {

/// The operand uses of a routine. Its attributes and number of operands must be valid
/// (makeLibraryRoutine).
Result<std::vector<OperandUse>> operandUses(const bundle::LibraryCall &call);

} // namespace zorse::runtime
