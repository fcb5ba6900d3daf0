// The attributes of the `zorse` dialect.
#pragma once

#include "zorse/Dialect/Zorse/ZorseDialect.h"

#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

#include "zorse/Dialect/Zorse/ZorseEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "zorse/Dialect/Zorse/ZorseAttributes.h.inc"

namespace zorse {

/// Returns the slot of an argument or result of a unit function; null if it has none (docs/internals/compiler.md, "Unit
/// classes").
SlotAttr slotOfArgument(mlir::FunctionOpInterface function, unsigned argument);
SlotAttr slotOfResult(mlir::FunctionOpInterface function, unsigned result);
inline bool isSlot(SlotAttr slot, SlotKind kind) { return slot && slot.getKind() == kind; }

} // namespace zorse
