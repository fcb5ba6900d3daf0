// The attributes of the `zorse` dialect.
#pragma once

#include "zorse/Dialect/Zorse/ZorseDialect.h"

#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

#include "zorse/Dialect/Zorse/ZorseEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "zorse/Dialect/Zorse/ZorseAttributes.h.inc"

namespace zorse {

/// Returns the argument attribute of an argument or result of a unit function; null if it has none
/// (docs/internals/compiler.md, "Unit classes").
ArgumentAttr attributeOfArgument(mlir::FunctionOpInterface function, unsigned argument);
ArgumentAttr attributeOfResult(mlir::FunctionOpInterface function, unsigned result);
inline bool isOfKind(ArgumentAttr attribute, ArgumentKind kind) {
  return attribute && attribute.getKind() == kind;
}

} // namespace zorse
