#include "zorse/Dialect/Exec/Exec.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

#include "ExecSyntax.h"

using namespace mlir;
using namespace zorse::exec;

#include "zorse/Dialect/Exec/ExecDialect.cpp.inc"
#include "zorse/Dialect/Exec/ExecEnums.cpp.inc"
#include "zorse/Dialect/Exec/ExecInterfaces.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "zorse/Dialect/Exec/ExecAttrs.cpp.inc"

#define GET_OP_CLASSES
#include "zorse/Dialect/Exec/ExecOps.cpp.inc"

void ExecDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "zorse/Dialect/Exec/ExecAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "zorse/Dialect/Exec/ExecOps.cpp.inc"
      >();
}
