// The exec dialect: one device's program of a training step, as text.
#pragma once

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"

#include "zorse/Dialect/Exec/ExecDialect.h.inc"
#include "zorse/Dialect/Exec/ExecEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "zorse/Dialect/Exec/ExecAttrs.h.inc"

#define GET_OP_CLASSES
#include "zorse/Dialect/Exec/ExecOps.h.inc"
