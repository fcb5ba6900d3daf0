// The exec dialect, and the text of its ops: the `custom<X>` directives of their assembly formats, which print only.
#include "zorse/Dialect/Exec/Exec.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

#include <charconv>

using namespace mlir;

#include "zorse/Dialect/Exec/ExecDialect.cpp.inc"
#include "zorse/Dialect/Exec/ExecEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "zorse/Dialect/Exec/ExecAttrs.cpp.inc"

namespace zorse::exec {

//===----------------------------------------------------------------------===//
// Reading: not at all
//===----------------------------------------------------------------------===//

#define ZORSE_EXEC_PRINTED(Name)                                                                                                                     \
  template <typename... Parts> static ParseResult parse##Name(OpAsmParser &parser, Parts &...) {                                                     \
    return parser.emitError(parser.getCurrentLocation(), "the text of programs is for reading, as zorse-inspect --program shows it");                \
  }
ZORSE_EXEC_PRINTED(MemoryKind)
ZORSE_EXEC_PRINTED(Phase)
ZORSE_EXEC_PRINTED(Order)
ZORSE_EXEC_PRINTED(Queue)
ZORSE_EXEC_PRINTED(Region)
ZORSE_EXEC_PRINTED(Value)
ZORSE_EXEC_PRINTED(Extents)
ZORSE_EXEC_PRINTED(Instance)
ZORSE_EXEC_PRINTED(When)
ZORSE_EXEC_PRINTED(Task)
ZORSE_EXEC_PRINTED(Callee)
ZORSE_EXEC_PRINTED(Rows)
ZORSE_EXEC_PRINTED(Slots)
#undef ZORSE_EXEC_PRINTED

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

static void printMemoryKind(OpAsmPrinter &printer, Operation *, MemoryKindAttr attr) { printer << stringifyMemoryKind(attr.getValue()); }

static void printPhase(OpAsmPrinter &printer, Operation *, PhaseAttr attr) { printer << stringifyPhase(attr.getValue()); }

static void printOrder(OpAsmPrinter &printer, Operation *, OrderAttr attr) { printer << stringifyOrder(attr.getValue()); }

static void printQueue(OpAsmPrinter &printer, Operation *, QueueAttr attr) { printer << stringifyQueueKind(attr.getKind()) << attr.getId(); }

static void printRegion(OpAsmPrinter &printer, Operation *, RegionAttr attr) {
  printer << attr.getArena() << ':' << attr.getOffset() << '+' << attr.getBytes();
}

/// ` "head"`, nothing without a name.
static void printName(OpAsmPrinter &printer, StringRef name) {
  if (name.empty())
    return;
  printer << ' ';
  printer.printString(name);
}

static void printValue(OpAsmPrinter &printer, Operation *, ValueAttr attr) {
  printer << stringifyValueKind(attr.getKind());
  bool single = attr.getKind() == ValueKind::None || attr.getKind() >= ValueKind::Sums || attr.getKind() == ValueKind::Scalars;
  if (attr.getId() || !single)
    printer << ' ' << attr.getId();
  printName(printer, attr.getName());
  if (attr.getCut())
    printer << " cut " << attr.getCut();
  if (attr.getBegin() || attr.getEnd())
    printer << " [" << attr.getBegin() << ':' << attr.getEnd() << ']';
  if (attr.getVersion())
    printer << " version " << attr.getVersion();
}

static void printExtents(OpAsmPrinter &printer, Operation *, ArrayAttr attr) {
  printer << '[';
  llvm::interleaveComma(attr.getAsRange<ExtentAttr>(), printer,
                        [&](ExtentAttr extent) { printer << extent.getMember() << ' ' << extent.getBegin() << ':' << extent.getEnd(); });
  printer << ']';
}

static void printInstance(OpAsmPrinter &printer, Operation *, IntegerAttr attr) {
  if (attr.getInt())
    printer << " instance " << attr.getInt();
}

//===----------------------------------------------------------------------===//
// Parts of ops
//===----------------------------------------------------------------------===//

/// The shortest text that is the same double.
static std::string shortest(double value) {
  char text[40];
  auto end = std::to_chars(text, text + sizeof text, value).ptr;
  std::string result(text, end);
  if (result.find_first_of(".n") == std::string::npos) { // MLIR's floats have a point; "inf" and "nan" never get here
    size_t exponent = result.find('e');
    result.insert(exponent == std::string::npos ? result.size() : exponent, ".0");
  }
  return result;
}

/// ` after [compute0:3, receive0:1 previous] time [0.5, 0.75]`, either part absent when there is nothing to say.
static void printWhen(OpAsmPrinter &printer, Operation *op, ArrayAttr waits, FloatAttr start, FloatAttr finish) {
  if (waits && !waits.empty()) {
    printer << " after [";
    llvm::interleaveComma(waits.getAsRange<WaitAttr>(), printer, [&](WaitAttr wait) {
      printQueue(printer, op, wait.getQueue());
      printer << ':' << wait.getPosition() << (wait.getPreviousStep() ? " previous" : "");
    });
    printer << "]";
  }
  if (start && finish)
    printer << " time [" << shortest(start.getValueAsDouble()) << ", " << shortest(finish.getValueAsDouble()) << "]";
}

/// `F cell 3`, `update group 2`, `norm`.
static void printTask(OpAsmPrinter &printer, Operation *, TaskAttr task, IntegerAttr cell, IntegerAttr group) {
  printer << stringifyTask(task.getValue());
  if (cell && cell.getInt() >= 0)
    printer << " cell " << cell.getInt();
  if (group && group.getInt() >= 0)
    printer << " group " << group.getInt();
}

/// `4 "head.forward" unit 4 "head"`.
static void printCallee(OpAsmPrinter &printer, Operation *, IntegerAttr body, StringAttr name, IntegerAttr unit, StringAttr unitName) {
  printer << body.getInt();
  printName(printer, name.getValue());
  if (!unit || unit.getInt() < 0)
    return;
  printer << " unit " << unit.getInt();
  printName(printer, unitName.getValue());
}

/// `[8:16]`: base and base + rows, which may wrap in a broken program.
static void printRows(OpAsmPrinter &printer, Operation *, IntegerAttr base, IntegerAttr rows) {
  printer << '[' << base.getInt() << ':' << static_cast<int64_t>(static_cast<uint64_t>(base.getInt()) + static_cast<uint64_t>(rows.getInt())) << ']';
}

/// One slot per line.
static void printSlots(OpAsmPrinter &printer, Operation *op, ArrayAttr slots) {
  if (slots.empty())
    return;
  printer << " (";
  printer.increaseIndent();
  for (auto [index, slot] : llvm::enumerate(slots.getAsRange<BindingAttr>())) {
    if (index)
      printer << ',';
    printer.printNewline();
    printer << stringifyAccess(slot.getAccess()) << (slot.getOverwrite() ? " overwriting " : " ");
    printValue(printer, op, slot.getValue());
    printer << " at ";
    printRegion(printer, op, slot.getRegion());
  }
  printer.decreaseIndent();
  printer << ')';
}

} // namespace zorse::exec

using namespace zorse::exec;

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
