// The pieces of text that ops and attributes of the exec dialect share: `custom<X>` directives of the assembly formats.
#pragma once

#include "zorse/Dialect/Exec/Exec.h"

namespace zorse::exec {

#define ZORSE_EXEC_SYNTAX(Name, Attr)                                                                                                                \
  mlir::ParseResult parse##Name(mlir::AsmParser &parser, Attr &attr);                                                                                \
  void print##Name(mlir::AsmPrinter &printer, Attr attr);                                                                                            \
  inline void print##Name(mlir::OpAsmPrinter &printer, mlir::Operation *, Attr attr) { print##Name(static_cast<mlir::AsmPrinter &>(printer), attr); }

ZORSE_EXEC_SYNTAX(MemoryKind, MemoryKindAttr)
ZORSE_EXEC_SYNTAX(Phase, PhaseAttr)
ZORSE_EXEC_SYNTAX(Order, OrderAttr)
ZORSE_EXEC_SYNTAX(Queue, QueueAttr)
ZORSE_EXEC_SYNTAX(Region, RegionAttr)
ZORSE_EXEC_SYNTAX(Value, ValueAttr)
ZORSE_EXEC_SYNTAX(Wait, WaitAttr)
ZORSE_EXEC_SYNTAX(Binding, BindingAttr)
ZORSE_EXEC_SYNTAX(Extent, ExtentAttr)
ZORSE_EXEC_SYNTAX(Extents, mlir::ArrayAttr)
ZORSE_EXEC_SYNTAX(Instance, mlir::IntegerAttr)
#undef ZORSE_EXEC_SYNTAX

/// ` after [compute0:3, receive0:1 previous] time [0.5, 0.75]`, either part absent when there is nothing to say.
mlir::ParseResult parseWhen(mlir::OpAsmParser &parser, mlir::ArrayAttr &waits, mlir::FloatAttr &start, mlir::FloatAttr &finish);
void printWhen(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::ArrayAttr waits, mlir::FloatAttr start, mlir::FloatAttr finish);

/// `F cell 3`, `update group 2`, `norm`.
mlir::ParseResult parseTask(mlir::OpAsmParser &parser, TaskAttr &task, mlir::IntegerAttr &cell, mlir::IntegerAttr &group);
void printTask(mlir::OpAsmPrinter &printer, mlir::Operation *op, TaskAttr task, mlir::IntegerAttr cell, mlir::IntegerAttr group);

/// `4 "head.forward" unit 4 "head"`.
mlir::ParseResult parseCallee(mlir::OpAsmParser &parser, mlir::IntegerAttr &body, mlir::StringAttr &name, mlir::IntegerAttr &unit,
                              mlir::StringAttr &unitName);
void printCallee(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::IntegerAttr body, mlir::StringAttr name, mlir::IntegerAttr unit,
                 mlir::StringAttr unitName);

/// `[8:16]`: base and base + rows.
mlir::ParseResult parseRows(mlir::OpAsmParser &parser, mlir::IntegerAttr &base, mlir::IntegerAttr &rows);
void printRows(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::IntegerAttr base, mlir::IntegerAttr rows);

/// One binding per line, until something else than an access word follows.
mlir::ParseResult parseSlots(mlir::OpAsmParser &parser, mlir::ArrayAttr &slots);
void printSlots(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::ArrayAttr slots);

} // namespace zorse::exec
